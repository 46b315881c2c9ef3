"""What single commands do beside a cycle; `rebalancer.cli` prints it.

source             where the cluster comes from: files or the API server
capture            the same with the objects it was read from (snapshot, simulate)
resting_owners     whom the daemon leaves alone (report)
find_pod           a pod by what a person typed (explain)
pod_file           a pod that is not there yet, from a file (explain)
history            what happened to a pod or an owner (history)
lint               findings on manifests (lint)
drill              each node and domain fails, one at a time (drill)
simulate           a cycle played forward on the embedded cluster (simulate)
whatif             changes before that
simulation_report  what came of it, as a document
demo               the daemon on the embedded cluster (demo)
"""
