"""One file for each command. What a command needs is imported when it runs."""
