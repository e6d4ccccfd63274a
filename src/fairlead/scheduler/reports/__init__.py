"""What the scheduler reports of groups, queues, reservations and the validity of objects: what is due, and when the next is."""
