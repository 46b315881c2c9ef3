"""A month of ordinary life on the engine: how much excess arises, and what it takes to be rid of it.

rates  how often what happens
"""
