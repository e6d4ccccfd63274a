"""Requests and answers, without sockets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
READABLE = f"{JSON}, {YAML}, {PROTOBUF}"


class Request(msgspec.Struct, frozen=True):
    """One request. path: as sent, still percent-encoded; headers: names in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Reply(msgspec.Struct):
    """One answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = {}
