"""Who listens to a cycle (`rebalancer.outcome`).

log         the log
neighbours  others that move pods in the same cluster
notices     messages for webhooks and chats
"""
