"""Queues: the tree, accounts, limits, waiting work, fair shares, guarantees, classes of service."""
