"""How many members there may be, and how many may wait for a node at a time: pods cost the API server, also such as never run."""

from __future__ import annotations

from collections import Counter

import msgspec


class Bounds(msgspec.Struct, frozen=True):
    """members: of a job, or of an element of its array. namespace, cluster: pods that were made and have no node.

    A gang is let in where nothing else of its namespace waits, so that a gang as large as `members` can start.
    """

    members: int = 10_000
    namespace: int = 5_000
    cluster: int = 20_000


class Waiting:
    """Members that were made and have no node, counted. all: in the cluster."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._pods: set[str] = set()
        self._in: Counter[str] = Counter()

    @property
    def all(self) -> int:
        """In the cluster."""
        return len(self._pods)

    def seen(self, key: str, *, placed: bool) -> None:
        """A pod `namespace/name` as it is; placed: it has a node, has ended, or is gone."""
        if placed == (key not in self._pods):
            return
        namespace = key.partition("/")[0]
        if placed:
            self._pods.discard(key)
            self._in[namespace] -= 1
            if not self._in[namespace]:
                del self._in[namespace]
        else:
            self._pods.add(key)
            self._in[namespace] += 1

    def allowance(self, namespace: str, wanted: int, *, whole: bool = False, own: int = 0) -> tuple[int, str]:
        """How many of so many may be made now, and why not all.

        whole: they are a gang, of whose pods `own` wait already.
        """
        there, everywhere, bounds = self._in[namespace] - own, self.all - own, self.bounds
        if whole and there <= 0 and everywhere < bounds.cluster:
            return wanted, ""
        here, anywhere = bounds.namespace - there, bounds.cluster - everywhere
        allowance = max(0, min(here, anywhere))
        if allowance >= wanted:
            return wanted, ""
        if here <= anywhere:
            where, waiting, most = f"namespace {namespace}", there, bounds.namespace
        else:
            where, waiting, most = "the cluster", everywhere, bounds.cluster
        return allowance, f"{where} has {waiting} of at most {most} pods of AIJobs that wait for a node"
