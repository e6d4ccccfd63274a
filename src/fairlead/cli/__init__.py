"""What a person types. Commands import what they need only when they run."""
