"""What benchmarks start as processes of their own, and the bare transfer they are compared with."""
