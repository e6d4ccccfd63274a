"""Sentences for users of one namespace: what in them names a pod, a job or a budget of another namespace is left out."""

from __future__ import annotations

import re
from collections.abc import Container

ANOTHERS = "another namespace's"
_KEY = re.compile(
    r"(?<![\w./-])(?:[a-z]+/(?=[^\s/]+/))?"  # a kind, as in `gang/NAMESPACE/NAME`
    r"(?P<namespace>[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)/[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?"
)


def without_others(sentence: str, namespace: str, known: Container[str]) -> str:
    """The sentence with every `NAMESPACE/NAME` and `KIND/NAMESPACE/NAME` left out but those of `namespace`.

    known: the namespaces that there are.
    """

    def shown(found: re.Match[str]) -> str:
        return found[0] if found["namespace"] == namespace or found["namespace"] not in known else ANOTHERS

    return _KEY.sub(shown, sentence)
