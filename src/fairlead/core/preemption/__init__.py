"""Preemption and reclaim: who may preempt whom, candidates, search, victims, cycles."""
