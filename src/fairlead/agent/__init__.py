"""A node of real processes: pods' commands run as processes of whoever runs the agent."""
