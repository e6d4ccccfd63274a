"""Days full of faults on which jobs share GPUs two by two, isolate nodes or GPUs, and take of what the nodes of pools share."""
