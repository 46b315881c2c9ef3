"""What `simulate` does: a plan carried out in the embedded cluster, perhaps after a change to it."""
