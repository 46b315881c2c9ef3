"""Who may be evicted, how many at once, and when. Pure: a snapshot and options in, reasons out."""
