"""The arena: scenarios x policies x seeds, on the simulator or on real cgroups, judged by one score."""
