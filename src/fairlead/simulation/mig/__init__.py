"""Experiments with partitioned GPUs: a stream of requests that are placed or lost, and jobs that accept any profile."""
