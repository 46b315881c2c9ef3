"""One file for each command. What a command needs is imported when it runs.

showing/   commands that look at a cluster and change nothing
changing/  commands that change a cluster, or what may be done to it
files/     commands about files: manifests, snapshots, settings
embedded/  commands that start the embedded cluster
"""
