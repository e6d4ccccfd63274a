"""NUMA nodes judged: random machines and pods, and the kubelet's own managers (`modules/numa`), which say what is admitted."""
