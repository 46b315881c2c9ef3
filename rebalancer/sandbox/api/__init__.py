"""What the API consists of: resources, objects, selectors, refusals."""
