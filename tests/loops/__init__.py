"""A small model checker: does the rebalancer become quiet, whatever others did before?"""
