"""Measures the arena's simulated node: cycles of 5 s per second and core. `python -m lab.bench_arena_node`."""

import argparse
import sys
import time

from lab.arena.node import Node, Nodes
from lab.arena.scenario import Scenario, ServicePod, SpinnerPod, constant

TOGETHER = 64
CYCLE_SECONDS = 5.0
WEIGHTS = ({"api": 1000, "web": 316, "job": 100}, {"api": 100, "web": 100, "job": 100})


def three_classes() -> Scenario:
    """Two cores, 300 requests a second of two services in sum, and four batch threads."""
    return Scenario(
        name="three-classes",
        text="two services beside batch",
        pods=(
            ServicePod(
                name="api", cls="latency-critical", request_millicpu=500, rate=constant(200.0), work_seconds=0.005
            ),
            ServicePod(name="web", cls="default", request_millicpu=500, rate=constant(100.0), work_seconds=0.004),
            SpinnerPod(name="job", cls="batch", request_millicpu=1000, processes=constant(4.0)),
        ),
    )


def cycles_per_second(nodes: Nodes | Node, count: int, seconds: float) -> float:
    """Cycles of all nodes in a second of processor time, with weights that change every tenth cycle."""
    start, cycles = time.process_time(), 0
    while time.process_time() - start < seconds:
        for turn in range(10):
            if turn == 0:
                weights = WEIGHTS[cycles // 10 % 2]
                if isinstance(nodes, Node):
                    nodes.set_weights(weights)
                else:
                    for node in range(count):
                        nodes.set_weights(node, weights)
            nodes.advance(CYCLE_SECONDS)
            cycles += 1
    return cycles * count / (time.process_time() - start)


def main() -> int:
    """Prints how long the first call took, then both rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each (default: 3)")
    args = parser.parse_args()
    began = time.perf_counter()
    one = Node(three_classes(), 1)
    one.advance(CYCLE_SECONDS)
    say = sys.stdout.write
    say(f"first window            {time.perf_counter() - began:10.3f} s (compiles if nothing is cached)\n")
    say(f"one node                {cycles_per_second(one, 1, args.seconds):10,.0f} cycles/s per core\n")
    many = Nodes([three_classes()] * TOGETHER, range(TOGETHER))
    say(f"{TOGETHER} nodes together       {cycles_per_second(many, TOGETHER, args.seconds):10,.0f} cycles/s per core\n")
    say(f"again: {' '.join(['python -m lab.bench_arena_node', *sys.argv[1:]])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
