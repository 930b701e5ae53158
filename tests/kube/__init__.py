"""Tests with a real Kubernetes API server (marker `kube`), and with real pods where the cluster runs some."""
