"""Sets of GPUs inside a node, chosen by several rules on the same free GPUs: `bench gpusets` (docs/design/gpu-sets.md)."""
