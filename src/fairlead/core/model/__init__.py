"""Plain objects, charges, transactions and the undo log: what everything else speaks of."""
