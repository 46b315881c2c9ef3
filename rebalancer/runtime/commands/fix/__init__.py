"""What `fix` does: `matchLabelKeys` in manifests, and in the Deployments of a cluster."""
