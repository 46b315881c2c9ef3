"""The tool in outages: histories on the embedded cluster, with seeds and sizes at random."""
