"""Writing single fields of objects: pods' deletion costs."""
