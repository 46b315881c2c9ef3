"""The connection to one API server: requests, streams, credentials, and when to try again."""
