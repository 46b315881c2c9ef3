"""JSON of API objects → the frozen values of `rebalancer.model`.

objects    the decoder for every kind
pods       pods, sharing what identical pods have in common
templates  pod templates: one value for all pods that agree on everything but their place
"""

from rebalancer.model.decode.objects import MALFORMED, Decoder, without_nulls
from rebalancer.model.decode.unknown_fields import LOOKED_INTO, unknown_field

__all__ = ["LOOKED_INTO", "MALFORMED", "Decoder", "unknown_field", "without_nulls"]
