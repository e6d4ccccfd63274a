"""The judge of places on a network with levels: random instances, a checker of rules, an integer program."""
