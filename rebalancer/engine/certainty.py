"""Why a prediction for a pod cannot be certain, and what all predictions assume.

A pod's *feasible nodes* are certain unless one of these sentences applies; which of them the scheduler picks
never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import json

from rebalancer.admission import LATEST, PROXIES, enforced, proxies, unsafe_sysctls, violations_of
from rebalancer.engine.config import DEFAULT_CONFIG, Profile
from rebalancer.engine.plugins.node_volume_limits import hangs_on_detaching, limits_volumes
from rebalancer.engine.state.cluster import ClusterState
from rebalancer.engine.state.storage import claim_volumes, fully_bound, reads
from rebalancer.engine.template_rules import otherwise, peculiarities
from rebalancer.engine.version import (
    ATTACHMENTS,
    EMPTY_SELECTORS,
    FIRST,
    GATED_NOMINATIONS,
    LAST,
    MISSING_DRIVERS,
    NEGATED_NAMESPACES,
    NODE_WITHOUT_LIMITS,
    OF_RESIZES,
    POD_LEVEL_RESOURCES,
    SIDECAR_PORTS,
    Change,
    ServerVersion,
)
from rebalancer.model.pod import PodTemplate, Requests, add, at_least
from rebalancer.model.snapshot import Snapshot, consequence
from rebalancer.model.workload import Workload
from rebalancer.spread.constraint import SELECTING

VOLUME_KINDS = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver")
ATTACHED, CAPACITY = "VolumeAttachment", "CSIStorageCapacity"
"""Of these, where the number of volumes is limited; and where new ones are made only as there is room."""
DECISIVE_KINDS = ("PodDisruptionBudget", "ResourceQuota", "Deployment")
"""Kinds that may stop an eviction or a replacement, whatever the scheduler would do."""
_SKEW = 3
"""Minor releases that a kubelet may be older than the API server."""
_SIZING, _DEVICES = "VerticalPodAutoscaler", "DeviceClass"
_UNSEEN = (
    "pods of other namespaces are not seen, nor the room and ports that they take and whom they keep away, "
    "so that no move is certain"
)


def uncertainties(state: ClusterState, profile: Profile, template: PodTemplate) -> tuple[str, ...]:
    """Sentences; none = the filter's verdict is certain."""
    return (
        *_scheduler(state, profile, template),
        *_version(state, template),
        *_pod(template),
        *_on_nodes(state, template),
        *_admitted(state, template),
        *_injected(state, template),
        *_smaller(state, template),
        *_hidden(state, profile, template),
    )


def doubtful_namespaces(state: ClusterState, template: PodTemplate) -> bool:
    """Whether a required term between the pod and others hangs on labels of namespaces that were not read."""
    if reads(state.snapshot, "Namespace"):
        return False
    terms = state.terms.of(template)
    if any(t.by_labels for t, _ in (*terms.required, *terms.required_anti)):
        return True
    # Pods that are there keep others away by terms of their own.
    return any(
        template.namespace not in t.namespaces
        and t.selector is not None
        and t.selector.matches(template.labels)
        for t in state.terms.by_labels["required anti"]
    )


def unread(state: ClusterState) -> tuple[str, ...]:
    """What a whole plan rests on because a kind was not read, in sentences."""
    snapshot, by_labels = state.snapshot, state.terms.by_labels
    kinds = [k for k in DECISIVE_KINDS if not reads(snapshot, k)]
    if not reads(snapshot, "Namespace") and (by_labels["required"] or by_labels["required anti"]):
        kinds.append("Namespace")
    only = ", ".join(sorted(snapshot.read_namespaces))
    return (
        *((f"of namespaced objects only those in {only} were read: {_UNSEEN}",) if only else ()),
        *(f"{k}s were not read: {consequence(k)}" for k in kinds),
    )


def assumptions(state: ClusterState, profile: Profile) -> tuple[str, ...]:
    """What all predictions of a profile rest on, in sentences."""
    version, name = state.version, profile.scheduler_name
    given = "the default profile of kube-scheduler" if state.config is DEFAULT_CONFIG else "the given profile"
    return (
        f"scheduler profile {name!r}: {given}",
        *([] if profile.keeps_spread else [f"scheduler profile {name!r} keeps no hard spread constraint"]),
        newer(version)
        or f"server version {version.text or 'unknown'}: rules of kube-scheduler {version.followed}",
    )


def newer(version: ServerVersion) -> str:
    """What every prediction assumes where the server is newer than all known rules, "" where it is not."""
    if not version.newer_by:
        return ""
    return (
        f"server version {version.text} is newer than {version.followed}, the last whose rules are known: "
        "what has changed since is not known, so that a move is certain only where the scheduler's own "
        "decisions have shown all that it rests on"
    )


def older(version: ServerVersion) -> str:
    """Why no prediction is certain where the server is older than all known rules, "" where it is not."""
    if not version.text or version.supported or version.newer_by:
        return ""
    known = f"{FIRST[0]}.{FIRST[1]}–{LAST[0]}.{LAST[1]}"
    return f"server version {version.text} is outside {known}, whose rules are known"


def _scheduler(state: ClusterState, profile: Profile, template: PodTemplate) -> Iterator[str]:
    for url in state.config.extenders:
        yield f"the scheduler also asks the extender {url}"
    for name in profile.unknown:
        yield f"the scheduler profile {profile.scheduler_name!r} runs the unknown plugin {name}"
    if template.scheduler_name != profile.scheduler_name:
        yield f"the pod is placed by another scheduler, {template.scheduler_name!r}"
    # A version that is newer concerns every pod alike, so it is an assumption; the planner decides about it.
    if why := older(state.version):
        yield why


def _version(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    doubts = {MISSING_DRIVERS: "its feature gate is on"} if not state.version.has(MISSING_DRIVERS) else {}
    for change, why in (doubts | state.doubts).items():
        if _hangs_on(change, state, template):
            with_it = "with" if state.version.has(change) else "without"
            yield (
                f"versions of kube-scheduler differ here: {change.what} (kubernetes {change.source}); "
                f"predicted {with_it} that, but {why}"
            )


def _hangs_on(change: Change, state: ClusterState, template: PodTemplate) -> bool:
    """Whether the filter's verdict on the pod may be another one with, or without, the change."""
    if change is NEGATED_NAMESPACES:
        terms = state.terms.of(template)
        return any(term.negated for term, _ in (*terms.required, *terms.required_anti))
    if change is SIDECAR_PORTS:
        near = change in state.peculiar or change in peculiarities(template)
        return bool(template.host_ports) and near
    if change is POD_LEVEL_RESOURCES:
        return bool(template.pod_level) or change in state.peculiar
    if change is NODE_WITHOUT_LIMITS:
        return template.attaches and any(state.table.answers(limits_volumes))
    if change is ATTACHMENTS:
        return hangs_on_detaching(state, template)
    if change in OF_RESIZES:
        return any(_decides(state, r, amount, otherwise(change, r)) for r, amount in state.asks(template))
    if change is MISSING_DRIVERS:
        # An API server keeps the field only where the gate is on: before, too, the scheduler may have it.
        return any(map(state.storage.wants_driver, state.storage.attachments(template)))
    if change is GATED_NOMINATIONS:
        return change in state.peculiar
    if change is EMPTY_SELECTORS:
        hard = state.constraints(template, hard=True)
        return any(c.selector is not None and not c.selector.requirements for c in hard)
    raise AssertionError(f"no test for {change.what}")


def _decides(state: ClusterState, resource: str, amount: int, otherwise: str) -> bool:
    """Whether a node has room, or has none, if its pods take `otherwise` more."""
    if otherwise not in state.requested:
        return False
    free = state.left(resource)
    return bool(((free >= amount) != (free - state.requested[otherwise] >= amount)).any())


def _pod(template: PodTemplate) -> Iterator[str]:
    if template.scheduling_gates:
        yield f"the pod is held by scheduling gates: {', '.join(template.scheduling_gates)}"
    if template.resource_claims:
        yield "the pod uses resource claims, which are not modelled"
    if template.migrates:
        yield "the pod is a virtual machine, which is on both nodes while it moves"
    if template.autosized:
        yield "a VerticalPodAutoscaler may set the pod's requests anew when it is made"
    if template.unsettled:
        yield (
            "the pod has a priority, node selector, affinity, constraints, tolerations or labels that "
            f"something selects by, which neither its template asks for nor {template.unsettled}"
        )
    # A node lists up to fifty of its images, and names them otherwise than pods do.
    if any(c.pull == "Never" for c in template.every_container) or any(v.local for v in template.volumes):
        yield "the pod has an image that is never pulled (Never), and not all nodes may have it"
    if template.scheduling_group:
        yield f"the pod is in group {template.scheduling_group}, which the scheduler places as a whole"
    if template.restarts_with:
        yield "the pod is in a group of a LeaderWorkerSet, all of whose pods may be made anew with it"
    if template.node_features:
        yield f"the pod needs features that nodes declare: {', '.join(template.node_features)}"
    if any(t.operator in ("Lt", "Gt") for t in template.tolerations):
        yield "the pod has tolerations with Lt or Gt, which depend on a feature gate"


def _on_nodes(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    """What has to be set up on a node, which no node says of itself."""
    if unsafe := unsafe_sysctls(template.sysctls, state.version.minor[1] - _SKEW):
        yield f"the pod sets {unsafe}, and not all kubelets may allow that"
    if template.local_profiles:
        yield "the pod has a profile of its node (Localhost), and not all nodes may have it"


def _admitted(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    """Pod Security judges the pod with what admission adds to its owner's template."""
    namespace = state.snapshot.namespaces.get(template.namespace)
    minor = state.version.minor[1] if state.version.supported else LATEST
    level, version = enforced(namespace.metadata.labels, minor) if namespace is not None else ("", minor)
    if not level or (owner := _owner(state, template)) is None or owner.template is None:
        return
    if found := violations_of(template.secured(owner.security), level, version):
        yield (
            f"namespace {template.namespace} enforces Pod Security level {level}, which the pod does not "
            f"keep with what admission adds to it ({found[0]})"
        )


def _injected(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    """Pods that were made before a mesh was asked for have no proxy, and their replacements have one."""
    for name in sorted(_proxies(state, template)[0]):
        yield f"the pod or its namespace asks for a mesh's {name}, which the pod lacks and a new one may get"


def _proxies(state: ClusterState, template: PodTemplate) -> tuple[set[str], Requests]:
    """Those that are asked for and the pod lacks; and what those take that it has, and nobody asks for."""
    namespace, owner = state.snapshot.namespaces.get(template.namespace), _owner(state, template)
    if namespace is None or owner is None or template.host_network:
        return set(), {}
    there, noted = namespace.metadata, _annotations(owner.security)
    asked = proxies({**there.annotations, **there.labels, **noted, **template.labels})
    own = {c.name for c in owner.template.every_container} if owner.template is not None else set[str]()
    left: Requests = {}
    for c in template.every_container:
        if c.name in PROXIES.keys() - asked - own:
            add(left, c.requests)
    return asked - {c.name for c in template.every_container}, left


@lru_cache(1024)
def _annotations(asked: bytes) -> Mapping[str, str]:
    """Of a template, as far as Pod Security reads it."""
    return (json.decode(asked or b"{}").get("metadata") or {}).get("annotations") or {}


def _owner(state: ClusterState, template: PodTemplate) -> Workload | None:
    _, kind, name = template.controller or ("", "", "")
    return state.snapshot.workloads_by_name.get((kind, template.namespace, name))


def _smaller(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    """A pod that comes back as its owner's template or youngest pod has it, or without a mesh's proxy, may go
    to nodes that are too full for it now."""
    may_lack = dict(template.may_lack)
    at_least(may_lack, _proxies(state, template)[1])
    open_ = state.table.admitted(template) if may_lack else state.table.none
    for r, less in may_lack.items():
        if r not in state.requested:
            continue
        lacks = template.requests.get(r, 0) - state.left(r)
        if (open_ & (lacks > 0) & (lacks <= less)).any():
            yield f"the pod takes more {r} than a new one may, for which more nodes have room"


def _hidden(state: ClusterState, profile: Profile, template: PodTemplate) -> Iterator[str]:
    snapshot = state.snapshot
    if snapshot.read_namespaces:
        yield _UNSEEN

    extended = sorted(r for r, n in template.requests.items() if n > 0 and "/" in r)
    classes = {r: c.metadata.name for c in snapshot.device_classes for r in c.resources}
    if extended and _DEVICES in snapshot.refused:
        yield f"{_DEVICES}es cannot be read: {consequence(_DEVICES)}"
    untolerated = {r for r in extended if not any(t.key in ("", r) for t in template.tolerations)}
    for r in extended:
        if r in classes:
            yield f"{r} may be served by claims of device class {classes[r]}, which are not modelled"
        if r in untolerated and r in state.table.taint_keys:
            yield f"nodes are tainted {r}, and ExtendedResourceToleration may have new pods tolerate that"
    if _SIZING in snapshot.refused:
        yield f"{_SIZING}s cannot be read: {consequence(_SIZING)}"

    yield from _volumes(state, template)
    if doubtful_namespaces(state, template):
        yield "affinity between the pod and others selects namespaces by label, and Namespaces were not read"
    if not template.spread and profile.hard_defaults and (kinds := _unread(snapshot, *SELECTING)):
        yield f"default spread constraints depend on kinds that were not read: {', '.join(kinds)}"


def _volumes(state: ClusterState, template: PodTemplate) -> Iterator[str]:
    volumes, counts = list(claim_volumes(template)), state.version.has(ATTACHMENTS)
    kinds = _unread(state.snapshot, *VOLUME_KINDS) if volumes else []
    if volumes and counts and _unread(state.snapshot, ATTACHED):
        limited = not state.storage.limited.isdisjoint(state.storage.attachments(template))
        kinds += [ATTACHED] if limited else []
    mounted = [(v, state.storage.claim_of(template.namespace, v)) for v in volumes]
    claims = [c for _, c in mounted if c is not None]
    unnamed = any(v.kind == "ephemeral" and not v.claim for v in template.volumes)
    if unnamed or any(v.anew and c is not None and state.storage.scarce(c) for v, c in mounted):
        yield "the pod's ephemeral volumes are made only after it"
    if any(not fully_bound(c) and state.storage.takes_room(c) for c in claims):
        kinds += _unread(state.snapshot, CAPACITY)
    if kinds:
        yield f"the pod mounts claims, and these kinds were not read: {', '.join(kinds)}"
    for claim in claims:
        found = state.storage.volume(claim.spec.volume_name)
        if found is not None and found.spec.in_tree:
            yield f"volume {found.metadata.name} is of an in-tree plugin, which CSI migration may translate"
    if counts and hangs_on_detaching(state, template):
        yield "volumes that no pod there uses any more take the last places of a node until they are detached"


def _unread(snapshot: Snapshot, *kinds: str) -> list[str]:
    return [k for k in kinds if not reads(snapshot, k)]
