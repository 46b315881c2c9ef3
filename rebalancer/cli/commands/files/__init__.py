"""Commands about files: manifests, snapshots, settings."""
