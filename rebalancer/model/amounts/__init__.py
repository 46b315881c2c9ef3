"""Amounts of resources: Kubernetes quantities as integers, and what a pod requests in all."""
