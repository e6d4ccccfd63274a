"""Work that keeps coming, and what becomes of it: seen by a watch that is independent of everybody else.

Pods alone, gangs, and AIJobs arrive on nodes that are nearly full. What has run for a while is deleted again, gangs and jobs as a
whole.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from testbed import objects

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODES = "/api/v1/nodes"
_JOBS = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/aijobs"
_GROUPS = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/podgroups"
_AT_ONCE = 64


class Seen(msgspec.Struct):
    """A pod. asked: when its creation was asked for; bound: when it was seen to be; epoch: of the lease then."""

    name: str
    group: str
    asked: float | None = None
    bound: float | None = None
    epoch: int = 0
    node: str = ""
    gone: bool = False


class Arrivals:
    """Creates work on an open client. pods: by UID; twice: pods that were seen on a second node."""

    def __init__(self, client: Client, gpus: int) -> None:
        self.client = client
        self.pods: dict[str, Seen] = {}
        self.twice: list[str] = []
        self.over_allocated: list[str] = []
        self.sizes: dict[str, int] = {}  # members of each gang and job
        self.jobs: dict[str, float] = {}  # AIJobs: when their creation was asked for
        self._asked: dict[str, float] = {}
        self._gpus = gpus
        self._used: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Future[Any]] = set()
        self._made = 0

    # -- what is seen --------------------------------------------------------------------------

    @asynccontextmanager
    async def observed(self) -> AsyncIterator[None]:
        """Watch while the context is open."""
        listed = asyncio.Event()
        informer = Informer(self.client, PODS, views.Pod, self._report, listed.set, key=lambda metadata: metadata.uid)
        watching = asyncio.create_task(informer.run())
        try:
            await listed.wait()
            yield
        finally:
            for task in [watching, *self._tasks]:
                task.cancel()
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)

    def _report(self, changes: list[Change[views.Pod]]) -> None:
        now = time.monotonic()
        for change in changes:
            view = change.view
            if view is None:
                self._gone(change.key)
                continue
            known = self.pods.get(change.key)
            if known is None:
                labels = view.metadata.labels or {}
                group = labels.get(names.JOB_LABEL) or labels.get(names.POD_GROUP_LABEL) or ""
                known = self.pods[change.key] = Seen(view.metadata.name, group, self._asked.get(view.metadata.name))
            node = view.spec.node_name or ""
            if node and not known.node:
                known.node, known.bound = node, now
                known.epoch = int((view.metadata.annotations or {}).get(names.EPOCH_ANNOTATION, 0))
                self._used[node] += 1
                if self._used[node] > self._gpus:
                    self.over_allocated.append(f"{node}: {known.name}")
            elif node != known.node:
                self.twice.append(f"{known.name}: {known.node}, {node}")

    def _gone(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is not None and not known.gone:
            known.gone = True
            if known.node:
                self._used[known.node] -= 1

    def waiting(self) -> list[Seen]:
        """Pods without a node."""
        return [each for each in self.pods.values() if not each.node and not each.gone]

    def partial(self) -> list[str]:
        """Gangs and jobs of which some members have nodes, and others do not."""
        bound: Counter[str] = Counter(each.group for each in self.pods.values() if each.group and each.node)
        return [f"{name}: {bound[name]} of {size}" for name, size in self.sizes.items() if 0 < bound[name] < size]

    # -- what is done --------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something beside."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Wait for what was begun. Raises what it raised."""
        await asyncio.gather(*list(self._tasks))

    async def create(self, path: str, manifest: dict[str, Any]) -> None:
        """Create one object; the time counts from here."""
        self._asked[manifest["metadata"]["name"]] = time.monotonic()
        async with self._slots:
            await self.client.post(path, encode(manifest))

    def single(self) -> None:
        """A pod arrives."""
        self._made += 1
        self.begin(self.create(PODS, objects.pod(f"single-{self._made}")))

    def gang(self, size: int) -> None:
        """A gang arrives, its PodGroup first."""
        self._made += 1
        name = f"gang-{self._made}"
        self.sizes[name] = size

        async def create() -> None:
            await self.create(_GROUPS, objects.pod_group(name, size))
            await asyncio.gather(*(self.create(PODS, objects.pod(f"{name}-{number}", group=name)) for number in range(size)))

        self.begin(create())

    def job(self, workers: int) -> None:
        """An AIJob arrives."""
        self._made += 1
        name = f"job-{self._made}"
        self.sizes[name] = workers
        self.jobs[name] = time.monotonic()
        self.begin(self.create(_JOBS, objects.ai_job(name, workers=workers)))

    async def retire(self, age: float) -> None:
        """Delete what has had all its nodes for so many seconds."""
        now = time.monotonic()
        gangs: dict[str, list[Seen]] = defaultdict(list)
        work: list[str] = []
        for each in self.pods.values():
            if each.group:
                gangs[each.group].append(each)
            elif not each.gone and each.bound is not None and now - each.bound > age:
                work.append(f"{PODS}/{each.name}")
        for name, members in gangs.items():
            here = [each for each in members if not each.gone]
            bound = [each for each in here if each.bound is not None and now - each.bound > age]
            if here and len(bound) == len(here) >= self.sizes.get(name, 1):
                path, alone = (_JOBS, False) if name in self.jobs else (_GROUPS, True)
                work.append(f"{path}/{name}")
                work += [f"{PODS}/{each.name}" for each in here if alone]
        await asyncio.gather(*(self._delete(path) for path in work))

    async def _delete(self, path: str) -> None:
        async with self._slots:
            try:
                await self.client.delete(path, encode({"gracePeriodSeconds": 0}))
            except ApiError as error:
                if error.code != 404:
                    raise

    async def until(self, what: Callable[[], object], limit: float) -> bool:
        """Wait until something is so; whether it came to be in time."""
        deadline = time.monotonic() + limit
        while not what():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.005)
        return True


async def nodes(client: Client, count: int, gpus: int, pods: int = 110) -> None:
    """So many nodes with so many devices each."""
    for number in range(count):
        manifest = objects.node(f"node-{number:03d}", gpus=gpus)
        for amounts in (manifest["status"]["allocatable"], manifest["status"]["capacity"]):
            amounts["pods"] = str(pods)
        await client.post(_NODES, encode(manifest))
