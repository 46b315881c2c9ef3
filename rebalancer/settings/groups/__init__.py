"""Settings that belong together, one class for each group; `base` is what all groups have in common.

operations     when it runs, under whose eyes, with which memory
notifications  who is told
prevention     what keeps spread from breaking
"""
