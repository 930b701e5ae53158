import pytest

from runtime.settings import HostSettings, HttpSettings, mask_url
from schemas.settings import SettingsError
from schemas.subjects import SERVICES


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("nats://h:4222", "nats://h:4222"),
        ("nats://me:pw@h:4222", "nats://***@h:4222"),
        ("nats://me:p@w@h:4222", "nats://***@h:4222"),
        ("nats://me:p/w@h:4222", "nats://***@h:4222"),
        ("nats://me:p,w@h", "nats://***@h"),
        ("tls://token@h,tls://token@i,tls://j", "tls://***@h,tls://***@i,tls://j"),
        ("me:pw@h:4222", "***@h:4222"),
        ("", ""),
    ],
)
def test_no_part_of_a_password_survives_masking(url, masked):
    assert mask_url(url) == masked


def test_ports_follow_the_services_and_zero_means_any():
    assert [HttpSettings().port_of(service) for service in SERVICES] == [9401, 9402, 9403, 9404, 9405]
    assert [HttpSettings(base_port=0).port_of(service) for service in SERVICES] == [0] * 5
    assert HttpSettings(base_port=65_530).port_of(SERVICES[-1]) <= 65_535


@pytest.mark.parametrize("root", ["/kubepods", "..", "a/../b", "a//b", "./a", "a/", ""])
def test_a_pods_root_that_could_leave_the_cgroup_root_is_refused(root):
    with pytest.raises(SettingsError, match=r"host\.pods_root"):
        HostSettings(pods_root=root).check()


@pytest.mark.parametrize("root", [None, "kubepods.slice", "kubelet/kubepods", "a..b"])
def test_a_pods_root_below_the_cgroup_root_is_fine(root):
    HostSettings(pods_root=root).check()
