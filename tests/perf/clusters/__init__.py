"""Large clusters for benchmarks, as the JSON that an API server would send."""
