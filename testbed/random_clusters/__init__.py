"""Random small clusters for the differential test: every feature that a default plugin of kube-scheduler looks at."""
