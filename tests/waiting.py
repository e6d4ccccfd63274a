"""Waiting for other processes: until something is so, and no longer than a limit."""

import time


def until(what, why=lambda: "not so in time", limit=60.0):
    """What `what` returns, asked until it is true. why: makes the message when that takes longer than `limit` seconds."""
    deadline = time.monotonic() + limit
    while not (answer := what()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
    return answer
