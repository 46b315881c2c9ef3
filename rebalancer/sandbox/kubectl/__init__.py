"""What a visiting kubectl asks for beside the objects: discovery, and tables."""
