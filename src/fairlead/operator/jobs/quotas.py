"""ResourceQuotas and LimitRanges before pods are made: a gang that would be admitted in part is not begun.

A namespace without either costs nothing. In one that has a quota, jobs make their pods one after the other, each by the
quotas at that moment, so two gangs cannot take half of it each. Where the operator may not read quotas, or another client was
faster, the API server refuses a member, and the controller takes the others back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.resource_quotas import Held, LimitRange, Manifest, Quota, Refusal, refused
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults
from fairlead.operator.jobs.members import Member, pod

log = structlog.get_logger("quotas")

Kind = TypeVar("Kind", Quota, LimitRange)


class Batch(msgspec.Struct):
    """Members that are made together or not at all, and their pods: one of each kind, with how many there are."""

    members: list[Member]
    pods: list[tuple[Manifest, int]]


def batches(job: AIJob, members: Sequence[Member]) -> list[Batch]:
    """What is made together: what a job, or an element of its array, needs; then one by one what it can do without."""
    roles = {role.name: role for role in job.spec.roles}
    kinds = {name: pod(job, role, Member(name, 0, element=0 if job.spec.array else -1), 0) for name, role in roles.items()}
    needed: dict[int, Batch] = {}
    for each in members:
        if not each.elastic:
            needed.setdefault(each.element, Batch([], [])).members.append(each)
    for batch in needed.values():
        counts = Counter(each.role for each in batch.members)
        batch.pods = [(kinds[name], count) for name, count in sorted(counts.items())]
    return [*needed.values(), *(Batch([each], [(kinds[each.role], 1)]) for each in members if each.elastic)]


class _PriorityClass(msgspec.Struct, rename="camel"):
    metadata: views.Metadata
    global_default: bool = False


class _List(msgspec.Struct):
    items: list[Quota] = []


class Quotas:
    """Watches quotas, limit ranges and priority classes. changed: called with namespaces in which more may be admitted now."""

    def __init__(self, client: Client, faults: Faults, changed: Callable[[str], None]) -> None:
        self.client = client
        self._changed = changed
        self._quotas: dict[str, dict[str, Quota]] = {}  # namespace -> name -> quota
        self._ranges: dict[str, dict[str, LimitRange]] = {}
        self._defaults: set[str] = set()  # PriorityClasses of pods that name none
        self._making: set[str] = set()

        def informer(path: str, view: type[Any], take: Callable[[Change[Any]], None], about: About) -> Informer[Any]:
            return Informer(client, path, view, faults.each("jobs.quotas", take, about), lambda: None, key=_key)

        self.informers = {
            "quotas.watch": informer("/api/v1/resourcequotas", Quota, self._quota_changed, About("v1", "ResourceQuota")),
            "ranges.watch": informer("/api/v1/limitranges", LimitRange, self._range_changed, About("v1", "LimitRange")),
            "priorities.watch": informer(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                _PriorityClass,
                self._class_changed,
                About("scheduling.k8s.io/v1", "PriorityClass"),
            ),
        }

    # -- what is observed ----------------------------------------------------------------------

    def _quota_changed(self, change: Change[Quota]) -> None:
        self._take_in(self._quotas, change)

    def _range_changed(self, change: Change[LimitRange]) -> None:
        self._take_in(self._ranges, change)

    def _take_in(self, table: dict[str, dict[str, Kind]], change: Change[Kind]) -> None:
        if change.error:
            log.error("it cannot be read", key=change.key, error=change.error)
            return
        namespace, _, name = change.key.partition("/")
        known = table.setdefault(namespace, {})
        if change.view is None:
            known.pop(name, None)
        else:
            known[name] = change.view
        if not known:
            del table[namespace]
        self._changed(namespace)

    def _class_changed(self, change: Change[_PriorityClass]) -> None:
        if change.view is not None and change.view.global_default and not change.error:
            self._defaults.add(change.key)
        else:
            self._defaults.discard(change.key)

    # -- what is asked -------------------------------------------------------------------------

    def concerns(self, namespace: str) -> bool:
        """Whether a namespace has a quota or a limit range."""
        return namespace in self._quotas or namespace in self._ranges

    def enter(self, namespace: str) -> bool:
        """Begin to make pods in such a namespace; False: another job does so just now."""
        if namespace in self._making:
            return False
        self._making.add(namespace)
        return True

    def leave(self, namespace: str) -> None:
        """They are made."""
        self._making.discard(namespace)

    async def admitted(self, namespace: str, wanted: Sequence[Batch]) -> tuple[list[Batch], Refusal | None]:
        """Which batches would be admitted, one after the other, and why the first of the others would not.

        The quotas as observed mostly admit none; else they are read as they are now. Raises `ApiError` and
        `Unreachable`.
        """
        known = list(self._quotas.get(namespace, {}).values())
        fitting, why = self._judge(namespace, wanted, known)
        if not fitting or not known:
            return fitting, why
        reply = await self.client.get(f"/api/v1/namespaces/{namespace}/resourcequotas")
        return self._judge(namespace, wanted, msgspec.json.decode(reply, type=_List).items)

    def _judge(self, namespace: str, wanted: Sequence[Batch], quotas: Sequence[Quota]) -> tuple[list[Batch], Refusal | None]:
        ranges = [each for _, each in sorted(self._ranges.get(namespace, {}).items())]
        held: Held = {}
        fitting: list[Batch] = []
        why: Refusal | None = None
        for batch in wanted:
            refusal = refused(batch.pods, quotas, ranges, held, default_class=min(self._defaults, default=""))
            if refusal is None:
                fitting.append(batch)
            why = why or refusal
        return fitting, why


def _key(metadata: views.Metadata) -> str:
    return metadata.key if metadata.namespace else metadata.name
