"""What if, asked by a user of one namespace: what the question may change, and what of the answer is theirs to see.

The cluster that is played is the real one, so the user's own jobs are answered as an administrator's would be. Of all other
namespaces the answer has counts only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean
from typing import Any, TypeVar

import msgspec

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kinds import POD_GROUP
from fairlead.cluster.translate import Objects
from fairlead.core.model.policy import Policy
from fairlead.scheduler.others import ANOTHERS, without_others
from fairlead.simulation import submitted, whatif
from fairlead.simulation.whatif import Evicted, Job, Others, Outcome, QueueOutcome, WhatIf, WhatIfError

MOST_MANIFESTS, MOST_PODS, MOST_CHANGES, MOST_NODES = 500, 10_000, 100, 1000
"""Of one question: manifests, pods that they make together, quotas, limits and drained nodes each, and nodes to add."""

Stamped = TypeVar("Stamped", views.Pod, views.PodGroup)

_KINDS = (*submitted.KINDS, POD_GROUP.kind, "ResourceClaim", "ResourceClaimTemplate")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_BYTES = 128 << 20  # of a manifest, times the pods that it makes
_HIGHEST_PRIORITY = 1_000_000_000  # that a PriorityClass has which is none of the system's
_UNREADABLE = "the question cannot be read: {}; it is JSON as `fairlead whatif` sends it"


class NotYours(WhatIfError):
    """What the user may not change, not even on paper: what it is and what to do."""


class Question(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What would be different. quota, limit: `QUEUE:RESOURCE=AMOUNT`; add_nodes: `COUNT` or `COUNT:NODE`; drain: nodes."""

    manifests: list[dict[str, Any]] = []
    quota: list[str] = []
    limit: list[str] = []
    add_nodes: str = ""
    drain: list[str] = []


class _Body(msgspec.Struct, frozen=True):
    spec: Question = Question()


def read(body: bytes) -> Question:
    """The question in the body of a request. Raises `WhatIfError`."""
    try:
        question = msgspec.json.decode(body, type=_Body).spec
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WhatIfError(_UNREADABLE.format(error)) from error
    except RecursionError as error:
        raise WhatIfError(_UNREADABLE.format("it is nested too deeply")) from error
    for given, field in ((question.quota, "quotas"), (question.limit, "limits"), (question.drain, "drained nodes")):
        if len(given) > MOST_CHANGES:
            raise WhatIfError(f"{len(given)} {field} in one question; at most {MOST_CHANGES} are answered")
    if len(question.manifests) > MOST_MANIFESTS:
        raise WhatIfError(f"{len(question.manifests)} manifests in one question; at most {MOST_MANIFESTS} are answered")
    return question


def changed(objects: Objects, question: Question, namespace: str, user: str) -> Objects:
    """The cluster as it would be; `objects` stay as they are. user: who asks, whose the new workloads are.

    Raises `NotYours` for what is outside the namespace, `WhatIfError` for what cannot be.
    """
    found = msgspec.structs.replace(objects, nodes=list(objects.nodes))
    before = {id(each) for each in (*objects.pods, *objects.groups)}
    made = 0
    for manifest in question.manifests:
        size = len(msgspec.json.encode(manifest))
        made += whatif.apply(found, _own(manifest, namespace), namespace, min(MOST_PODS - made, _BYTES // size))
    values = {each.value for each in objects.priorities}
    found.pods = [each if id(each) in before else _as_of(each, user, values) for each in found.pods]
    found.groups = [each if id(each) in before else _stamped(each, user) for each in found.groups]
    whatif.set_given(found, question.quota, question.limit, question.add_nodes, question.drain, MOST_NODES)
    return found


def answer(before: Outcome, after: Objects, namespace: str, policy: Policy) -> WhatIf:
    """What the user may know. before: what becomes of the cluster as it is; after: as it would be, by `changed`."""
    return as_of(whatif.compare(before, whatif.play(after, policy)), namespace, _namespaces(after))


# -- what may be asked -------------------------------------------------------------------------


def _own(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A manifest that the user could create, without what the API server would not take from them."""
    kind, metadata = manifest.get("kind"), manifest.get("metadata")
    if not isinstance(kind, str) or not isinstance(metadata, dict):
        raise WhatIfError("a manifest needs `kind` and `metadata.name`")
    if kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise NotYours(
            f"a manifest of kind {kind[:64]!r} is not answered as of a namespace, only {known}: ask what a quota, a limit or "
            "more nodes would do with --quota, --limit and --add-nodes, or have an administrator ask"
        )
    name, where = metadata.get("name"), metadata.get("namespace") or namespace
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise WhatIfError(f"{kind} {str(name)[:64]!r}: metadata.name is no name of an object: small letters, digits, '-' and '.'")
    if where != namespace:
        raise NotYours(
            f"{kind} {name!r} is of namespace {str(where)[:64]!r}, and the question is asked in {namespace!r}: ask it in the "
            "manifest's own with --namespace, if you may view that; one question is about one namespace"
        )
    return {key: value for key, value in manifest.items() if key != "status"}


def _as_of(pod: views.Pod, user: str, values: AbstractSet[int]) -> views.Pod:
    """A new pod as its user's. values: of PriorityClasses. Raises `NotYours` where it asks about more than the namespace."""
    spec, name = pod.spec, pod.metadata.name
    if spec.node_name:
        raise NotYours(f"pod {name!r} names its node in spec.nodeName: leave it out, the scheduler chooses")
    if spec.priority and spec.priority not in values:
        raise NotYours(f"pod {name!r} has spec.priority {spec.priority}, which no PriorityClass gives: name a class instead")
    if spec.priority is not None and spec.priority > _HIGHEST_PRIORITY:
        raise NotYours(f"pod {name!r} has a PriorityClass of the system (priority {spec.priority}): name another class")
    for term in _pod_terms(spec.affinity):
        if term.namespace_selector is not None or any(each != pod.metadata.namespace for each in term.namespaces or ()):
            raise NotYours(f"pod {name!r} has affinity to pods of other namespaces, which are not shown: leave these terms out")
    return _stamped(pod, user)


def _pod_terms(affinity: views.Affinity | None) -> Iterator[views.PodAffinityTerm]:
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if each is not None:
            yield from each.required or ()
            yield from (preferred.pod_affinity_term for preferred in each.preferred or ())


def _stamped(made: Stamped, user: str) -> Stamped:
    """As the policies stamp it: by who asks, whatever stamp it carries."""
    annotations = {**(made.metadata.annotations or {}), names.USER_ANNOTATION: user}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


# -- what is shown -----------------------------------------------------------------------------


def as_of(result: WhatIf, namespace: str, known: AbstractSet[str]) -> WhatIf:
    """An answer as of one namespace. known: all namespaces."""
    own = f"{namespace}/"
    return WhatIf(
        before=_outcome(result.before, own, known),
        after=_outcome(result.after, own, known),
        starts=_of(own, result.starts),
        delayed=_of(own, result.delayed),
        evicted=_of(own, result.evicted),
        others=_counted(result, own),
    )


def _of(own: str, keys: Iterable[str]) -> list[str]:
    return [each for each in keys if each.startswith(own)]


def _outcome(outcome: Outcome, own: str, known: AbstractSet[str]) -> Outcome:
    jobs = [each for each in outcome.jobs if each.job.startswith(own)]
    shown = [msgspec.structs.replace(each, reason=without_others(each.reason, own[:-1], known)) for each in jobs]
    evicted = [_by_whom(each, own) for each in outcome.evicted if each.pod.startswith(own)]
    return Outcome(shown, evicted, [_queue(each, jobs) for each in outcome.queues], outcome.utilization)


def _by_whom(victim: Evicted, own: str) -> Evicted:
    """A pod of the namespace: for which of its jobs it would be evicted, or for another's."""
    return victim if victim.by.startswith(own) else msgspec.structs.replace(victim, by=f"{ANOTHERS} job")


def _queue(queue: QueueOutcome, jobs: Sequence[Job]) -> QueueOutcome:
    """A queue with the waits of the namespace's jobs: a mean over one job of another would be that job's."""
    waits = [each.wait_seconds for each in jobs if each.queue == queue.name and each.starts != "now"]
    known = [wait for wait in waits if wait is not None]
    mean, longest = (fmean(known), max(known)) if known else (None, None)
    return msgspec.structs.replace(queue, mean_wait_seconds=mean, longest_wait_seconds=longest)


def _counted(result: WhatIf, own: str) -> list[Others]:
    """What would happen to the jobs of other namespaces, by queue."""
    queue_of = {each.job: each.queue for each in result.after.jobs}
    victims = {each.pod: each.queue for each in result.after.evicted}
    counts: dict[str, dict[str, int]] = {}
    for field, keys, queues in (
        ("starts", result.starts, queue_of),
        ("delayed", result.delayed, queue_of),
        ("evicted", result.evicted, victims),
    ):
        for key in keys:
            if not key.startswith(own):
                found = counts.setdefault(queues[key], {})
                found[field] = found.get(field, 0) + 1
    return [Others(queue, **found) for queue, found in sorted(counts.items())]


def _namespaces(objects: Objects) -> set[str]:
    """All that an object names as its own, or that exist."""
    known = {each.metadata.name for each in objects.namespaces}
    known.update(each.metadata.namespace for each in objects.pods)
    known.update(each.metadata.namespace for each in objects.groups)
    known.update(each.metadata.namespace for each in objects.budgets)
    return known
