import pytest

from runtime.errors import HostError
from runtime.host_roots import find_roots
from runtime.settings import HostSettings


def test_a_simulated_node_is_taken_at_its_word(tmp_path):
    (tmp_path / "kubepods.slice").mkdir()
    roots = find_roots(HostSettings(cgroup_root=str(tmp_path), simulated=True))
    assert (roots.cgroup_root, roots.pods_root, roots.read_only) == (str(tmp_path), "kubepods.slice", None)


def test_cg_02_the_pods_root_of_a_node_in_a_container_is_found(tmp_path):
    (tmp_path / "kubelet.slice" / "kubelet-kubepods.slice").mkdir(parents=True)
    roots = find_roots(HostSettings(cgroup_root=str(tmp_path), simulated=True))
    assert roots.pods_root == "kubelet.slice/kubelet-kubepods.slice"


def test_a_pods_root_from_the_settings_wins(tmp_path):
    for name in ("kubepods", "lab"):
        (tmp_path / name).mkdir()
    assert find_roots(HostSettings(cgroup_root=str(tmp_path), pods_root="lab", simulated=True)).pods_root == "lab"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"simulated": True}, "host.cgroup_root: a simulated node needs it"),
        ({"simulated": True, "cgroup_root": "{}"}, "host.pods_root: no kubepods group below"),
        ({"simulated": True, "cgroup_root": "{}", "pods_root": "gone"}, "host.pods_root: 'gone' does not exist below"),
        ({"cgroup_root": "{}"}, "host.cgroup_root: "),
    ],
)
def test_a_node_without_pods_is_refused_with_the_setting_to_change(tmp_path, settings, expected):
    made = {k: v.format(tmp_path) if isinstance(v, str) else v for k, v in settings.items()}
    with pytest.raises(HostError) as caught:
        find_roots(HostSettings(**made))
    assert str(caught.value).startswith(expected)
    assert len(str(caught.value).splitlines()) == 1
