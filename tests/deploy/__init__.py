"""What is deployed: manifests, chart, image, roles, dashboards, workflows."""
