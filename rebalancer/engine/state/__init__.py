"""The scheduler's view of the cluster, changed pod by pod: nodes, and what placed pods hold on them."""
