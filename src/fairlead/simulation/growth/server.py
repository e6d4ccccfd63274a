"""What a list costs the simulated API server, by pods that it holds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.messages import Reply, Request
from fairlead.cluster.simulated.resources import PODS
from fairlead.cluster.simulated.wire import Wire

_PAGE = "100"
_OF_A_NAMESPACE = 50  # pods


class _Metadata(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct):
    metadata: _Metadata


class Lists:
    """A server with so many pods in namespaces of fifty, in the order in which a cluster makes them."""

    def __init__(self, pods: int) -> None:
        self._api = ApiServer(Clock(start=0.0))
        self._wire = Wire(self._api)
        self._pods = pods
        for number in range(pods):
            self._write(number)

    def _write(self, number: int) -> None:
        namespace, name = f"team-{number // _OF_A_NAMESPACE:05d}", f"pod-{number * 7919 % self._pods:06d}"
        metadata = {"name": name, "namespace": namespace, "uid": str(number), "creationTimestamp": "2026-01-01T00:00:00Z"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "main"}]}}
        self._api.store.put(PODS, (namespace, name), pod)

    def _page(self, path: str, query: Mapping[str, str]) -> str:
        """A page; the token for the next."""
        reply = self._wire.handle(Request("GET", path, query, {}, b""))
        if not isinstance(reply, Reply) or reply.status != 200:
            raise RuntimeError(f"GET {path} was refused")
        return msgspec.json.decode(reply.body, type=_List).metadata.token

    def prepare(self, round_: int) -> None:
        """Nothing."""


class Pages(Lists):
    """All pods, page by page, while pods change; the unit is a page."""

    def run(self, round_: int) -> int:
        """The whole list."""
        token, pages = self._page("/api/v1/pods", {"limit": _PAGE}), 1
        while token:
            self._write(pages)
            token, pages = self._page("/api/v1/pods", {"limit": _PAGE, "continue": token}), pages + 1
        return pages


class Namespace(Lists):
    """The pods of one namespace."""

    def run(self, round_: int) -> int:
        """The list."""
        self._page(f"/api/v1/namespaces/team-{round_:05d}/pods", {})
        return 1
