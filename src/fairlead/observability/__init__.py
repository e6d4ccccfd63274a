"""Metrics, events, alerts and cost."""
