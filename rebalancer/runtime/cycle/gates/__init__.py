"""Whether something may be done now: a cycle, a move, a request that can evict.

gates           what may forbid evicting at any moment
permission      whether one request may be sent now
watched_limits  what keeps one move waiting, and passes by itself
"""
