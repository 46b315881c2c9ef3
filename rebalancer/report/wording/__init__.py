"""What all formats say in the same words.

text        figures and words, and names made harmless
words       what is at risk now, and after the plan, in sentences
bounds      what no placement can beat, in sentences
next_steps  the commands to go on with
"""
