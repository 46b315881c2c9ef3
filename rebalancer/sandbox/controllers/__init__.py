"""What a cluster does by itself: controllers, a scheduler on the production engine, kubelets.

loop         the one thread they all run in: events, work, timers
scheduler    places Pending pods; live_state keeps the engine's state in step with the store
kubelet      makes pods Ready, ends deleted ones

Owners collect their dependents in the store itself (`registry.delete`). Jobs have no controller:
a Job's pod that is deleted does not come back.
"""
