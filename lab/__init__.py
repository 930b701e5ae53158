"""Experiments around the loop: real workloads, scenarios, the simulated node, benchmarks and reports."""
