"""URLs as CEL reads them in Kubernetes: absolute ones, or paths that begin with a slash (Go's `url.ParseRequestURI`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus, unquote_to_bytes

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r"(:[0-9]*)?")
_KEPT: Final = "$&+,/:;=@-_.~"
"""What a path keeps as it is, beside letters and digits."""
_VALID_PATH: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@/%\[\]]*")


@dataclass(frozen=True, slots=True)
class URL:
    """The parts of a URL. host: with its port; path: escaped; query: name -> values, in their order."""

    text: str
    scheme: str
    host: str
    path: str
    query: dict[str, list[str]]

    @property
    def hostname(self) -> str:
        """The host without its port and without the brackets of an IPv6 address."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.rpartition(":")[0] if ":" in self.host else self.host

    @property
    def port(self) -> str:
        """The port as it is written; empty if there is none."""
        return self.host.rpartition("]")[2].rpartition(":")[2] if ":" in self.host.rpartition("]")[2] else ""


def parse(text: str) -> URL:
    """The URL of a text. Raises ValueError with the part that is wrong."""
    if not text:
        raise ValueError("a URL is empty")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise ValueError(f"{text!r} has a control character")
    scheme, rest = _split_scheme(text)
    if not rest.startswith("/") and not scheme:
        raise ValueError(f"{text!r} is neither an absolute URL nor a path")
    rest, _, _fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    host = ""
    if scheme and not rest.startswith("/"):
        return URL(text, scheme, "", "", _query(query))  # an opaque one, such as mailto:a@b
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _host(text, authority), slash + path
    if _ESCAPE.search(rest):
        raise ValueError(f"{text!r} has an escape in its path that is not % and two hexadecimal digits")
    return URL(text, scheme, host, _escaped(rest), _query(query))


def _split_scheme(text: str) -> tuple[str, str]:
    before, colon, after = text.partition(":")
    if not colon or not _SCHEME.fullmatch(before):
        if colon and before == "":
            raise ValueError(f"{text!r} lacks a scheme before its colon")
        return "", text
    return before.lower(), after


def _host(text: str, authority: str) -> str:
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        if "]" not in host or not _PORT.fullmatch(host.rpartition("]")[2]):
            raise ValueError(f"{text!r} has a host without its closing bracket, or with a port that is no number")
        return host
    before, colon, port = host.rpartition(":")
    if colon and not _PORT.fullmatch(colon + port):
        raise ValueError(f"{text!r} has a port that is no number")
    if any(character in ' "<>\\^`{|}' for character in (before if colon else host)):
        raise ValueError(f"{text!r} has a character in its host that no host has")
    if _ESCAPE.search(host):
        raise ValueError(f"{text!r} has an escape in its host that is not % and two hexadecimal digits")
    return host


def _escaped(path: str) -> str:
    return path if _VALID_PATH.fullmatch(path) else quote(unquote_to_bytes(path), safe=_KEPT)


def _query(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in text.split("&"):
        name, _, value = pair.partition("=")
        if pair and ";" not in pair and not _ESCAPE.search(pair):
            found.setdefault(unquote_plus(name), []).append(unquote_plus(value))
    return found
