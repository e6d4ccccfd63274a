"""MIG through mig-manager: idle nodes of pools that allow it are reconfigured for pods that wait for partitions."""
