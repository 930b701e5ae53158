"""Where each pod is scraped: one place at most, and a place belongs to one pod (PM-12).

A `metrics_url` is taken as it stands. Else the annotations decide, as Prometheus users write them: `prometheus.io/port`
(or `prometheus.io/scrape: "true"` and a single declared port), `prometheus.io/path` and `prometheus.io/scheme`.
`scrape` may be any usual word for yes or no; where it is neither, that is said and nothing is scraped. Pods on the
host's network share its address: of several that lead to one place the one that declares the port has it, and if none
or several do, nobody.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from services.collector.core.page import reason
from services.collector.core.workload import FALSE_WORDS, TRUE_WORDS, Workload

SCRAPE: Final = "prometheus.io/scrape"
SCHEME: Final = "prometheus.io/scheme"
PORT: Final = "prometheus.io/port"
PATH: Final = "prometheus.io/path"
METRIC: Final = "trimtab.dev/latency-metric"
UNIT: Final = "trimtab.dev/latency-unit"

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Target:
    """One page to fetch for one pod, and what the pod says of its latency metric."""

    uid: str
    url: str
    metric: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets by uid, and for pods that ask to be scraped and cannot be: the word and what to do, by uid."""

    found: Mapping[str, Target]
    refused: Mapping[str, str]


def targets(workloads: Iterable[Workload]) -> Targets:
    """The targets of all pods of a node."""
    found: dict[str, Target] = {}
    refused: dict[str, str] = {}
    by_place: dict[tuple[str, int], list[Workload]] = defaultdict(list)
    for workload in workloads:
        try:
            url = _url(workload)
            place = url and _place(url)
        except ValueError as error:
            refused[workload.uid] = reason("no_target", str(error))
            continue
        if url and place:
            metric = workload.latency_metric or workload.annotations.get(METRIC, "").strip()
            unit = workload.latency_unit or workload.annotations.get(UNIT, "").strip()
            found[workload.uid] = Target(workload.uid, url, metric.removesuffix("_bucket") or None, unit or None)
            by_place[place].append(workload)
    for (host, port), pods in by_place.items():
        for pod, others in _losers(pods, port):
            del found[pod.uid]
            text = f"{host}:{port} is also the place of {others}; only one pod may have it"
            refused[pod.uid] = reason("shared_target", text)
    return Targets(found, refused)


def _losers(pods: list[Workload], port: int) -> list[tuple[Workload, str]]:
    """The pods that do not get the place that they lead to, and whom they share it with. URLs that were written out and
    lead to different pages do not share it: one exporter may have a page for each of several pods.
    """
    losers: list[tuple[Workload, str]] = []
    pages = {pod.uid: _page(pod.metrics_url) if pod.metrics_url is not None else None for pod in pods}
    for pod in pods if len(pods) > 1 else ():
        own = pages[pod.uid]
        rivals = [one for one in pods if one is not pod and (None in (own, pages[one.uid]) or own == pages[one.uid])]
        if rivals and [one for one in (pod, *rivals) if port in one.ports] != [pod]:
            losers.append((pod, ", ".join(sorted(one.name for one in rivals)[:3])))
    return losers


def _url(workload: Workload) -> str | None:
    """Where the pod wants to be scraped, None if it does not. Raises ValueError with what is wrong."""
    if workload.metrics_url is not None:
        return workload.metrics_url
    notes = workload.annotations
    scrape = notes.get(SCRAPE, "").strip().lower()
    if scrape not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f'{SCRAPE} is {scrape[:63]!r}; "true" or "false" is expected')
    if scrape in FALSE_WORDS and (scrape or PORT not in notes):
        return None
    scheme, path = notes.get(SCHEME, "http").strip().lower() or "http", notes.get(PATH, "").strip() or "/metrics"
    if scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{SCHEME} is {scheme!r}; http or https is expected")
    if PORT in notes:
        text = notes[PORT].strip()
        port = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT)) else 0
        if not 0 < port <= _MAX_PORT:
            raise ValueError(f"{PORT} is {text!r}; a number from 1 to {_MAX_PORT} is expected")
    elif len(set(workload.ports)) == 1:
        port = workload.ports[0]
    else:
        raise ValueError(f"the pod declares {len(set(workload.ports))} ports; name one with {PORT}")
    if workload.address is None:
        raise ValueError("the pod has no address yet")
    host = f"[{workload.address}]" if ":" in workload.address else workload.address
    return f"{scheme}://{host}:{port}/{path.lstrip('/')}"


def _place(url: str) -> tuple[str, int]:
    """Host and port, so that two spellings of one place are one. Raises ValueError for a URL that is none."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().removesuffix(".")
    host = "127.0.0.1" if host == "localhost" else host
    with suppress(ValueError):  # a name is no address
        address = ipaddress.ip_address(host)
        host = str(getattr(address, "ipv4_mapped", None) or address)
    return host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def _page(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return unquote(parts.path) or "/", parts.query
