"""A cluster for tests marked `kube`: the one that KUBECONFIG names, or a skip that says why."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster import Cluster, NoCluster, connect, opened

FIGURE = "kube_figure"
"""The property that a test records its figure as; it is said at the end of the run."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster, with a namespace and a node of our own for the whole run."""
    try:
        api = connect()
    except NoCluster as reason:
        pytest.skip(str(reason))
    with opened(api) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def account(cluster) -> str:
    """The collector's account with the rights that the manifests give it."""
    return cluster.apply_access()


@pytest.fixture(scope="session")
def kubeconfig(cluster, account, tmp_path_factory) -> Path:
    """Credentials of that account."""
    return cluster.kubeconfig_of(account, tmp_path_factory.mktemp("account"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each figure."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    for figure in [text for report in reports for name, text in report.user_properties if name == FIGURE]:
        terminalreporter.write_line(str(figure))
