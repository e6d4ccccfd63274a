"""A cluster in memory behind the port (to come: today the demo and the replays drive the core directly)."""
