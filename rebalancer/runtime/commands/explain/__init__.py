"""What `explain` does: a pod found by what a person typed, and the scheduler's decisions compared.

find_pod  a pod by what a person typed
pod_file  a pod that is not there yet, from a file
compare   what the scheduler decided, beside what the engine says
"""
