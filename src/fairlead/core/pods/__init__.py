"""Pods: classes of identical ones, gangs, filters and scores of nodes for them."""
