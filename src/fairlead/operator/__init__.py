"""The operator: brings users' objects to the target states that the scheduler sets. A separate process with its own rights."""
