"""One cycle: snapshot → plan → waves → outcome. Knows the cluster only through what it is given.

clock            time, and the wish to stop
loop             the cycle itself, and what follows a plan
carrying_out     a plan, move by move, each after a last look
gates            permission to send a request that can evict
replacements     how far the moves are; victims that go and replacements that become Ready
memory           what is known of former cycles
"""
