"""The forms of answers: JSON, YAML, tables, metadata alone; whole objects, lists, and lines of watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from fairlead.cluster.simulated import errors, eventforms, tables
from fairlead.cluster.simulated.api.reading import Page
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.messages import JSON, PROTOBUF, READABLE, YAML, Reply
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Object, Record

METADATA_ONLY = "PartialObjectMetadata"


class Form(msgspec.Struct, frozen=True):
    """The form of an answer."""

    yaml: bool = False
    shape: str = ""  # "", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"


def negotiate(accept: str) -> Form:
    """The first form asked for that is spoken. Raises `StatusError` 406."""
    if not accept:
        return Form()
    unspoken = False
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        chosen = dict(part.split("=", 1) for part in parameters if "=" in part)
        shape = chosen.get("as", "")
        if shape and (chosen.get("g") != "meta.k8s.io" or chosen.get("v") != "v1"):
            unspoken = True
            continue
        if shape not in ("", "Table", METADATA_ONLY, "PartialObjectMetadataList"):
            unspoken = True
            continue
        if media in (JSON, "*/*", "application/*"):
            return Form(shape=shape)
        if media == YAML:
            return Form(yaml=True, shape=shape)
    if unspoken:
        raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {READABLE}")
    raise errors.not_acceptable(f"{READABLE}, {JSON};stream=watch, {PROTOBUF};stream=watch")


class Answers:
    """Makes answers. clock: for ages in tables."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def plain(self, form: Form, body: Object, status: int = 200) -> Reply:
        """An object that has no table: a scale, a status, a list."""
        if form.yaml:
            return Reply(status, yaml.safe_dump(body, sort_keys=True).encode(), YAML)
        return Reply(status, msgspec.json.encode(body))

    def one(self, form: Form, resource: Resource, record: Record, status: int = 200, warnings: list[str] | None = None) -> Reply:
        """One object of a resource."""
        if form.shape == "Table":
            metadata = {"resourceVersion": record.object["metadata"].get("resourceVersion", "")}
            reply = Reply(status, msgspec.json.encode(self._table(resource, [record], metadata)))
        elif form.shape == METADATA_ONLY:
            reply = Reply(status, msgspec.json.encode(_only_metadata(record.object)))
        elif form.yaml:
            reply = self.plain(form, self._shown(resource, record), status)
        else:
            reply = Reply(status, self._encoded(resource, record))
        if warnings:
            reply.headers = {"Warning": ", ".join(f'299 - "{each.replace(chr(34), chr(92) + chr(34))}"' for each in warnings)}
        return reply

    def listed(self, form: Form, resource: Resource, page: Page) -> Reply:
        """A page of a list."""
        metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
        if page.next:
            metadata["continue"] = page.next
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        if form.shape == "Table":
            return Reply(200, msgspec.json.encode(self._table(resource, page.records, metadata)))
        if form.shape.startswith(METADATA_ONLY):
            items = [_only_metadata(record.object) for record in page.records]
            body = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
            return Reply(200, msgspec.json.encode(body))
        items = [self._shown(resource, record) for record in page.records]
        if not resource.custom:
            items = [{name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items]
        return self.plain(
            form, {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": items}
        )

    def line(self, form: Form, resource: Resource) -> Callable[[str, Record], bytes]:
        """The encoder of one watch: a change's kind and the object. Columns of tables are described once."""
        described = False

        def encode(kind: str, record: Record) -> bytes:
            nonlocal described
            if form.shape == "Table":
                table = self._table(resource, [record], {"resourceVersion": str(record.version)})
                if described:
                    table["columnDefinitions"] = []
                described = True
                body = msgspec.json.encode(table)
            elif form.shape == METADATA_ONLY:
                body = msgspec.json.encode(_only_metadata(record.object))
            else:
                body = self._encoded(resource, record)
            return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

        return encode

    @staticmethod
    def _shown(resource: Resource, record: Record) -> Object:
        return eventforms.shown(record.object) if resource.group == eventforms.GROUP else record.object

    def _encoded(self, resource: Resource, record: Record) -> bytes:
        if resource.group == eventforms.GROUP:
            return msgspec.json.encode(eventforms.shown(record.object))
        return record.encoded

    def _table(self, resource: Resource, records: list[Record], metadata: dict[str, Any]) -> dict[str, Any]:
        now = self._clock.now()
        rows = [
            {"cells": tables.cells(resource, record.object, now), "object": _only_metadata(record.object)} for record in records
        ]
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": tables.columns(resource),
            "rows": rows,
        }


def _only_metadata(obj: Object) -> Object:
    return {"kind": METADATA_ONLY, "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def bookmark_of(resource: Resource) -> Callable[..., bytes]:
    """The encoder of bookmarks of a resource's watches: of a version and annotations."""
    plain = (
        b'{"type":"BOOKMARK","object":{"kind":"%s","apiVersion":"%s",'
        b'"metadata":{"resourceVersion":"%d","creationTimestamp":null}}}\n'
    )
    about = resource.kind.encode(), resource.api_version.encode()

    def bookmark(at: int, **annotations: str) -> bytes:
        if not annotations:  # most lines of an idle watch
            return plain % (*about, at)
        metadata = {"resourceVersion": str(at), "creationTimestamp": None, "annotations": annotations}
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%s}\n' % msgspec.json.encode(body)

    return bookmark
