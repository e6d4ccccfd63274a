"""CEL device selectors against Kubernetes' own evaluation: a table of cases, random ones, and the comparison."""
