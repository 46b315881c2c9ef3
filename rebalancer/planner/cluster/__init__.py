"""The cluster as a plan sees it: constraints and pods that share them, and the simulation of moves."""
