"""Fairlead: a scheduler and workload manager for AI jobs on Kubernetes."""

__version__ = "0.1.0"
