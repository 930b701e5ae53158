"""The collector's thin edges: where workloads come from, metrics pages, and the kernel's files."""
