"""A node of real processes: pods' commands run as processes of the agent's user."""
