"""A whole cluster, listed once: for commands, and for the process that plays `whatif` for users who may not list it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from fairlead.cluster import views
from fairlead.cluster.kinds import (
    BUDGET,
    DEVICES,
    NAMESPACE,
    NODE,
    NODE_POOL,
    POD,
    POD_GROUP,
    PRIORITY_CLASS,
    QUEUE,
    RESERVATION,
    SERVICE_CLASS,
    SLICE,
    Kind,
)
from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.translate import FIELDS, Objects

View = TypeVar("View", bound=msgspec.Struct)

_PAGE = 500


async def everything(client: Client, report: Callable[[int, int], None] | None = None) -> tuple[Objects, tuple[str, ...]]:
    """All objects but volumes, and the kinds of ours that the server does not serve.

    report: takes how many pods are listed, of all. Raises `ApiError` and `Unreachable`.
    """
    missing: list[str] = []

    async def listed(kind: Kind[View]) -> list[View]:
        try:
            return await list_all(client, kind.path, kind.view, report if kind is POD else None)
        except ApiError as error:
            if (kind.is_ours or kind is BUDGET) and error.code == 404:
                missing.append(kind.plural)
                return []
            raise

    nodes, pods, namespaces = await asyncio.gather(listed(NODE), listed(POD), listed(NAMESPACE))
    queues, groups, classes, reservations, pools, priorities = await asyncio.gather(
        listed(QUEUE), listed(POD_GROUP), listed(SERVICE_CLASS), listed(RESERVATION), listed(NODE_POOL), listed(PRIORITY_CLASS)
    )
    now = client.server_time or time.time()
    objects = Objects(now, nodes, pods, namespaces, queues, groups, classes, priorities, reservations, pools)
    try:
        objects.budgets = await listed(BUDGET)
    except ApiError as error:
        if error.code != 403:  # without these rights evictions are shown that budgets would not allow
            raise
    await _list_devices(client, objects)
    return objects, tuple(sorted(missing))


async def _list_devices(client: Client, objects: Objects) -> None:
    """List objects of `resource.k8s.io`. Without these rights, or on an older server, claims are shown as waiting for devices."""
    for kind in DEVICES:
        try:
            setattr(objects, FIELDS[kind.name], await list_all(client, kind.path, kind.view))
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            if kind is SLICE:
                return


async def list_all(
    client: Client,
    path: str,
    view: type[View],
    report: Callable[[int, int], None] | None = None,
    selector: str = "",
    unread: list[str] | None = None,
    fields: str = "",
) -> list[View]:
    """A whole list, page by page; what cannot be decoded is left out.

    report: takes how many are read, of all; selector: of labels; fields: of fields; unread: gets why
    something was left out.
    """
    found: list[View] = []
    token = ""
    while True:
        query = {"limit": str(_PAGE), **({"continue": token} if token else {})}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        page = msgspec.json.decode(await client.get(path, **query), type=views.RawList)
        for raw in page.items:
            try:
                found.append(msgspec.json.decode(raw, type=view))
            except msgspec.DecodeError as error:
                if unread is not None:
                    unread.append(f"{_name_of(raw)}: {error}")
        if report is not None:
            report(len(found), len(found) + (page.metadata.remaining or 0))
        token = page.metadata.continue_
        if not token:
            return found


def _name_of(raw: msgspec.Raw) -> str:
    """The name of an object that cannot be decoded, as far as that can be."""
    try:
        metadata = msgspec.json.decode(raw, type=views.OnlyMetadata).metadata
    except msgspec.DecodeError:
        return "an object"
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
