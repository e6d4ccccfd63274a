"""Names and texts that changed since a decision log was recorded.

A log holds names as they were when it was written. Before it is replayed, every old name in it becomes the present one. So the
decisions can be compared, and not the vocabulary.
"""

from __future__ import annotations

import re

RENAMED: tuple[tuple[bytes, bytes], ...] = (
    (b'"reason":"InForce"', b'"reason":"Accepted"'),
    (b'"reason":"MissingParent"', b'"reason":"ParentNotFound"'),
    (b'"reason":"MissingPool"', b'"reason":"PoolNotFound"'),
    (b"fairlead.dev/surplus", b"fairlead.dev/elastic-replica"),
    (b'"surplus":', b'"elastic":'),
    (b'"look_again":', b'"recheck":'),
    (b'"tells_capacity":', b'"reports_capacity":'),
)
"""Fragments of a log's JSON: the old one, and what it is now. A value stands with its field where the word alone
could be an object's name; a field is `"old":`. No present fragment contains an old one, so a log of any age can be read."""

_PLACEHOLDER = re.compile(rb'(\{"uid":"suspended/[^"]*","namespace":"[^"]*","name":"[^"]*")\}')
"""A reference to a placeholder of a suspended job, from when only its UID identified it as one."""

_FORM = re.compile(rb'("latest_start":(?:null|[-+.0-9eE]+))\}')
"""The end of a GroupStatus, from when it had no form chosen among a job's alternatives."""

_SPARES = re.compile(rb'("latest_start":(?:null|[-+.0-9eE]+),"chosen":(?:null|\{[^{}]*\}))\}')
"""The end of a GroupStatus, from when it had no spare places."""

_TEXT = re.compile(rb'"(message|why)":"(?:[^"\\]|\\.)*"')


def renamed(line: bytes) -> bytes:
    """A line of a log, in present names."""
    for old, new in RENAMED:
        line = line.replace(old, new)
    line = _SPARES.sub(rb'\1,"spares":null}', _FORM.sub(rb'\1,"chosen":null}', line))
    return _PLACEHOLDER.sub(rb'\1,"placeholder":true}', line)


def without_texts(outputs: bytes) -> bytes:
    """Outputs with every sentence blank. Codes, numbers, names, places and order remain."""
    return _TEXT.sub(rb'"\1":""', outputs)
