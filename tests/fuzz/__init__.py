"""Fuzzing of the collector's core: a few examples of each target in the test run, as many as fit by `make fuzz`."""
