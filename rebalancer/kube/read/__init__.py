"""What is read from the API server: lists page by page, single objects, a whole snapshot."""
