"""CEL as Kubernetes has it: one library, the functions that Kubernetes adds to the language, and its cost limit."""
