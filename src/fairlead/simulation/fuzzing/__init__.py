"""Random objects over the whole schema against running worlds: one of them is to stop, or starve, nothing else.

pods: what is written, driven by the types of the API; surroundings: nodes, queues and all else that a pod may refer to;
world: one cluster in JSON with the scheduler's loop behind it; judge: whether innocent pods got what was there; run: many worlds.
"""
