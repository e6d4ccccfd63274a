"""A real Kubernetes API server behind the port: HTTP client, watches, lease, typed views."""
