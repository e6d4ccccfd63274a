"""How names, keys and values are written, and the API server's errors for those that are not."""

from __future__ import annotations

import re

from fairlead.cluster.simulated.errors import Cause, invalid_value

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def qualified(place: str, key: str) -> list[Cause]:
    """A key of labels and the like: a name, perhaps behind a domain."""
    prefix, slash, last = key.rpartition("/")
    causes = [] if last else [invalid_value(place, key, "name part must be non-empty")]
    if len(last) > 63 or not last or not QUALIFIED.match(last) or (slash and not SUBDOMAIN.match(prefix)):
        causes.append(invalid_value(place, key, KEY_RULE))
    return causes


def label_value(place: str, value: str) -> list[Cause]:
    """A value of a label."""
    if len(value) > 63:
        return [invalid_value(place, value, "must be no more than 63 bytes")]
    return [] if LABEL_VALUE.match(value) else [invalid_value(place, value, VALUE_RULE)]


def label(place: str, name: str) -> list[Cause]:
    """A name that may stand in a domain."""
    return [] if LABEL.match(name) and len(name) <= 63 else [invalid_value(place, name, LABEL_RULE)]
