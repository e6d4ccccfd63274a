"""The operator: what the scheduler means, done to the objects that users wrote. A process of its own, with its own rights."""
