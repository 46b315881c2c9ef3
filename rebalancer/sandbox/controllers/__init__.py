"""What a cluster does by itself: controllers, a scheduler on the production engine, kubelets.

loop         the one thread they all run in: events, work, timers
pods         what several of them know of pods and owners
workloads/   owners that make pods
disruption   the status of PodDisruptionBudgets
scheduler    places Pending pods; live_state keeps the engine's state in step with the store
volumes      binds and provisions claims
kubelet      makes pods Ready, ends deleted ones
nodes        taints of nodes that are cordoned or silent, and what becomes of their pods

Owners collect their dependents in the store itself (`registry.deletion`). Jobs have no controller:
a Job's pod that is deleted does not come back.
"""
