"""What the API server does with each change: admission, defaults, validation, deletion, eviction."""
