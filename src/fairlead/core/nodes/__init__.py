"""Nodes in columns: amounts, devices, topology, storage."""
