"""The texts of the kernel's files, as it writes them, and damaged."""

from hypothesis import strategies as st

from tests.fuzz.damage import DAMAGES, damaged, mostly, one_in

COUNTERS = st.one_of(st.integers(0, 10**9), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1, 10**20 - 1]))
_PERCENT = st.sampled_from(["0.00", "1.50", "100.00", "nan", "-1", "1e400"])


@st.composite
def _keyed(draw, keys):
    return [f"{key} {draw(COUNTERS)}" for key in draw(st.permutations(keys))]


@st.composite
def _pressure(draw):
    lines = []
    for kind in draw(st.sampled_from([("some", "full"), ("some",), ("full",), ("full", "some")])):
        averages = " ".join(f"{name}={draw(_PERCENT)}" for name in ("avg10", "avg60", "avg300"))
        lines.append(f"{kind} {averages} total={draw(COUNTERS)}")
    return lines


@st.composite
def _proc_stat(draw):
    fields = draw(st.integers(7, 10))
    lines = [f"cpu  {' '.join(str(draw(COUNTERS)) for _ in range(fields))}"]
    lines += [f"cpu{number} 1 2 3 4 5 6 7 8 9 10" for number in range(draw(st.integers(0, 3)))]
    return [*lines, f"ctxt {draw(COUNTERS)}", f"procs_running {draw(COUNTERS)}"]


@st.composite
def _schedstat(draw):
    lines = [f"version {draw(st.integers(14, 18))}", "timestamp 4294892297"]
    for number in range(draw(st.integers(0, 3))):
        lines += [f"cpu{number} 0 0 1 1 1 1 5 {draw(COUNTERS)} 9", "domain0 3 0 0 0"]
    return lines


_WORDS = st.lists(COUNTERS.map(str), max_size=4).map(" ".join)
_NUMBER = st.one_of(COUNTERS.map(str), st.sampled_from(["0", "1", "100", "10000", "10001", "max"]))
_CONTROLLERS = st.lists(st.sampled_from(["cpu", "cpuset", "io", "memory"]), max_size=3).map(" ".join)

KERNEL_LINES = {
    "cpu.stat": _keyed(("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")),
    "cpu.pressure": _pressure(),
    "cpu.weight": _NUMBER.map(lambda text: [text]),
    "cpu.idle": st.sampled_from([["0"], ["1"], ["2"], []]),
    "cpu.max": st.tuples(_NUMBER, _NUMBER).map(lambda words: [" ".join(words)]),
    "memory.current": _NUMBER.map(lambda text: [text]),
    "cgroup.threads": st.lists(COUNTERS.map(str), max_size=4),
    "cgroup.subtree_control": _CONTROLLERS.map(lambda text: [text]),
    "stat": _proc_stat(),
    "schedstat": _schedstat(),
    "loadavg": st.tuples(_NUMBER, _NUMBER).map(lambda words: [f"0.1 0.2 0.3 {'/'.join(words)} 4711"]),
    "pressure/cpu": _pressure(),
    "task/schedstat": _WORDS.map(lambda text: [text]),
}
"""The lines of each kernel file, as the kernel writes them."""


@st.composite
def kernel_text(draw, name, damage_one_in=8):
    """The text of one file, at times damaged, as `hostfs.files` reads it."""
    lines = draw(KERNEL_LINES[name])
    if draw(one_in(damage_one_in)):
        lines = damaged(lines, draw(DAMAGES))
    return "".join(f"{line}\n" for line in lines)


KERNEL_TEXTS = st.sampled_from(sorted(KERNEL_LINES)).flatmap(
    lambda name: st.tuples(st.just(name), mostly(kernel_text(name, 2), st.text(max_size=40)))
)
