"""A Kubernetes in memory: its API server, kubelet, controllers, faults and clock, and the port on it."""
