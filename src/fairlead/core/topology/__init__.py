"""The choice of places for a gang on a network with levels: which domains of nodes, and how many pods on each node.

A pure search: nodes are rows, and of each row it is given how many pods fit now. See docs/design/topology.md.
"""
