"""Who may be evicted, how many at once, and when. Pure: a snapshot and options in, reasons out.

evictable      whether a pod may be evicted; asks the files below, and the options
owners         whether the pod's owner would make a replacement
replacement    what that replacement looks like
annotations    what people say by annotations on pods, owners and namespaces
history        what earlier cycles mean: the ledger, and the waits that rest on it
options        what an operator decides about all of this
"""
