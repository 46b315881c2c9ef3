"""The order in which a ReplicaSet that shrinks should delete its pods, told to it by deletion costs."""
