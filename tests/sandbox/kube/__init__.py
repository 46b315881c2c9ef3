"""Tests of `rebalancer.kube` over HTTP."""
