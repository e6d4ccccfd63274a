"""AIJobs: from what a user wants, and how its pods are, to what is done next."""
