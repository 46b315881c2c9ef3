"""Objects in memory under one resourceVersion, with their history: what etcd is to the API server."""
