"""Commands and daemons as processes of their own."""
