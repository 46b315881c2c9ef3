"""Annotations that forbid, allow or prefer, and whose word counts."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from rebalancer.model.pod import DELETION_COST, ROOM
from rebalancer.model.reason import ReasonCode
from rebalancer.policy.annotations import (
    BEING_EVICTED,
    EVICTION_WORDS,
    FOR_RUN,
    LOCAL_VOLUMES,
    METHOD,
    PAUSE,
    PAUSE_DOMAIN,
    ROLLOUTS,
    SCALE_IN,
    SCALE_IN_WORDS,
    Words,
    preference,
    unclear,
)
from rebalancer.policy.evictable import STEERING, Evictable, steering
from rebalancer.policy.options import PolicyOptions
from tests.support.build import deployment, node, snapshot
from tests.support.scheduler.plain import Json
from tests.unit.findings.found import named, zones
from tests.unit.policy.judged import cluster, code, judged, merged, patched, web
from tests.unit.policy.test_evictable import namespace

OWN = "rebalancer.io/evict"
PREFER_NO = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
EVICT = "descheduler.alpha.kubernetes.io/evict"
DISRUPT = "karpenter.sh/do-not-disrupt"
EVICT_KARPENTER = "karpenter.sh/do-not-evict"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KINDS = {"pod": "Pod", "owner": "ReplicaSet", "deployment": "Deployment", "namespace": "Namespace"}


def said(**where: dict[str, str]) -> list[Json]:
    """A Deployment of two pods in a namespace, with annotations there."""
    things = patched("Pod", {}, deployment("web").placed({"a-0": 2}), namespace())
    for place, words in where.items():
        things = [
            merged(o, {"metadata": {"annotations": words}}) if o["kind"] == KINDS[place] else o
            for o in things
        ]
    return things


BY_KEY: list[tuple[str, dict[str, str], bool]] = [
    ("own key, false", {OWN: "false"}, False),
    ("own key, never", {OWN: "never"}, False),
    ("own key, in capitals", {OWN: "FALSE"}, False),
    ("own key, true", {OWN: "true"}, True),
    ("own key, avoid: last, not never", {OWN: "avoid"}, True),
    ("own key, a word that means nothing", {OWN: "perhaps"}, False),
    ("own key, a no with a space", {OWN: " false "}, False),
    ("own key, a yes with a space", {OWN: "true "}, True),
    ("own key, nothing", {OWN: ""}, False),
    ("an unclear word above a foreign leave", {OWN: "no", EVICT: "true"}, False),
    ("descheduler must not, which its own reading takes for a leave", {EVICT: "false"}, False),
    ("descheduler's leave beside another tool's unclear word", {EVICT: "true", DISRUPT: "30m"}, False),
    ("descheduler prefers not to, without a value", {PREFER_NO: ""}, False),
    ("descheduler prefers not to", {PREFER_NO: "true"}, False),
    ("descheduler does not prefer not to", {PREFER_NO: "false"}, True),
    ("descheduler may", {EVICT: ""}, True),
    ("descheduler may and prefers not to", {EVICT: "true", PREFER_NO: "true"}, False),
    ("karpenter must not", {DISRUPT: "true"}, False),
    ("karpenter may", {DISRUPT: "false"}, True),
    ("karpenter's older key", {EVICT_KARPENTER: "true"}, False),
    ("the autoscaler must not", {SAFE: "false"}, False),
    ("the autoscaler may", {SAFE: "true"}, True),
    ("own key above a foreign one", {OWN: "true", DISRUPT: "true", SAFE: "false"}, True),
    ("own ban above a foreign leave", {OWN: "false", EVICT: "true"}, False),
    ("a way of moving that nobody knows", {METHOD: "replace-first"}, False),
    ("one that nobody knows, above our own yes", {METHOD: "", OWN: "true"}, False),
    ("a way of moving that is known", {METHOD: " ReplaceFirst"}, True),
    ("somebody else's", {"example.com/evict": "false"}, True),
]


@pytest.mark.parametrize("place", KINDS)
@pytest.mark.parametrize(("annotations", "free"), [c[1:] for c in BY_KEY], ids=[c[0] for c in BY_KEY])
def test_a_key_says_the_same_wherever_it_stands(place: str, annotations: dict[str, str], free: bool) -> None:
    assert code(said(**{place: annotations})) is (None if free else ReasonCode.ANNOTATION)


@pytest.mark.parametrize("place", KINDS)
@pytest.mark.parametrize(
    "labels", [{OWN: "false"}, {OWN: "off"}, {PAUSE: "true"}, {PAUSE: "we look"}], ids=str
)
def test_a_no_or_a_pause_that_is_written_as_a_label_forbids(place: str, labels: dict[str, str]) -> None:
    things = patched(KINDS[place], {"metadata": {"labels": labels}}, *said())
    assert code(things) is ReasonCode.ANNOTATION


@pytest.mark.parametrize("place", KINDS)
def test_a_pause_forbids_also_where_none_is_read(place: str) -> None:
    expected = ReasonCode.PAUSED_BY_ANNOTATION if place == "namespace" else ReasonCode.ANNOTATION
    assert code(said(**{place: {PAUSE: "we look"}})) is expected
    assert code(said(**{place: {PAUSE: "false"}})) is None


@pytest.mark.parametrize("place", ["deployment", "namespace"])
@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("annotations", "rebalancer.io/evikt"),
        ("annotations", "rebalancer.io/Evict"),
        ("labels", OWN),
        ("labels", PAUSE),
    ],
)
def test_a_key_that_looks_like_ours_is_a_finding(place: str, part: str, key: str) -> None:
    things = patched(KINDS[place], {"metadata": {part: {key: "false"}}}, *said())
    assert [f.message.split()[0] for f in named("unclear-annotation", zones(), *things)] == [key]


@pytest.mark.parametrize(
    ("key", "value", "place", "read"),
    [
        (METHOD, "replaceFirst", "pod", False),
        (METHOD, "replaceFirst", "namespace", False),
        (METHOD, "replaceFirst", "deployment", True),
        (METHOD, "replaceFirst", "owner", True),
        (SCALE_IN, "spread", "pod", False),
        (SCALE_IN, "spread", "namespace", True),
    ],
)
def test_a_word_where_nobody_reads_it_is_a_finding(key: str, value: str, place: str, read: bool) -> None:
    told = [f.message for f in named("unclear-annotation", zones(), *said(**{place: {key: value}}))]
    whose = "2 of its pods: " if place == "pod" else ""
    assert told == ([] if read else [f"{whose}{key}: {value!r} says nothing here"])
    assert code(said(**{place: {key: value}})) is None


def test_the_label_that_chooses_namespaces_for_the_policies_is_no_finding() -> None:
    things = patched("Namespace", {"metadata": {"labels": {"rebalancer.io/rollouts": "spread"}}}, *said())
    assert not named("unclear-annotation", zones(), *things)


@pytest.mark.parametrize(("said", "goes"), [("false", False), ("true", True), ("perhaps", False)])
def test_what_a_node_says_holds_for_its_pods(said: str, goes: bool) -> None:
    there = node("a-0").zone("a").annotated({OWN: said})
    made = snapshot(there, node("b-0").zone("b"), web())
    on_it, elsewhere = (
        next(p for p in made.pods if (p.node_name == "a-0") is there) for there in (True, False)
    )
    evictable = Evictable(made, PolicyOptions())
    reason = evictable.why_not(on_it)
    assert (reason is None) is goes
    assert reason is None or (reason.code is ReasonCode.ANNOTATION and "node a-0 carries" in reason.message)
    assert evictable.why_not(elsewhere) is None


@pytest.mark.parametrize(
    ("source", "annotations"),
    [
        ("descheduler", {PREFER_NO: "true"}),
        ("karpenter", {DISRUPT: "true"}),
        ("karpenter", {EVICT_KARPENTER: "true"}),
        ("cluster-autoscaler", {SAFE: "false"}),
    ],
)
def test_a_foreign_tools_keys_can_be_switched_off(source: Any, annotations: dict[str, str]) -> None:
    every = PolicyOptions().foreign_annotations
    without = PolicyOptions(foreign_annotations=tuple(s for s in every if s != source))
    alone = PolicyOptions(foreign_annotations=(source,))
    assert code(said(pod=annotations), options=without) is None
    assert code(said(pod=annotations), options=alone) is ReasonCode.ANNOTATION


NO, YES = {OWN: "false"}, {OWN: "true"}
WORDS: list[tuple[str, dict[str, dict[str, str]], str]] = [
    ("the owner's no beside the pod's yes", {"pod": YES, "owner": NO}, "ReplicaSet web"),
    ("the pod's no beside its owner's yes", {"pod": NO, "owner": YES}, "the pod"),
    ("the Deployment's no beside the pod's yes", {"pod": YES, "deployment": NO}, "Deployment web"),
    ("the Deployment's no beside its ReplicaSet's copy", {"owner": YES, "deployment": NO}, "Deployment web"),
    (
        "the Deployment's no beside the namespace's yes",
        {"deployment": NO, "namespace": YES},
        "Deployment web",
    ),
    (
        "the namespace's no beside the Deployment's yes",
        {"deployment": YES, "namespace": NO},
        "namespace default",
    ),
    ("the namespace's no", {"namespace": NO}, "namespace default"),
    ("a foreign no on the owner beside an own yes on the pod", {"pod": YES, "owner": {DISRUPT: "true"}}, ""),
    (
        "a foreign no on the Deployment beside its ReplicaSet's copy of a yes",
        {"owner": YES, "deployment": {DISRUPT: "true"}},
        "Deployment web",
    ),
    (
        "a foreign no on the pod beside an own yes on the owner",
        {"pod": {DISRUPT: "true"}, "owner": YES},
        "the pod",
    ),
    (
        "a word without meaning is a no",
        {"pod": {OWN: "perhaps"}, "owner": YES},
        "the pod",
    ),
]


@pytest.mark.parametrize(("where", "who"), [c[1:] for c in WORDS], ids=[c[0] for c in WORDS])
def test_a_no_forbids_wherever_it_stands(where: dict[str, dict[str, str]], who: str) -> None:
    reason = judged(said(**where))
    if not who:
        assert reason is None
    else:
        assert reason is not None
        assert reason.code is ReasonCode.ANNOTATION
        assert reason.message.startswith(who)


NO_WORDS = (
    "no",
    "off",
    "0",
    "f",
    "n",
    "disabled",
    "never!",
    '"false"',
    "forbid",
    "none",
    "block",
    "yes",
    "1",
    "30m",
)


@pytest.mark.parametrize("value", NO_WORDS)
@pytest.mark.parametrize("words", EVICTION_WORDS, ids=lambda w: w.key)
def test_a_value_that_is_no_word_forbids_and_is_a_finding(words: Words, value: str) -> None:
    for place in KINDS:
        things = said(**{place: {words.key: value}})
        reason = judged(things)
        assert reason is not None
        assert reason.code is ReasonCode.ANNOTATION
        assert f"{words.key}={value}" in reason.message
        found = named("unclear-annotation", zones(), things)
        assert len(found) == 1
        assert repr(value) in found[0].message
        if place == "pod":
            assert found[0].message.startswith("2 of its pods: ")


@pytest.mark.parametrize("words", EVICTION_WORDS, ids=lambda w: w.key)
def test_a_no_that_is_explained_at_length_is_one_as_well(words: Words) -> None:
    """A pod's long annotations are cut when they are read: 150,000 of them fill memory."""
    because = f"no, {'as the index takes nine hours to build; ' * 10}ask first"
    for place in KINDS:
        reason = judged(said(**{place: {words.key: because}}))
        assert reason is not None
        assert reason.code is ReasonCode.ANNOTATION
        assert f"{words.key}=no, as the index takes" in reason.message


def test_a_word_for_yes_with_anything_after_it_allows_nothing() -> None:
    reason = judged(said(pod={EVICT: f"true{' ' * 300}no longer"}))
    assert reason is not None
    assert reason.code is ReasonCode.ANNOTATION


@pytest.mark.parametrize("words", [*EVICTION_WORDS, SCALE_IN_WORDS], ids=lambda w: w.key)
def test_every_word_is_clear_and_nothing_but_a_word_for_yes_allows(words: Words) -> None:
    foreign = ("descheduler", "karpenter", "cluster-autoscaler")
    for word in (*words.allow, *words.forbid, *words.nothing):
        for spelled in (word, word.upper(), f" {word}\n"):
            assert not list(unclear({words.key: spelled}, foreign, "ReplicaSet"))
            assert words.says(spelled) is (word in words.allow or (None if word in words.nothing else False))
    assert "false" not in words.allow
    assert words.says("no") is False


OPT_IN: list[tuple[str, dict[str, dict[str, str]], ReasonCode | None]] = [
    ("nobody asks", {}, ReasonCode.OUT_OF_SCOPE),
    ("the pod asks", {"pod": YES}, None),
    ("only the ReplicaSet's copy of the Deployment's asks", {"owner": YES}, ReasonCode.OUT_OF_SCOPE),
    ("the Deployment asks", {"deployment": YES}, None),
    ("the namespace asks", {"namespace": YES}, None),
    ("the namespace asks, the pod refuses", {"namespace": YES, "pod": NO}, ReasonCode.ANNOTATION),
    ("descheduler's key does not ask", {"pod": {EVICT: "true"}}, ReasonCode.OUT_OF_SCOPE),
    (
        "nor does it ask on a namespace",
        {"namespace": {EVICT: "true"}},
        ReasonCode.OUT_OF_SCOPE,
    ),
    ("a harmless key does not ask", {"pod": {SAFE: "true"}}, ReasonCode.OUT_OF_SCOPE),
]


@pytest.mark.parametrize(("where", "expected"), [c[1:] for c in OPT_IN], ids=[c[0] for c in OPT_IN])
def test_opt_in_asks_for_a_word(where: dict[str, dict[str, str]], expected: ReasonCode | None) -> None:
    assert code(said(**where), options=PolicyOptions(mode="opt-in")) is expected


def test_nor_does_the_copy_of_what_an_argo_rollout_said_ask() -> None:
    """Its controller copies annotations as a Deployment's does, and takes none away."""
    top = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "controller": True}
    of_argo = [o for o in said(owner=YES) if o["kind"] != "Deployment"]
    for one in of_argo:
        if one["kind"] == "ReplicaSet":
            one["metadata"]["ownerReferences"] = [top]
    assert code(of_argo, options=PolicyOptions(mode="opt-in")) is ReasonCode.OUT_OF_SCOPE


def test_a_pause_of_the_namespace_is_above_all_words() -> None:
    paused = {"rebalancer.io/pause": "true"}
    assert code(said(pod=YES, namespace=paused)) is ReasonCode.PAUSED_BY_ANNOTATION
    over = {"rebalancer.io/pause": "2026-05-31T00:00:00Z"}
    assert code(said(namespace=over)) is None


@pytest.mark.parametrize(
    ("value", "expected"), [("prefer", -1), ("avoid", 1), ("true", 0), ("", 0), ("PREFER", -1)]
)
def test_preference_orders_victims(value: str, expected: int) -> None:
    assert preference({OWN: value}) == expected


def test_every_key_that_a_rule_reads_is_on_the_one_list() -> None:
    modules = map(import_module, ("rebalancer.policy.annotations", "rebalancer.policy.evictable"))
    texts = [v for module in modules for v in vars(module).values() if isinstance(v, str)]
    keys = {text for text in texts if re.fullmatch(r"[a-z.-]+/[a-z-]+", text)}
    keys -= {PAUSE_DOMAIN, FOR_RUN, SCALE_IN, ROOM, ROLLOUTS}
    assert len(keys) > 5
    assert keys == set(STEERING), (
        "what is on the brake, and scale-in, are asked for by themselves, not of pods"
    )
    others = {DELETION_COST, PAUSE, BEING_EVICTED, LOCAL_VOLUMES}
    assert keys - others == {w.key for w in EVICTION_WORDS}, "what is no word of each forbids"


def test_what_no_rule_reads_steers_nothing() -> None:
    assert steering({"status": "{}", OWN: "true", "kubernetes.io/config.hash": "x"}) == {OWN: "true"}


def test_a_pod_that_is_evicted_in_the_background_is_on_its_way() -> None:
    """It stays, and so do the others of its owner while as many may be away."""
    key = "descheduler.alpha.kubernetes.io/eviction-in-progress"
    things = patched("Pod", {"metadata": {"annotations": {key: "kubevirt"}}}, web(), name="web-00000")
    evictable = Evictable(cluster(*things), PolicyOptions())
    codes = {p.name: reason for p in cluster(*things).pods if (reason := evictable.why_not(p))}
    assert {name: r.code for name, r in codes.items()} == {
        "web-00000": ReasonCode.TERMINATING,
        "web-00001": ReasonCode.OWNER_DEGRADED,
        "web-00002": ReasonCode.OWNER_DEGRADED,
    }
    assert codes["web-00001"].message.endswith("its Ready pods stay; 1 being evicted (web-00000)")
