"""Dynamic Resource Allocation: devices of `resource.k8s.io/v1`, and which of them the claims of a pod get on a node.

Read `allocator.py` first; `model.py` has the objects, `docs/design/devices.md` the reasons.
"""
