"""Volumes: limits of drivers, claims bound and unbound, exclusive claims and disks, zones."""
