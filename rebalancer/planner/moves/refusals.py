"""Why a move is refused, in the words that every output shows."""

from __future__ import annotations

from rebalancer.model.pod import Pod
from rebalancer.model.reason import Reason, ReasonCode
from rebalancer.planner.plan import Refusal

_MESSAGES = {
    ReasonCode.WOULD_WORSEN: "its replacement could raise the excess of another constraint",
    ReasonCode.NODE_LEAVING: "its replacement could land on a node that is cordoned or about to go",
    ReasonCode.NODE_STARTING: "its replacement could land on a node that is still being set up",
    ReasonCode.PENDING_PODS: "a waiting pod would take the place it makes",
    ReasonCode.NOT_CERTAIN: "where its replacement lands cannot be predicted with certainty",
    ReasonCode.NOT_NEEDED: "no eviction of it alone lowers the excess, nor one with others after it",
    ReasonCode.NOT_CARRIED: "is counted by the constraint but does not carry it: its replacement could land "
    "anywhere",
    ReasonCode.SIMULATION_LIMIT: "its move would do no harm by itself, but no sequence of moves was found "
    "that ends with less excess",
}
_REMEDIES = {
    ReasonCode.NO_FEASIBLE_NODE: "make room, or add a node, in the emptier domains",
    ReasonCode.PINNED_BY_VOLUME: "spread the volumes: a zonal volume keeps its pod in its zone",
    ReasonCode.NOT_CARRIED: "give these pods the constraint as well",
    ReasonCode.NODE_LEAVING: "let the drain end, or drop the toleration that admits such nodes",
    ReasonCode.NODE_STARTING: "wait until it is initialized, or drop the toleration that admits such nodes",
    ReasonCode.PENDING_PODS: "let the waiting pods be placed first",
    ReasonCode.NOT_CERTAIN: "planner.certainty: likely plans moves that hold on the best-scored nodes",
    ReasonCode.SIMULATION_LIMIT: "a larger planner.effort searches longer",
}


def reason(code: ReasonCode, message: str = "", *, remedy: str = "", **numbers: int) -> Reason:
    """The reason; without a message or remedy, with those that go with the code."""
    return Reason(
        code, message or _MESSAGES.get(code, code.value), numbers, remedy or _REMEDIES.get(code, "")
    )


def refused(pod: Pod, code: ReasonCode, message: str = "", *, remedy: str = "", **numbers: int) -> Refusal:
    """A pod that is not moved; without a message or remedy, with those that go with the code."""
    return Refusal(pod, reason(code, message, remedy=remedy, **numbers))


def crowded_out(pod: Pod) -> Refusal:
    """A pod whose move was planned and then not kept."""
    return Refusal(
        pod,
        Reason(
            ReasonCode.NO_FEASIBLE_NODE,
            "in no wave would its replacement surely find room: others of the plan need the same",
            {},
            "the next cycle plans it anew",
        ),
    )
