"""What a pass may do, each in one short file over the state and its undo log."""
