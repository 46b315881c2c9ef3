"""Whole runs against any real cluster, which `KUBECONFIG` names."""
