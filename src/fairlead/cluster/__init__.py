"""Where plans meet a cluster: the port, and the adapters behind it."""
