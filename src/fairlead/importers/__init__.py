"""Other schedulers' queues, read as ours: `fairlead import`."""
