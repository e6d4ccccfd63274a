"""A cluster as an installer sees it: objects by path, found again by labels."""

from __future__ import annotations

import copy

import msgspec

from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.install import kinds


class Cluster(Client):
    """Answers for itself. there: object by path; done: (verb, path); refuses: paths that may not be written, with the answer;
    denied: (verb, resource) that the caller may not do; absent: API versions that are not served.
    """

    def __init__(self):
        super().__init__(Config("http://nowhere"), clock=lambda: 1.8e9)
        self.there, self.done, self.refuses = {}, [], {}
        self.denied, self.absent, self.minor = set(), set(), "36"
        self.lists_leases = True

    async def get(self, path, **query):
        if path == "/version":
            return msgspec.json.encode({"major": "1", "minor": self.minor})
        if path in self.there:
            return msgspec.json.encode(self.there[path])
        version = path.removeprefix("/apis/")
        if any(each.version == version for each in kinds.ORDER):
            served = [] if version in self.absent else [each.plural for each in kinds.ORDER if each.version == version]
            return msgspec.json.encode({"resources": [{"name": each} for each in served]})
        if path.endswith("/leases") and not self.lists_leases:
            raise ApiError(403, "Forbidden", "no")
        if path.rpartition("/")[2] in {each.plural for each in kinds.ORDER} | {"pods", "secrets", "leases"} | self._defined():
            return msgspec.json.encode(
                {"items": [each for at, each in self.there.items() if self._listed(at, each, path, query)]}
            )
        raise ApiError(404, "NotFound", path)

    def _defined(self):
        """Plurals of the custom resources of all definitions."""
        return {each["spec"]["names"]["plural"] for each in self.there.values() if each.get("kind") == kinds.DEFINITION}

    def _listed(self, at, each, path, query):
        prefix, _, plural = path.rpartition("/")
        folder = at.rpartition("/")[0]
        inside = folder == path or (folder.startswith(f"{prefix}/namespaces/") and folder.rpartition("/")[2] == plural)
        label, _, value = query.get("labelSelector", "").partition("=")
        return inside and (not label or each["metadata"].get("labels", {}).get(label) == value)

    async def apply(self, path, body, manager):
        if path in self.refuses:
            raise self.refuses[path]
        assert manager == "fairlead-install"
        self.done.append(("apply", path))
        made = copy.deepcopy(msgspec.json.decode(body))
        if made["kind"] == kinds.DEFINITION:
            made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        self.there[path] = made
        return b""

    async def delete(self, path, body=b""):
        if path in self.refuses:
            raise self.refuses[path]
        self.done.append(("delete", path))
        del self.there[path]
        return b""

    async def post(self, path, body, **_):
        asked = msgspec.json.decode(body)["spec"]["resourceAttributes"]
        return msgspec.json.encode({"status": {"allowed": (asked["verb"], asked["resource"]) not in self.denied}})
