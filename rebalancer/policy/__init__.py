"""Who may be evicted, how many at once, and when. Pure: a snapshot and options in, reasons out.

evictable      whether a pod may be evicted; asks the files below, and the options
owners         whether the pod's owner would make a replacement
gangs          pods that live and die together
replacement    what that replacement looks like
annotations    what people say by annotations on pods, owners and namespaces
single_attach_volumes, not_ready_nodes  what keeps a pod where it is
next_change    when time alone changes an answer
limits/        how many evictions fit into a wave, a cycle and a day, and when
history/       what earlier cycles did, and which owners are left alone because of it
options        what an operator decides about all of this
"""
