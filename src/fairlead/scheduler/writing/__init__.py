"""How decisions, statuses and messages reach the API server: lines of writes, and what is written in each."""
