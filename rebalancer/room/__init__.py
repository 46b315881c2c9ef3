"""What room is missing: the fewest nodes that would cure an excess which stays for want of room or domains.

kinds    the nodes that could be added: of shapes and in domains that the cluster has
extended a snapshot with more, or larger, nodes
search   how the fewest are found, over all workloads together
"""

from rebalancer.room.search import LOOKED_FOR_UNASKED, Enlarged, NewNodes, Room, room

__all__ = ["LOOKED_FOR_UNASKED", "Enlarged", "NewNodes", "Room", "room"]
