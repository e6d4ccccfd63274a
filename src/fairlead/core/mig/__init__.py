"""MIG (Multi-Instance GPU): what partitions a GPU may have, where the next one is placed, and which are moved or made
anew.
"""
