"""The API server: connection, lists, evictions, and what can go wrong with them.

Bytes come from the official client's transport and are decoded by `rebalancer.model`; the client's generated
models are not used. Everything that fails raises `rebalancer.kube.errors.KubeError`.
"""
