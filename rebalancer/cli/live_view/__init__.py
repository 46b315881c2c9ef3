"""The demo's live view.

board   what has happened so far
screen  how that is drawn in a terminal
"""
