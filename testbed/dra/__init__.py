"""Allocation of devices judged: random clusters, upstream's allocator, an independent checker, hard instances."""
