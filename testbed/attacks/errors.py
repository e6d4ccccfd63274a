"""What goes wrong with the range itself, whatever is tried there."""


class RangeError(RuntimeError):
    """A run that does not count, and why."""


class UnansweredError(RangeError):
    """The API server no longer answers: of an attack, that is one way to work."""
