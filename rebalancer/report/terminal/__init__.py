"""The report for a terminal: its tables, and the first look at a whole cluster."""
