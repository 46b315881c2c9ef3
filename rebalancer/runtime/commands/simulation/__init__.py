"""What `simulate` does: a plan carried out in the embedded cluster, perhaps after a change to it.

whatif             the changes
simulate           a cycle, played forward
simulation_report  what came of it, as a document
"""
