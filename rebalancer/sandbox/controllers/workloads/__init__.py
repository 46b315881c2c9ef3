"""Owners that make pods: DaemonSets, Deployments, ReplicaSets, StatefulSets."""
