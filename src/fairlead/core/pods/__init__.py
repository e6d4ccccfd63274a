"""Pods: classes of identical ones, gangs, what filters and scores say of nodes for them."""
