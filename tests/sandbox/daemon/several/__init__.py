"""Several daemons over one ledger: at the same time, or one after the other."""
