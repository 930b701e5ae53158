"""The shipped image, compose file and manifests say what the code says, and hold what they promise of privileges."""

import importlib.util
import json
import re
import socket
import sys
import threading
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from cli.doctor_place import service_of
from cli.inputs import SECTIONS
from hostfs.pods import find_pods_root, parse_pod_group
from lab.simnode import make_node
from lab.simnode_scenario import default_scenario
from runtime.config import load
from runtime.host_roots import find_roots
from runtime.lifecycle import STOP_SECONDS
from runtime.settings import HttpSettings
from runtime.streams import STREAMS
from schemas.settings import DEFAULT_CLASSES
from schemas.subjects import SERVICES
from services.collector.config import CollectorConfig
from services.collector.core.workload import classify, parse_duration
from services.collector.sources.workloads import read_workloads

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
WORKLOADS = ("api", "batch", "monitor", "loadgen")
EXTRAS = {"collector": ["collector"], "decider": ["decider"]}
SYSTEMD_ROOT = "/sys/fs/cgroup/kubepods.slice"


def script(name: str) -> ModuleType:
    """A script of deploy/docker as a module: it lies in no package."""
    spec = importlib.util.spec_from_file_location(f"deploy_docker_{name}", DEPLOY / "docker" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LOCK = script("lock_subset")
STAGE = script("stage")
HEALTH = script("healthcheck")


def objects(folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects that a kustomization lists, by kind and name."""
    at = DEPLOY / folder
    listed = yaml.safe_load((at / "kustomization.yaml").read_text())["resources"]
    documents = [one for name in listed for one in yaml.safe_load_all((at / name).read_text())]
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(found) == len(documents)
    return found


def agent() -> dict[str, Any]:
    return dict(objects("kubernetes")["DaemonSet", "trimtab"]["spec"]["template"]["spec"])


def containers() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in agent()["containers"]}


def mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["name"]: mount for mount in container["volumeMounts"]}


def dockerfile() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, in order: keyword and the rest."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stages: dict[str, list[tuple[str, str]]] = {"": []}
    here = ""
    for line in text.splitlines():
        keyword, _, rest = line.partition(" ")
        if keyword == "FROM":
            here = rest.rpartition(" AS ")[2]
            stages[here] = []
        if keyword and not keyword.startswith("#"):
            stages[here].append((keyword, rest))
    return stages


def last(stage: str, keyword: str) -> str:
    """What an instruction finally says in a stage, or in the one that it comes from."""
    stages = dockerfile()
    said = [rest for word, rest in stages[stage] if word == keyword]
    return said[-1] if said else last(stages[stage][0][1].partition(" ")[0], keyword)


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


# ---- what an image holds --------------------------------------------------------------------------------------------


def closure(names: list[str]) -> set[str]:
    """What these packages need, by the metadata of those that are installed here."""
    found: set[str] = set()
    while names:
        requirement = Requirement(names.pop())
        name = LOCK.canonical(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            names += distribution(name).requires or ()
    return found


@pytest.mark.parametrize("service", [*SERVICES, "lab"])
def test_an_image_holds_exactly_the_packages_that_its_service_needs(service, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = list(project["dependencies"])
    for extra in EXTRAS.get(service, []):
        asked += project["optional-dependencies"][extra]
    assert LOCK.main(EXTRAS.get(service, [])) == 0
    lines = capsys.readouterr().out.splitlines()
    pinned = {LOCK.canonical(line.split("==")[0]) for line in lines if not line.startswith(" ")}
    assert pinned == closure(asked)
    assert all(line.startswith(" ") or line.endswith("\\") for line in lines)  # hashes follow each of them
    assert not {"pytest", "ruff", "rich"} & pinned


def test_the_packages_of_one_service_are_not_those_of_another(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    held = {}
    for service in SERVICES:
        LOCK.main(EXTRAS.get(service, []))
        held[service] = {line.split("==")[0] for line in capsys.readouterr().out.splitlines() if line[0] != " "}
    assert {"river", "numpy", "scipy"} <= held["decider"]
    assert {"aiohttp", "kubernetes"} <= held["collector"]
    assert not {"river", "aiohttp", "kubernetes"} & (held["guard"] | held["actuator"] | held["rewarder"])
    assert not held["collector"] & {"river", "numpy"}
    assert not held["decider"] & {"aiohttp", "kubernetes"}


def test_a_package_that_is_not_locked_ends_the_build():
    entries = LOCK.parse_lock("one==1 \\\n    --hash=sha256:aa\n    # via two\n")
    with pytest.raises(LOCK.SubsetError, match=r"not in the lock: two; run `make lock`"):
        LOCK.subset(entries, {"two"})


def test_who_asked_for_a_package_is_read_from_one_line_and_from_many():
    text = (
        "A.b==1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via trimtab (pyproject.toml)\n"
        "c==2 ; python_version < '3.12' \\\n    --hash=sha256:cc\n    # via\n    #   a-b\n    #   d\n"
        "c==3 ; python_version >= '3.12' \\\n    --hash=sha256:cd\n    # via a_b\n"
        "d==4 \\\n    --hash=sha256:dd\n    # via e\n"
    )
    chosen = LOCK.subset(LOCK.parse_lock(text), {"a-b"})
    assert [entry.lines[0] for entry in chosen] == [
        "A.b==1 \\",
        "c==2 ; python_version < '3.12' \\",
        "c==3 ; python_version >= '3.12' \\",
    ]
    assert chosen[0].lines[1:] == ("    --hash=sha256:aa \\", "    --hash=sha256:bb")


def test_an_extra_that_does_not_exist_is_refused(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert LOCK.main(["nope"]) == 1
    assert "nope: not in pyproject.toml; there are collector, decider, demo" in capsys.readouterr().err


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_a_target_that_runs_it_as_nobody_but_the_actuator_as_root(service):
    assert json.loads(last(service, "ENTRYPOINT")) == ["python", "-m", f"services.{service}"]
    assert service_of(json.loads(last(service, "ENTRYPOINT"))) == service  # so that the doctor knows where it is
    assert last(service, "USER") == ("0:0" if service == "actuator" else "65532:65532")
    port = str(HttpSettings().port_of(service))
    assert last(service, "EXPOSE") == port
    assert json.loads(last(service, "HEALTHCHECK").partition("CMD ")[2])[-1] == port
    files = "common" if service not in EXTRAS else service
    assert last(service, "COPY") == f"--from={files}-files /opt/trimtab /opt/trimtab"


def test_the_image_says_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ("ARG", f"VERSION={project['version']}") in dockerfile()["runtime"]


def test_an_image_holds_the_byte_code_of_python_s_own_library():
    """Python's images have none, and a read-only file system takes none."""
    (run,) = [rest for keyword, rest in dockerfile()["runtime"] if keyword == "RUN"]
    assert run.startswith("python -m compileall -q ")
    assert "--invalidation-mode unchecked-hash" in run
    order = [keyword for keyword, _ in dockerfile()["runtime"]]
    assert order.index("RUN") < order.index("USER")  # root may write there


def test_a_builder_without_buildkit_understands_the_dockerfile():
    text = (ROOT / "Dockerfile").read_text()
    assert "--mount" not in text
    assert "<<" not in text
    assert "# syntax" not in text


def test_the_builder_is_sent_all_that_the_dockerfile_copies_and_no_more():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word
        for stage in dockerfile().values()
        for keyword, rest in stage
        if keyword == "COPY" and not rest.startswith("--from")
        for word in rest.split()[:-1]
    }
    assert copied <= kept | {f"deploy/docker/{path.name}" for path in (DEPLOY / "docker").glob("*.py")}
    assert kept - {"deploy/docker/*.py"} <= copied
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(packages["packages"]) <= copied


@pytest.mark.parametrize(("answer", "healthy"), [(b"HTTP/1.1 200 OK\r\n", True), (b"HTTP/1.1 503 No\r\n", False)])
def test_the_health_check_believes_nothing_but_200(answer, healthy):
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(4096))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        assert HEALTH.is_healthy(port) is healthy
        thread.join()
    assert asked[0].startswith(b"GET /healthz HTTP/1.0\r\n")
    assert HEALTH.is_healthy(port) is False  # nobody listens any more


# ---- manifests ------------------------------------------------------------------------------------------------------


def test_the_agent_is_the_five_services_from_the_images_of_the_dockerfile():
    found = containers()
    assert tuple(found) == SERVICES
    for name, container in found.items():
        assert container["image"] == f"trimtab/{name}:dev"
        assert name in dockerfile()
        assert "command" not in container
        assert "args" not in container


def test_every_container_has_its_service_s_own_port_and_its_probes_ask_there():
    for name, container in containers().items():
        assert container["ports"] == [{"name": name, "containerPort": HttpSettings().port_of(name), "protocol": "TCP"}]
        asked = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
        assert asked["startup"] == asked["liveness"] == {"path": "/healthz", "port": name}
        assert asked["readiness"] == {"path": "/readyz", "port": name}
    ports = [container["ports"][0]["containerPort"] for container in containers().values()]
    assert len(set(ports)) == len(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_no_container_has_a_privilege_and_only_the_actuator_is_root(service):
    context = dict(containers()[service]["securityContext"])
    user = {"runAsUser": 0, "runAsGroup": 0}
    if service != "actuator":
        user = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532}
    assert context == {
        **user,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_pod_shares_nothing_of_the_node_but_the_pods_root_and_the_journal():
    spec = agent()
    assert not {"hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace"} & set(spec)
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    paths = {volume["name"]: volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume}
    assert paths == {
        "pods-root": {"path": SYSTEMD_ROOT, "type": "Directory"},
        "journal": {"path": "/var/lib/trimtab", "type": "DirectoryOrCreate"},
    }


def test_only_the_actuator_can_write_the_pods_root_and_only_it_has_the_journal():
    found = {name: mounts(container) for name, container in containers().items()}
    assert {name for name, seen in found.items() if "pods-root" in seen} == {"collector", "actuator"}
    assert found["collector"]["pods-root"]["readOnly"] is True
    assert "readOnly" not in found["actuator"]["pods-root"]
    assert {name for name, seen in found.items() if "journal" in seen} == {"actuator"}
    journal = shipped("actuator").sections["actuator"].journal
    assert str(Path(journal).parent) == found["actuator"]["journal"]["mountPath"]


def test_the_pods_root_is_found_by_its_name_below_the_configured_cgroup_root():
    root = shipped("collector").host.cgroup_root
    for service in ("collector", "actuator"):
        folder = mounts(containers()[service])["pods-root"]["mountPath"]
        assert Path(folder).parent == Path(str(root))
        assert find_pods_root("", lambda group, name=Path(folder).name: [] if group else [name]) == Path(folder).name


def test_only_the_collector_has_the_account_s_token_and_where_the_client_looks_for_it():
    from kubernetes.config import incluster_config  # noqa: PLC0415 - half a second

    spec = agent()
    assert spec["automountServiceAccountToken"] is False
    assert objects("kubernetes")["ServiceAccount", "trimtab"]["automountServiceAccountToken"] is False
    found = {name: mounts(container) for name, container in containers().items()}
    assert {name for name, seen in found.items() if "token" in seen} == {"collector"}
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "token")
    sources = {key: value for source in volume["projected"]["sources"] for key, value in source.items()}
    folder = found["collector"]["token"]["mountPath"]
    assert f"{folder}/{sources['serviceAccountToken']['path']}" == incluster_config.SERVICE_TOKEN_FILENAME
    assert f"{folder}/{sources['configMap']['items'][0]['path']}" == incluster_config.SERVICE_CERT_FILENAME
    assert volume["projected"]["defaultMode"] == 0o444  # the collector is not root


def test_the_account_may_see_pods_and_nothing_else():
    found = objects("kubernetes")
    roles = [one for (kind, _), one in found.items() if kind in ("Role", "ClusterRole")]
    assert [role["rules"] for role in roles] == [
        [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    ]
    binding = found["ClusterRoleBinding", "trimtab-collector"]
    assert binding["roleRef"]["name"] == roles[0]["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trimtab", "namespace": "trimtab"}]
    assert agent()["serviceAccountName"] == "trimtab"
    assert [key for key in found if key[0].endswith("Binding")] == [("ClusterRoleBinding", "trimtab-collector")]


def environment(service: str) -> dict[str, str]:
    """What the container's process finds set, on node worker-3.example."""
    given = {}
    for one in containers()[service]["env"]:
        field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        given[one["name"]] = "worker-3.example" if field == "spec.nodeName" else one["value"]
    links = {"TRIMTAB_NATS_SERVICE_HOST": "10.96.0.7", "TRIMTAB_NATS_PORT": "tcp://10.96.0.7:4222"}
    return links | {name: re.sub(r"\$\((\w+)\)", lambda found: links[found[1]], value) for name, value in given.items()}


def shipped(service: str) -> Any:
    """The configuration that a service of the agent starts with."""
    text = objects("kubernetes")["ConfigMap", "trimtab"]["data"]["trimtab.yaml"]
    path = DEPLOY / "kubernetes" / "trimtab.yaml"  # named in errors; the text is the ConfigMap's
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.config.read_file", lambda _: yaml.safe_load(text))
        return load({service: SECTIONS[service]}, path=str(path), env=environment(service))


@pytest.mark.parametrize("service", SERVICES)
def test_the_shipped_settings_are_accepted_and_write_nothing(service):
    config = shipped(service)
    assert config.warnings == ()
    assert config.shared.mode == "shadow"
    assert config.shared.node == "worker-3.example"
    assert config.bus.url == "nats://10.96.0.7:4222"
    assert config.http.host == ""
    mounted = mounts(containers()[service])["config"]["mountPath"]
    assert environment(service)["TRIMTAB_CONFIG"] == f"{mounted}/trimtab.yaml"


def test_the_shipped_classes_are_the_default_ones_and_pods_come_from_the_api():
    assert shipped("guard").shared.classes == DEFAULT_CLASSES
    collector = shipped("collector").section("collector", CollectorConfig)
    assert collector.kubernetes is True
    assert collector.kubeconfig is None
    assert "kube-system" in collector.exclude_namespaces


def test_the_pod_is_given_longer_to_end_than_the_actuator_takes():
    assert agent()["terminationGracePeriodSeconds"] >= 2 * STOP_SECONDS


def test_an_update_takes_a_tenth_of_the_nodes_at_a_time():
    spec = objects("kubernetes")["DaemonSet", "trimtab"]["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    assert ("PriorityClass", agent()["priorityClassName"]) in objects("kubernetes")


def test_the_agent_and_its_server_ask_for_little_and_have_no_cpu_limit():
    """Together with the test workloads they fit on a node of two CPUs."""
    millicpu = [int(one["resources"]["requests"]["cpu"].removesuffix("m")) for one in containers().values()]
    assert sum(millicpu) == 150
    server = objects("kubernetes")["StatefulSet", "trimtab-nats"]["spec"]["template"]["spec"]["containers"][0]
    assert server["resources"]["requests"]["cpu"] == "50m"
    asked = {
        name: one["spec"]["replicas"]
        * int(one["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
        for (kind, name), one in objects("kubernetes/workloads").items()
        if kind == "Deployment"
    }
    assert asked == {"api": 100, "batch": 1600, "monitor": 50, "loadgen": 50}  # 16 : 1 against the API
    assert 150 + 50 + sum(asked.values()) <= 2000
    for container in containers().values():
        assert set(container["resources"]["limits"]) == {"memory"}


def test_the_server_s_disk_holds_what_the_streams_may_hold():
    text = objects("kubernetes")["ConfigMap", "trimtab-nats"]["data"]["nats-server.conf"]
    gigabytes = re.search(r"max_file_store: (\d+)GB", text)
    assert gigabytes is not None
    assert int(gigabytes[1]) << 30 > sum(stream.max_bytes or 0 for stream in STREAMS)
    assert "max_payload: 1MB" in text


def test_the_service_that_the_agent_is_told_of_is_the_server_s():
    found = objects("kubernetes")
    assert agent()["enableServiceLinks"] is True
    service = found["Service", "trimtab-nats"]
    labels = found["StatefulSet", "trimtab-nats"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["port"] == 4222
    admitted = found["NetworkPolicy", "trimtab-nats"]["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    agents = found["DaemonSet", "trimtab"]["spec"]["template"]["metadata"]["labels"]
    assert admitted.items() <= agents.items()


@pytest.mark.parametrize(
    ("overlay", "root"),
    [
        ("cgroupfs", "/sys/fs/cgroup/kubepods"),
        ("kind", "/sys/fs/cgroup/kubelet.slice/kubelet-kubepods.slice"),
    ],
)
def test_an_overlay_changes_where_the_node_keeps_its_pods_and_nothing_else(overlay, root):
    kustomization = yaml.safe_load((DEPLOY / "overlays" / overlay / "kustomization.yaml").read_text())
    patched = yaml.safe_load(kustomization["patches"][0]["patch"])
    assert patched["spec"] == {
        "template": {"spec": {"volumes": [{"name": "pods-root", "hostPath": {"path": root, "type": "Directory"}}]}}
    }
    assert patched["metadata"] == {"name": "trimtab", "namespace": "trimtab"}


def test_all_that_an_overlay_names_is_there():
    for path in (DEPLOY / "overlays").glob("*/kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        for named in kustomization["resources"]:
            at = path.parent / named
            assert (at if named.endswith(".yaml") else at / "kustomization.yaml").is_file(), (path, named)
        for patch in kustomization.get("patches", ()):
            assert "path" not in patch or (path.parent / patch["path"]).is_file()


def test_with_a_storage_class_the_streams_are_on_a_volume_of_their_own():
    folder = DEPLOY / "overlays" / "persistent"
    (patch,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]
    assert patch["target"] == {"kind": "StatefulSet", "name": "trimtab-nats"}
    (replaced,) = yaml.safe_load(patch["patch"])
    volumes = objects("kubernetes")["StatefulSet", "trimtab-nats"]["spec"]["template"]["spec"]["volumes"]
    assert (replaced["op"], replaced["path"]) == ("replace", "/spec/template/spec/volumes/1")
    assert volumes[1]["name"] == replaced["value"]["name"] == "data"
    claim = yaml.safe_load((folder / "volume.yaml").read_text())
    assert replaced["value"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert claim["metadata"]["namespace"] == "trimtab"
    gigabytes = claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")
    assert int(gigabytes) << 30 > sum(stream.max_bytes or 0 for stream in STREAMS)


UNCHANGEABLE = {
    "PriorityClass": ("value", "preemptionPolicy", "globalDefault"),
    "StatefulSet": ("serviceName", "selector", "volumeClaimTemplates", "podManagementPolicy"),
    "DaemonSet": ("selector",),
}
"""What Kubernetes lets nobody change of what is there (below `spec`, where there is one)."""


def test_no_overlay_changes_what_could_not_be_applied_over_another():
    """All of them against a real API server: tests/kube/test_overlays.py."""
    base = set(objects("kubernetes"))
    for path in (DEPLOY / "overlays").glob("*/kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        for named in kustomization["resources"]:
            if named.endswith(".yaml"):
                own = yaml.safe_load((path.parent / named).read_text())
                assert (own["kind"], own["metadata"]["name"]) not in base, "an object of that name says something else"
        for patch in kustomization.get("patches", ()):
            text = patch["patch"] if "patch" in patch else (path.parent / patch["path"]).read_text()
            said = yaml.safe_load(text)
            if isinstance(said, list):
                assert all(one["path"].startswith("/spec/template/") for one in said), path
                continue
            assert not set(UNCHANGEABLE.get(said["kind"], ())) & set(said.get("spec", said)), path


def test_on_kind_the_agent_and_its_server_make_room_for_themselves():
    folder = DEPLOY / "overlays" / "kind"
    cls = yaml.safe_load((folder / "priority.yaml").read_text())
    assert cls["preemptionPolicy"] == "PreemptLowerPriority"
    assert cls["value"] == objects("kubernetes")["PriorityClass", "trimtab"]["value"]
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    patches = [yaml.safe_load(one["patch"]) for one in kustomization["patches"]]
    given = {one["kind"]: one["spec"]["template"]["spec"].get("priorityClassName") for one in patches[1:]}
    assert given == dict.fromkeys(("DaemonSet", "StatefulSet"), cls["metadata"]["name"])


def test_with_credentials_each_container_has_its_own_seed_alone():
    patch = yaml.safe_load((DEPLOY / "overlays" / "secured" / "agent.yaml").read_text())["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume["secret"]["items"] for volume in patch["volumes"]}
    assert [container["name"] for container in patch["containers"]] == list(SERVICES)
    for container in patch["containers"]:
        name = container["name"]
        (mount,) = container["volumeMounts"]
        assert {item["path"] for item in volumes[mount["name"]]} == {"ca.pem", f"{name}.seed"}
        env = {one["name"]: one["value"] for one in container["env"]}
        address = env["TRIMTAB_BUS__URL"].replace("$(TRIMTAB_NATS_SERVICE_HOST)", "10.96.0.7")
        config = load({name: SECTIONS[name]}, env={**env, "TRIMTAB_BUS__URL": address})
        assert config.warnings == ()
        assert config.bus.nkey_seed_file == f"{mount['mountPath']}/{{service}}.seed"
        assert config.bus.tls_ca_file == f"{mount['mountPath']}/ca.pem"
        assert config.bus.url == "tls://10.96.0.7:4222"
        assert config.bus.declare_streams is False


@pytest.mark.parametrize(
    ("name", "cls"), [("api", "latency-critical"), ("batch", "batch"), ("monitor", "default"), ("loadgen", None)]
)
def test_the_test_workloads_are_of_the_classes_that_they_are_named_for(name, cls):
    template = objects("kubernetes/workloads")["Deployment", name]["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert classify(labels, CollectorConfig().class_labels, DEFAULT_CLASSES) == cls
    (container,) = template["spec"]["containers"]
    assert container["image"] == "trimtab/lab:dev"
    assert container["args"][:2] == ["-m", f"lab.workloads.{name}"]
    assert importlib.util.find_spec(container["args"][1]) is not None
    annotations = template["metadata"].get("annotations", {})
    if "prometheus.io/port" in annotations:
        assert int(annotations["prometheus.io/port"]) == container["ports"][0]["containerPort"]
    if name == "api":
        assert parse_duration(annotations["trimtab.dev/slo-p99"]) == 0.1


def test_every_manifest_is_of_a_version_that_old_and_new_clusters_have():
    served = {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1", "scheduling.k8s.io/v1"}
    for folder in ("kubernetes", "kubernetes/workloads"):
        assert {one["apiVersion"] for one in objects(folder).values()} <= served
    for container in containers().values():
        assert "restartPolicy" not in container


def test_the_namespace_allows_host_paths_and_the_workloads_need_no_such_leave():
    level = "pod-security.kubernetes.io/enforce"
    assert objects("kubernetes")["Namespace", "trimtab"]["metadata"]["labels"][level] == "privileged"
    assert objects("kubernetes/workloads")["Namespace", "trimtab-demo"]["metadata"]["labels"][level] == "restricted"


def test_the_kind_cluster_is_one_node_on_which_the_workloads_meet():
    cluster = yaml.safe_load((DEPLOY / "kind" / "cluster.yaml").read_text())
    assert (cluster["kind"], cluster["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert [node["role"] for node in cluster["nodes"]] == ["control-plane"]


# ---- compose --------------------------------------------------------------------------------------------------------


def test_compose_has_the_server_the_workloads_the_node_and_the_five_services():
    assert set(compose()["services"]) == {"nats", "node", *WORKLOADS, *SERVICES}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_of_compose_is_built_from_its_own_target_and_has_no_privilege(service):
    one = compose()["services"][service]
    assert one["image"] == f"trimtab/{service}:dev"
    assert one["build"] == {"context": ".", "target": service, "network": "host"}
    port = HttpSettings().port_of(service)
    assert one["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert one["cap_drop"] == ["ALL"]
    assert one["read_only"] is True
    assert "privileged" not in one
    config = load({service: SECTIONS[service]}, env=one["environment"])
    assert config.warnings == ()
    assert config.bus.url == "nats://nats:4222"
    assert config.bus.connect_timeout_seconds == 300.0


def test_compose_shows_ports_to_this_machine_only_and_never_mounts_its_cgroups_writable():
    for name, one in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
        cgroups = [volume for volume in one.get("volumes", ()) if volume.startswith("/sys/fs/cgroup")]
        assert all(volume.endswith(":ro") for volume in cgroups), name


def test_compose_and_the_cluster_run_the_same_server():
    server = objects("kubernetes")["StatefulSet", "trimtab-nats"]["spec"]["template"]["spec"]["containers"][0]
    assert compose()["services"]["nats"]["image"] == server["image"]
    assert "--jetstream" in compose()["services"]["nats"]["command"]


def test_the_workloads_of_compose_are_in_groups_named_as_a_kubelet_s():
    """systemd nests a slice by its name's dashes; other engines put the group somewhere as it is."""
    services = compose()["services"]
    for pod in STAGE.PODS:
        parent = services[pod.host]["cgroup_parent"]
        slices = parent.removesuffix(".slice").split("-")
        nested = "/".join("-".join(slices[: count + 1]) + ".slice" for count in range(len(slices)))
        for path in (nested, f"system.slice/{parent}"):
            found = parse_pod_group(path)
            assert found is not None
            assert (found.uid, found.qos) == (pod.uid, "Burstable")
        assert str(STAGE.PORT) in services[pod.host]["command"]


def tree(*groups: str) -> Any:
    """`children` of a tree that holds these groups and all above them."""
    every = {"/".join(group.split("/")[: depth + 1]) for group in groups for depth in range(group.count("/") + 1)}
    return lambda group: sorted(one for one in every if one.rpartition("/")[0] == group)


A, B, C = (pod.uid for pod in STAGE.PODS)
BURSTABLE = "trimtab.slice/trimtab-kubepods.slice/trimtab-kubepods-burstable.slice/trimtab-kubepods-burstable"


@pytest.mark.parametrize(
    ("groups", "root"),
    [
        (
            [f"{BURSTABLE}-pod{uid}.slice/docker-{'ab' * 32}.scope" for uid in (A, B, C)],
            "trimtab.slice/trimtab-kubepods.slice",
        ),
        ([f"engine/trimtab-kubepods-burstable-pod{uid}.slice/{'ab' * 32}" for uid in (A, B, C)], "engine"),
        ([f"kubepods/burstable/pod{uid}/{'ab' * 32}" for uid in (A, B, C)], "kubepods"),
    ],
    ids=["systemd", "cgroupfs, wherever the engine is", "cgroupfs, as a kubelet's"],
)
def test_the_workloads_groups_are_found_wherever_the_engine_put_them(groups, root):
    others = ["kubepods/podffffffffffffffffffffffffffffffff", "system.slice/ssh.service"]
    found = STAGE.pod_groups(tree(*groups, *others), (A, B, C))
    assert found == {uid: group.rpartition("/")[0] for uid, group in zip((A, B, C), groups, strict=True)}
    assert STAGE.common_root(found.values()) == root


@pytest.mark.parametrize(
    "groups",
    [
        [f"trimtab-kubepods-burstable-pod{A}.slice"],
        [f"one/burstable/pod{A}", f"two/burstable/pod{B}"],
    ],
    ids=["at the root itself", "in two places"],
)
def test_groups_that_share_no_group_of_their_own_are_not_looked_at(groups):
    with pytest.raises(STAGE.NoRealGroups):
        STAGE.common_root(groups)


def test_a_host_without_the_cpu_controller_is_told_why(tmp_path):
    with pytest.raises(STAGE.NoRealGroups, match=r"cgroup2|cpu controller is on v1"):
        STAGE.find_real(str(tmp_path), lambda: 0.0, lambda _: None)


def test_what_the_stage_writes_is_what_the_services_read(tmp_path):
    node = make_node(default_scenario(), tmp_path / "node", None)
    ports = {name: 9100 + number for number, name in enumerate(node.observed)}
    STAGE.write(tmp_path, STAGE.simulated_entries(node, ports), STAGE.simulated_host(node))
    node.close()
    config = load(SECTIONS, path=str(tmp_path / "trimtab.yaml"), env={})
    assert config.shared.mode == "shadow"
    roots = find_roots(config.host)
    assert (roots.cgroup_root, roots.pods_root) == (str(node.tree.cgroup_root), "kubepods")
    assert roots.read_only is None
    assert roots.proc_root == str(node.tree.proc_root)
    collector = config.section("collector", CollectorConfig)
    read = read_workloads(str(collector.workloads), str(node.tree.cgroup_root / "kubepods"))
    assert {workload.name: workload.metrics_url for workload in read} == {
        "simulated/api": "http://node:9100/metrics",
        "simulated/batch": None,
        "simulated/monitor": f"http://node:{ports['monitor']}/metrics",
    }
    assert not (tmp_path / "trimtab.yaml.new").exists()
