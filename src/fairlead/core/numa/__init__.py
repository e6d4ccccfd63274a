"""What a kubelet's topology, CPU and memory managers do with a pod: predicted from what its node reports."""
