"""One file for each command. What a command needs is imported when it runs.

files/     commands about files: manifests, snapshots, settings
"""
