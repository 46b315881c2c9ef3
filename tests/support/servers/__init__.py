"""What tests talk to: the embedded API server, collectors, relays, a real Prometheus."""
