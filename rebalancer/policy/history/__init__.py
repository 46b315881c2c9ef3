"""What earlier cycles mean for this one: the ledger, and the waits that rest on it."""
