"""What single commands do besides a cycle; `rebalancer.cli` prints it.

source          where the cluster comes from: files or the API server
capture         the same with the objects it was read from (snapshot, simulate)
topology_keys   short names of topology keys, as people type them
resting_owners  whom the daemon leaves alone (report)
fleet           the report of several clusters
history         what happened to a pod or an owner (history)
drill           each node and domain fails, one at a time (drill)
prevent         deletion costs shown, or taken back (prevent)
demo            the daemon on the embedded cluster (demo)
explain/, fix/, lint/, simulation/   what the commands of these names do
"""
