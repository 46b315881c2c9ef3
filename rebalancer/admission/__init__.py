"""What the API server makes of a new pod before it stores it."""
