"""Real workloads, each a process of its own: `python -m lab.workloads.<api|batch|monitor|loadgen> --help`.

Standard library and `prometheus_client` only, nothing of the project: the same files run beside the demo and inside a
node's pods. Each writes one JSON line to stdout once it is ready, `{"ready": true, "port": N, "pid": N}`, and ends on
SIGTERM with exit code 0 within a second. Bad flags or a taken port: one line on stderr, exit code 2 or 1.
The formats of the record files are documented in `lab/latency_records.py`, which reads them.
"""
