"""Of several kubelets' pods on one machine, those of the API are looked at."""

from cli.doctor import _configured
from runtime.settings import HostSettings
from services.collector.sources.root_choice import rival_roots, root_of, said
from tests.unit.hostfs.nodes import EMPTY, N1, POPULATED, UID1, UID2, UID2_, grow

NEAR = "kubepods"
FAR = f"system.slice/docker-{N1}.scope/kubelet.slice/kubelet-kubepods.slice"


def two_kubelets(tmp_path, far=POPULATED):
    grow(tmp_path, f"{NEAR}/burstable/pod{UID1}")
    grow(tmp_path, f"{FAR}/kubelet-kubepods-pod{UID2_}.slice")
    grow(tmp_path, NEAR, POPULATED)
    grow(tmp_path, FAR, far)
    return str(tmp_path)


def test_roots_with_running_pods_are_rivals(tmp_path):
    assert rival_roots(two_kubelets(tmp_path)) == (NEAR, FAR)


def test_one_root_has_no_rivals_and_an_old_one_is_none(tmp_path):
    assert rival_roots(two_kubelets(tmp_path, far=EMPTY)) == ()


def test_the_root_is_the_one_that_has_the_pods(tmp_path):
    root = two_kubelets(tmp_path)
    assert root_of({UID2}, root, (NEAR, FAR)) == FAR
    assert root_of({UID1, "gone"}, root, (NEAR, FAR)) == NEAR
    assert root_of({UID1, UID2}, root, (NEAR, FAR)) == NEAR, "of equals the first"


def test_without_any_of_the_pods_nothing_is_known(tmp_path):
    root = two_kubelets(tmp_path)
    assert root_of({"gone"}, root, (NEAR, FAR)) is None
    assert root_of(set(), root, (NEAR, FAR)) is None


def test_the_choice_is_said_with_the_way_out():
    assert said((NEAR, "a/kubepods"), "a/kubepods") == (
        "pods root: several hold running pods (kubepods, a/kubepods); a/kubepods is looked at; set host.pods_root to "
        "the right one, for the actuator too"
    )


def test_the_doctor_names_all_of_them(tmp_path):
    settings = HostSettings(cgroup_root=two_kubelets(tmp_path), simulated=True)
    (check,) = [one for one in _configured(settings) if one.name == "pods root"]
    assert (check.status, check.found) == ("note", f"{NEAR}; several hold running pods: {NEAR}, {FAR}")
    assert "set host.pods_root" in check.remedy
    chosen = HostSettings(cgroup_root=str(tmp_path), pods_root=FAR, simulated=True)
    (check,) = [one for one in _configured(chosen) if one.name == "pods root"]
    assert (check.status, check.found) == ("ok", FAR)
