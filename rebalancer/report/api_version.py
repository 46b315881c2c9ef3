"""The version of all documents that scripts read."""

API_VERSION = "rebalancer/v1"
