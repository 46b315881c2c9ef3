"""A descheduler policy (DeschedulerPolicy, descheduler/v1alpha2) as settings of this tool.

Fields with a counterpart here are translated. All others that the policy sets are listed with the reason.
Field names follow the Go types of kubernetes-sigs/descheduler (pkg/api/v1alpha2, DefaultEvictorArgs and
RemovePodsViolatingTopologySpreadConstraintArgs). Upper and lower case are not distinguished, as in its
decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from rebalancer.errors import UserError
from rebalancer.settings.loading import read_file, read_text

TOPOLOGY = "RemovePodsViolatingTopologySpreadConstraint"
EVICTOR = "DefaultEvictor"
_API = "descheduler/v1alpha2"
_KIND = "DeschedulerPolicy"
_EXTENSIONS = ("presort", "sort", "deschedule", "balance", "filter", "preevictionfilter")


class Note(Struct, frozen=True):
    """A field without a counterpart: its place in the policy, and why it is not translated."""

    path: str
    text: str


class Translation(Struct, frozen=True):
    """The translated policy: `settings` as in the settings file, without defaults, and `notes` on the
    rest."""

    settings: dict[str, Any]
    notes: tuple[Note, ...]


class To(Struct, frozen=True):
    """A field with a counterpart: the dotted path of the setting, and how the value is converted."""

    path: str
    how: Callable[[Any], Any] = lambda value: value
    note: str = ""


class No(Struct, frozen=True):
    """A field without a counterpart. `when`: values that ask for what this tool does anyway; they need no
    note."""

    why: str
    when: tuple[Any, ...] = ()


_METRICS = "plans do not depend on actual utilisation"
_NODES = "every node that a constraint counts takes part: leaving some out would change the skew"
_WORKLOAD = "nothing would put such a pod elsewhere: it is never evicted"

POLICY: dict[str, To | No] = {
    "maxNoOfPodsToEvictPerNode": To("evictions.maxPerNode"),
    "maxNoOfPodsToEvictPerNamespace": To("evictions.maxPerNamespace"),
    "maxNoOfPodsToEvictTotal": To("evictions.maxTotal"),
    "nodeSelector": No(_NODES),
    "evictionFailureEventNotification": To("evictions.events", lambda yes: "all" if yes else "evictions"),
    "gracePeriodSeconds": To("evictions.gracePeriod", lambda seconds: f"{max(1, seconds)}s"),
    "metricsCollector": No(_METRICS),
    "metricsProviders": No(_METRICS),
}
"""The policy's own fields, beside `profiles`."""

EVICTOR_ARGS: dict[str, To | No] = {
    "labelSelector": To("scope.labelSelector"),
    "namespaceLabelSelector": To("scope.namespaceSelector"),
    "minReplicas": To("policy.minReplicas"),
    "minPodAge": To("policy.minPodAge"),
    "evictLocalStoragePods": To("policy.evictLocalStoragePods"),
    "evictSystemCriticalPods": To("policy.evictSystemCriticalPods"),
    "ignorePvcPods": To("policy.protectPvcPods"),
    "ignorePodsWithoutPDB": To("policy.protectPodsWithoutPdb"),
    "evictDaemonSetPods": No(_WORKLOAD, when=(False,)),
    "evictFailedBarePods": No(_WORKLOAD, when=(False,)),
    "nodeFit": No("a node for the replacement is always proved by simulation", when=(True,)),
    "nodeSelector": No(_NODES),
    "noEvictionPolicy": No(
        "prefer-no-eviction binds here as long as policy.honorAnnotationsOf has descheduler",
        when=("Mandatory",),
    ),
}
"""DefaultEvictorArgs, beside `priorityThreshold` and `podProtections`."""

TOPOLOGY_ARGS: dict[str, To | No] = {
    "labelSelector": To("scope.labelSelector"),
    "includeSoftConstraints": To("planner.softConstraints", lambda yes: "predicted" if yes else "ignore"),
    "topologyBalanceNodeFit": No("a node for the replacement is always proved by simulation", when=(True,)),
}
"""RemovePodsViolatingTopologySpreadConstraintArgs, beside `namespaces` and `constraints`."""

DISABLED: dict[str, To | No] = {
    "PodsWithLocalStorage": To("policy.evictLocalStoragePods", lambda _: True),
    "SystemCriticalPods": To("policy.evictSystemCriticalPods", lambda _: True),
    "DaemonSetPods": No(_WORKLOAD),
    "FailedBarePods": No(_WORKLOAD),
}
"""podProtections.defaultDisabled: the protection that each name switches off."""

ENABLED: dict[str, To | No] = {
    "PodsWithPVC": To("policy.protectPvcPods", lambda _: True),
    "PodsWithoutPDB": To("policy.protectPodsWithoutPdb", lambda _: True),
    "PodsWithResourceClaims": To("policy.protectResourceClaimPods", lambda _: True),
    "PodsWithPDBBlockingSingleReplicaOwner": No("a budget that allows nothing is always kept"),
}
"""podProtections.extraEnabled: the protection that each name switches on."""


def read_policy(path: Path) -> dict[str, Any]:
    """The policy in a YAML or JSON file, or in a ConfigMap in such a file. Raises UserError."""
    document = read_file(path)
    if isinstance(document, dict) and document.get("kind") == "ConfigMap":
        texts = [t for t in map(str, (document.get("data") or {}).values()) if _KIND in t]
        document = read_text(texts[0], path) if texts else None
    found = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else (None, None)
    if found != (_API, _KIND):
        remedy = "rewrite it as v1alpha2 first: the descheduler's user guide shows the same in v1alpha2"
        raise UserError(
            f"{path}: {found[1]} of {found[0]} is no {_KIND} of {_API}",
            remedy if found[0] == "descheduler/v1alpha1" else "",
        )
    assert isinstance(document, dict)
    return document


def translate(policy: Mapping[str, Any]) -> Translation:
    """Translates a policy. Values are not checked here; `load_settings` does that."""
    made = _Maker()
    profiles: list[Mapping[str, Any]] = _get(policy, "profiles") or []
    rest = {k: v for k, v in policy.items() if k.lower() not in ("apiversion", "kind", "profiles")}
    made.fields(rest, POLICY, "")
    chosen = next((p for p in profiles if TOPOLOGY in set(_enabled(p))), None)
    if chosen is None:
        made.say("profiles", f"none enables {TOPOLOGY}, the one plugin that this tool stands in for")
    for i, profile in enumerate(profiles):
        if profile is chosen:
            _profile(made, profile, f"profiles[{i}]")
        else:
            made.say(f"profiles[{i}]", "only the first profile that balances topology spread is translated")
    return Translation(made.settings, tuple(made.notes))


def _profile(made: _Maker, profile: Mapping[str, Any], where: str) -> None:
    for plugin in dict.fromkeys(_enabled(profile)):
        if plugin not in (TOPOLOGY, EVICTOR):
            made.say(f"{where}.plugins: {plugin}", "not about topology spread: keep descheduler for it")
    for i, config in enumerate(_get(profile, "pluginConfig") or []):
        args = _get(config, "args") or {}
        at = f"{where}.pluginConfig[{i}].args"
        if config.get("name") == EVICTOR:
            _evictor(made, args, at)
        elif config.get("name") == TOPOLOGY:
            _topology(made, args, at)


def _evictor(made: _Maker, args: Mapping[str, Any], at: str) -> None:
    rest = {k: v for k, v in args.items() if k.lower() not in ("prioritythreshold", "podprotections")}
    made.fields(rest, EVICTOR_ARGS, at)
    threshold = _get(args, "priorityThreshold") or {}
    if threshold.get("value") is not None:
        made.put("policy.priorityThreshold", threshold["value"], f"{at}.priorityThreshold")
    if threshold.get("name"):
        made.put("policy.priorityThresholdClass", threshold["name"], f"{at}.priorityThreshold")
    protections = _get(args, "podProtections") or {}
    at = f"{at}.podProtections"
    for key, table in (("defaultDisabled", DISABLED), ("extraEnabled", ENABLED)):
        made.fields(dict.fromkeys(_get(protections, key) or (), True), table, f"{at}.{key}")
    if classes := ((protections.get("config") or {}).get("PodsWithPVC") or {}).get("protectedStorageClasses"):
        names = ", ".join(str(c.get("name")) for c in classes)
        made.say(f"{at}.config.PodsWithPVC", f"all pods with claims are protected, not those of {names} only")


def _topology(made: _Maker, args: Mapping[str, Any], at: str) -> None:
    rest = {k: v for k, v in args.items() if k.lower() not in ("namespaces", "constraints")}
    made.fields(rest, TOPOLOGY_ARGS, at)
    namespaces = _get(args, "namespaces") or {}
    for key in ("include", "exclude"):
        if namespaces.get(key):
            made.put(f"scope.namespaces.{key}", list(namespaces[key]), f"{at}.namespaces.{key}")
    constraints = _get(args, "constraints")
    if constraints is None:
        return
    soft = "predicted" if "ScheduleAnyway" in constraints else "ignore"
    made.put("planner.softConstraints", soft, f"{at}.constraints")
    if "DoNotSchedule" not in constraints:
        made.say(f"{at}.constraints", "hard constraints are always acted on")


def _enabled(profile: Mapping[str, Any]) -> Iterator[str]:
    plugins = _get(profile, "plugins") or {}
    for extension in _EXTENSIONS:
        yield from (_get(plugins, extension) or {}).get("enabled") or ()


def _get(mapping: Mapping[str, Any], key: str) -> Any:
    return next((v for k, v in mapping.items() if k.lower() == key.lower()), None)


class _Maker:
    """Collects settings and notes."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.notes: list[Note] = []

    def fields(self, values: Mapping[str, Any], table: Mapping[str, To | No], at: str) -> None:
        """Translates every field of a mapping by a table."""
        known = {k.lower(): rule for k, rule in table.items()}
        for key, value in values.items():
            path = f"{at}.{key}" if at else key
            rule = known.get(key.lower())
            if rule is None:
                self.say(path, "not a field of this policy version that is known here")
            elif isinstance(rule, No):
                if value not in rule.when:
                    self.say(path, rule.why)
            elif value is not None:
                self.put(rule.path, rule.how(value), path)

    def put(self, dotted: str, value: Any, path: str) -> None:
        """Sets a setting. If it has another value already, that becomes a note; two selectors are joined."""
        *groups, key = dotted.split(".")
        target = self.settings
        for group in groups:
            target = target.setdefault(group, {})
        if key in target and target[key] != value:
            if isinstance(value, dict):
                value = _joined(target[key], value)
            else:
                self.say(path, f"{dotted} is {target[key]} already, by another field")
                return
        target[key] = value

    def say(self, path: str, text: str) -> None:
        """Adds a note."""
        self.notes.append(Note(path, text))


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A selector that requires both. Two values of one label become expressions."""
    expressions = [*(one.get("matchExpressions") or ()), *(other.get("matchExpressions") or ())]
    labels = dict(one.get("matchLabels") or {})
    for key, value in (other.get("matchLabels") or {}).items():
        if labels.setdefault(key, value) != value:
            expressions.append({"key": key, "operator": "In", "values": [value]})
    return {k: v for k, v in (("matchLabels", labels), ("matchExpressions", expressions)) if v}
