"""Addresses on which a process serves, as `HOST:PORT`."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?P<host>[-A-Za-z0-9_.:%\[\]]*):(?P<port>[0-9]{1,5})")
_MOST = 65535


def wrong_address(text: str) -> str:
    """What is wrong with an address; empty: nothing, or none is given, on which nothing is served."""
    found = _ADDRESS.fullmatch(text)
    if text and (found is None or int(found["port"]) > _MOST):
        return f"{text!r} is not HOST:PORT, such as 127.0.0.1:10259, with a port of at most {_MOST}"
    return ""
