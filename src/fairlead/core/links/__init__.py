"""How the GPUs of a node are connected, and which set of free ones is the best connected (docs/design/gpu-sets.md)."""
