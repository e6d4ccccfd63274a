"""The state of a cluster: composition, pods, pending work, evictions in flight."""
