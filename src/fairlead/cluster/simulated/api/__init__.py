"""The API server's verbs on the store: what kube-apiserver's registry does, without any HTTP."""
