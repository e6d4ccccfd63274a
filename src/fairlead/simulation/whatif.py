"""What if: a cluster as it is, changed on paper, and what the scheduler would do about it. Nothing is touched.

The production pass decides on a state made from the cluster's objects; its bindings count as done, and evicted pods
come back as waiting ones, until it decides nothing more. What still waits then is forecast. The same is done without the
changes, for comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.queue import QueueResource
from fairlead.api.names import HOSTNAME_LABEL
from fairlead.api.quantity import QuantityError
from fairlead.cluster import device_views, policies, requests, views
from fairlead.cluster.kinds import (
    DEVICES,
    NAMESPACE,
    NODE,
    NODE_POOL,
    POD_GROUP,
    PRIORITY_CLASS,
    QUEUE,
    RESERVATION,
    SERVICE_CLASS,
    Kind,
)
from fairlead.cluster.port import Synced
from fairlead.cluster.times import timestamp
from fairlead.cluster.translate import FIELDS, Objects, first_events
from fairlead.core.forecast import forecast
from fairlead.core.model.charges import split
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Deallocate, Place, Preempt, Refuse, Resume
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import Output
from fairlead.simulation import absent, paper_claims, spelled, submitted

_PASSES = 200
_MOST_NODES = 100_000  # that one question adds
_DIGITS = 9  # of a number of nodes
_DEFAULT = Policy()


class WhatIfError(ValueError):
    """A change that cannot be made: what is wrong and what to do."""


class Job(msgspec.Struct, frozen=True):
    """One job, `namespace/name`. starts: `now`, `later` or `never` as things stand; wait_seconds: until it starts, if known."""

    job: str
    queue: str
    pods: int
    gpus: float
    starts: str
    wait_seconds: float | None
    nodes: list[str]
    reason: str


class Evicted(msgspec.Struct, frozen=True):
    """One pod that would be evicted, and for which job."""

    pod: str
    queue: str
    node: str
    by: str


class QueueOutcome(msgspec.Struct, frozen=True):
    """One queue in the end: devices it holds, jobs that still wait, and how long these are expected to."""

    name: str
    gpus: float
    waiting: int
    mean_wait_seconds: float | None
    longest_wait_seconds: float | None


class Outcome(msgspec.Struct, frozen=True):
    """What becomes of a cluster."""

    jobs: list[Job]
    evicted: list[Evicted]
    queues: list[QueueOutcome]
    utilization: float


class Others(msgspec.Struct, frozen=True):
    """Jobs of other namespaces in one queue, counted: how many start now that would not as it is, or later; pods evicted."""

    queue: str
    starts: int = 0
    delayed: int = 0
    evicted: int = 0


class WhatIf(msgspec.Struct, frozen=True):
    """The cluster as it is, as it would be, and what differs: jobs that would start now, or later than as it is.

    others: the jobs of other namespaces, counted by queue, where the user may see one namespace alone; they are nowhere else.
    """

    before: Outcome
    after: Outcome
    starts: list[str]
    delayed: list[str]
    evicted: list[str]
    others: list[Others] = []


def what_if(before: Objects, after: Objects, policy: Policy = _DEFAULT, then: Policy | None = None) -> WhatIf:
    """Compare two states of a cluster. policy: the scheduler's; then: how it would be afterwards, if that differs."""
    return compare(play(before, policy), play(after, then or policy))


def compare(one: Outcome, two: Outcome) -> WhatIf:
    """What differs between two outcomes: as it is, and as it would be."""
    old, new = {each.job: each for each in one.jobs}, {each.job: each for each in two.jobs}
    evicted_before = {each.pod for each in one.evicted}
    return WhatIf(
        before=one,
        after=two,
        starts=sorted(job for job, each in new.items() if each.starts == "now" and (job not in old or old[job].starts != "now")),
        delayed=sorted(job for job, each in new.items() if job in old and _later(each) > _later(old[job]) * 1.1 + 1.0),
        evicted=sorted(each.pod for each in two.evicted if each.pod not in evicted_before),
    )


def _later(job: Job) -> float:
    if job.starts == "now":
        return 0.0
    return 1e12 if job.wait_seconds is None else job.wait_seconds


def play(objects: Objects, policy: Policy = _DEFAULT) -> Outcome:
    """What the scheduler would do from here on, without any other changes."""
    return _Trial(objects, policy).run()


class _Trial:
    def __init__(self, objects: Objects, policy: Policy) -> None:
        self.objects = objects
        self.decided: list[Output] = []
        self.core = CoreLoop(policy, self.decided.extend)
        self.core.apply([*first_events(paper_claims.settled(objects)), Synced()], objects.now)
        self.evicted: list[Evicted] = []
        self.started: dict[str, set[str]] = {}  # job -> nodes
        self.reasons: dict[str, str] = {}  # uid -> why it waits
        self.waited = {task.job: (len(mates), _named(task)) for task, mates in self._waiting()}

    def _waiting(self) -> list[tuple[Task, list[Task]]]:
        jobs: dict[str, list[Task]] = {}
        for _, task in sorted(self.core.state.tasks.items()):
            if task.pod.ours and task.row < 0 and not task.pod.node and not task.pod.terminating and not task.pod.spare:
                jobs.setdefault(task.job, []).append(task)
        return [(mates[0], mates) for mates in jobs.values()]

    def run(self) -> Outcome:
        state, now = self.core.state, self.objects.now
        for _ in range(_PASSES):
            self.decided.clear()
            self.core.decide(now)
            moved = [each for each in self.decided if isinstance(each, Place | Preempt | Resume | Deallocate)]
            for each in self.decided:
                if isinstance(each, Refuse):
                    self.reasons |= {pod.uid: f"{each.reason.code}: {each.reason.message}" for pod in each.pods}
            if not moved and not self.core.has_work:
                break
            for each in moved:
                self._carry_out(each)
        foreseen = forecast(state, now)
        jobs = [self._job(task, mates, foreseen) for task, mates in self._waiting()]
        jobs += [self._started(job) for job in sorted(self.started)]
        return Outcome(sorted(jobs, key=lambda job: job.job), self.evicted, self._queues(jobs), self._utilization())

    def _carry_out(self, decision: Place | Preempt | Resume | Deallocate) -> None:
        state = self.core.state
        if isinstance(decision, Deallocate):
            paper_claims.give_back(state, decision.bindings)
            return
        if isinstance(decision, Resume):
            for pod, node in zip(decision.pods, decision.nodes, strict=True):
                self.started.setdefault(state.tasks[pod.uid].job, set()).add(node)
                self.reasons.pop(pod.uid, None)
                state.pods.bound(pod.uid)
            return
        if isinstance(decision, Place):
            for binding in decision.bindings:
                task = state.tasks[binding.pod.uid]
                self.started.setdefault(task.job, set()).add(binding.node)
                self.reasons.pop(binding.pod.uid, None)
                paper_claims.write(state, binding)
                state.pods.bound(binding.pod.uid)
            return
        by = decision.group or (decision.beneficiaries[0].pod.key if decision.beneficiaries else str(decision.why))
        for victim in decision.victims:
            task = state.tasks[victim.pod.uid]
            self.evicted.append(Evicted(victim.pod.key, task.queue, victim.node, by))
            theirs = [state.device_claims.claims[use.key] for use in task.pod.claims if use.key in state.device_claims.claims]
            state.remove_pod(victim.pod.uid)
            paper_claims.release(state, task.pod)
            if task.pod.controlled or task.pod.group:
                fields = {"uid": f"{task.pod.uid}+", "node": "", "started": None, "created": self.objects.now, "nominated": ""}
                again = msgspec.structs.replace(task.pod, **fields)
                state.upsert_pod(paper_claims.made_again(state, again, theirs) if theirs else again)
            if task.job in self.started and not any(
                each.job == task.job and each.row >= 0 and not each.pod.spare for each in state.tasks.values()
            ):
                del self.started[task.job]  # it was evicted again before anything was done: it did not start

    def _job(self, first: Task, mates: list[Task], foreseen: dict[str, float]) -> Job:
        start = foreseen.get(first.job)
        reason = next((self.reasons[task.pod.uid] for task in mates if task.pod.uid in self.reasons), "")
        wait = None if start is None else max(0.0, start - self.objects.now)
        gpus = self._gpus(mates)
        return Job(_named(first), first.queue, len(mates), gpus, "never" if start is None else "later", wait, [], reason)

    def _started(self, job: str) -> Job:
        state = self.core.state
        tasks = [task for task in state.tasks.values() if task.job == job and task.row >= 0 and not task.pod.spare]
        nodes = sorted(self.started[job])
        first = tasks[0] if tasks else None
        name = _named(first) if first is not None else job
        return Job(name, first.queue if first is not None else "", len(tasks), self._gpus(tasks), "now", 0.0, nodes, "")

    def _queues(self, jobs: Iterable[Job]) -> list[QueueOutcome]:
        state = self.core.state
        waits: dict[str, list[float | None]] = {}
        for job in jobs:
            if job.starts != "now":
                waits.setdefault(job.queue, []).append(job.wait_seconds)
        found = []
        for name, node in sorted(state.queues.queues.items()):
            known = [wait for wait in waits.get(name, ()) if wait is not None]
            held = sum(node.used.get(resource, 0) for resource in names.GPU_RESOURCES) / WHOLE
            mean, longest = (fmean(known), max(known)) if known else (None, None)
            found.append(QueueOutcome(name, held, len(waits.get(name, ())), mean, longest))
        return found

    def _gpus(self, tasks: list[Task]) -> float:
        return sum(map(self.core.state.queues.tree.parts.of, tasks)) / WHOLE

    def _utilization(self) -> float:
        state = self.core.state
        tree = state.queues.tree
        total = sum(tree.total(resource) for resource in state.nodes.gpus_known)
        held = sum(tree.parts.on(row)[1] for row in state.nodes.rows.values()) + state.nodes.claimed.held()
        return held / total if total else 0.0


def _named(task: Task) -> str:
    return task.gang.key if task.gang is not None else task.pod.key


_OF_THE_NODE = ("DaemonSet", "Node")
"""What makes pods for a node, and no other one where that goes."""
_OF_ITS_STATE = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidate",
)
"""Taints for the state of one node, such as cordoned, which nodes like it do not share."""

# -- changes -----------------------------------------------------------------------------------

_LISTS = {
    kind.kind: kind
    for kind in (NODE, NAMESPACE, QUEUE, POD_GROUP, SERVICE_CLASS, PRIORITY_CLASS, RESERVATION, NODE_POOL, *DEVICES)
}
_SCOPED = (POD_GROUP.kind, "ResourceClaim", "ResourceClaimTemplate")


def apply(objects: Objects, manifest: dict[str, Any], namespace: str, most: int = submitted.MOST_PODS) -> int:
    """Add an object, or put it in place of the one of its name; how many pods that makes, `most` at most. Raises `WhatIfError`.

    Jobs and Deployments become their pods, AIJobs their PodGroups and pods, as if all were ended that they depend on.
    """
    kind, metadata = manifest.get("kind"), manifest.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(kind, str) or not isinstance(name, str) or not name:
        raise WhatIfError("a manifest needs `kind` and `metadata.name`")
    if not isinstance(metadata.get("namespace") or "", str):
        raise WhatIfError(f"{kind} {name!r}: metadata.namespace is no name")
    if kind in _LISTS or kind in submitted.KINDS:
        _check_spelling(spelled.check, manifest)
    if kind in _LISTS:
        listed: Kind[Any] = _LISTS[kind]
        field, scoped = FIELDS[listed.name], kind in _SCOPED
        made = _read(
            listed.view,
            {**manifest, "metadata": {**metadata, **({"namespace": metadata.get("namespace") or namespace} if scoped else {})}},
        )
        _check_spelling(spelled.check_rules, manifest)
        if kind == QUEUE.kind:
            _check(made)
        if listed in DEVICES:
            try:
                made = paper_claims.given(objects, made)
            except paper_claims.CannotGive as error:
                raise WhatIfError(f"{kind} {error}") from error
        kept = [each for each in getattr(objects, field) if not _is(each.metadata, name, made.metadata.namespace, scoped)]
        setattr(objects, field, [*kept, made])
        return 0
    if kind not in submitted.KINDS:
        known = ", ".join(sorted([*_LISTS, *submitted.KINDS]))
        raise WhatIfError(f"{kind} is not known here; known are {known}")
    where = metadata.get("namespace") or namespace
    try:
        if kind == "AIJob":
            job = submitted.read_ai_job(manifest, where, objects.classes, objects.now)
            _check_spelling(spelled.check_rules, manifest)
            groups, pods = submitted.ai_job(job, objects.now, most)
            _prepare(objects, job, groups)
        else:
            pods = submitted.pods_of(manifest, where, objects.now, most)
    except submitted.CannotSubmit as error:
        raise WhatIfError(str(error)) from error
    _add_pods(objects, pods)
    return len(pods)


def _check_spelling(check: Callable[[dict[str, Any]], None], manifest: dict[str, Any]) -> None:
    try:
        check(manifest)
    except spelled.Misspelled as error:
        raise WhatIfError(str(error)) from error


def _prepare(objects: Objects, job: AIJob, groups: list[dict[str, Any]]) -> None:
    """The groups of an AIJob, in place of what there is of the one of its name."""
    objects.pods = [each for each in objects.pods if not submitted.is_of(each, job)]
    for manifest in groups:
        group = _read(views.PodGroup, manifest)
        named = group.metadata.name, group.metadata.namespace
        objects.groups = [each for each in objects.groups if not _is(each.metadata, *named, True)] + [group]


def _add_pods(objects: Objects, manifests: Sequence[dict[str, Any]]) -> None:
    values = {each.metadata.name: each.value for each in objects.priorities}
    added = {}
    for manifest in manifests:
        pod = requests.defaulted(_read(views.Pod, manifest))
        named = manifest["spec"].get("priorityClassName")
        value = values.get(named) if isinstance(named, str) else None
        if value is not None and pod.spec.priority is None:
            pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=value))
        added[pod.metadata.uid] = pod
    objects.pods = [*(each for each in objects.pods if each.metadata.uid not in added), *added.values()]
    if len(objects.pods) > submitted.MOST_PODS:
        raise WhatIfError(f"more than {submitted.MOST_PODS} pods")


def _is(metadata: views.Metadata, name: str, namespace: str, scoped: bool) -> bool:
    return metadata.name == name and (not scoped or metadata.namespace == namespace)


def _read(view: type[Any], manifest: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(manifest, view)
    except msgspec.ValidationError as error:
        raise WhatIfError(f"{manifest.get('kind')} {manifest['metadata']['name']!r} cannot be read: {error}") from error


def amount_of(field: str, text: str) -> tuple[str, str, str, str]:
    """(queue, field, resource, amount) of `QUEUE:RESOURCE=AMOUNT`. Raises `WhatIfError`."""
    what, equals, amount = text.rpartition("=")
    queue, colon, resource = what.partition(":")
    if not (equals and colon and queue and resource and amount):
        raise WhatIfError(f"--{field} {text!r} is not QUEUE:RESOURCE=AMOUNT, such as vision:nvidia.com/gpu=16")
    return queue, field, resource, amount


def count_of(text: str, most: int = _MOST_NODES) -> tuple[int, str]:
    """(count, node that they are like) of `COUNT` or `COUNT:NODE`. Raises `WhatIfError`."""
    count, _, like = text.partition(":")
    if not (count.isascii() and count.isdigit() and len(count) <= _DIGITS and 1 <= int(count) <= most):
        raise WhatIfError(f"--add-nodes {text!r} is not COUNT or COUNT:NODE, with 1 to {most} nodes")
    return int(count), like


def set_given(
    objects: Objects, quota: Sequence[str], limit: Sequence[str], nodes: str, drained: Sequence[str], most: int = _MOST_NODES
) -> None:
    """Change quotas and limits, add nodes, drain some, each as it is given on the command line. Raises `WhatIfError`."""
    for field, given in (("quota", quota), ("limit", limit)):
        for text in given:
            set_amount(objects, *amount_of(field, text))
    if nodes:
        add_nodes(objects, *count_of(nodes, most))
    for node in drained:
        drain(objects, node)


def set_amount(objects: Objects, queue: str, field: str, resource: str, amount: str) -> None:
    """Change the quota or the limit of a queue, of one pool where it is `RESOURCE@POOL`. field: which. Raises `WhatIfError`."""
    found = next((each for each in objects.queues if each.metadata.name == queue), None)
    if found is None:
        none = "" if objects.queues else ": there is no Queue, and without one all jobs share queue 'default'"
        raise WhatIfError(f"queue {queue!r} does not exist{none}")
    entries = list(found.spec.resources or ())
    name, pool = split(resource)
    if wrong := absent.of(objects, name, pool):
        raise WhatIfError(f"--{field} {queue}:{resource}: {wrong}")
    entry = next((each for each in entries if each.name == name and (each.pool or "") == pool), None)
    entry = entry or QueueResource(name=name, pool=pool or None)
    changed = msgspec.structs.replace(entry, **{field: amount})
    resources = [each for each in entries if each is not entry] + [changed]
    made = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, resources=resources))
    _check(made)
    objects.queues = [each for each in objects.queues if each is not found] + [made]


def _check(queue: views.Queue) -> None:
    """Of a queue with an amount that is none the scheduler would keep the version before, which does not exist here."""
    try:
        policies.queue(queue)
    except QuantityError as error:
        raise WhatIfError(f"queue {queue.metadata.name!r}: {error}") from error


def add_nodes(objects: Objects, count: int, like: str) -> None:
    """More nodes like one that is there (empty: like the one with most devices), but sound and open. Raises `WhatIfError`."""
    if not objects.nodes:
        raise WhatIfError("there is no node to copy: give a Node in a file")
    if like:
        model = next((each for each in objects.nodes if each.metadata.name == like), None)
        if model is None:
            raise WhatIfError(f"node {like!r} does not exist")
    else:
        model = max(objects.nodes, key=_devices)
    taints = [each for each in model.spec.taints or () if not each.key.startswith(_OF_ITS_STATE)]
    spec = msgspec.structs.replace(model.spec, unschedulable=False, taints=taints)
    copied = {key: value for key, value in (model.metadata.labels or {}).items() if key != names.QUARANTINED_LABEL}
    taken, slices = {each.metadata.name for each in objects.nodes}, list[device_views.ResourceSlice]()
    fresh = (name for number in itertools.count() if (name := f"what-if-{number:04d}") not in taken)
    for name in itertools.islice(fresh, count):
        labels = copied | ({HOSTNAME_LABEL: name} if HOSTNAME_LABEL in copied else {})
        metadata = msgspec.structs.replace(model.metadata, name=name, uid=name, labels=labels)
        objects.nodes.append(msgspec.structs.replace(model, metadata=metadata, spec=spec))
        slices += paper_claims.copied(objects.slices, model.metadata.name, name)
    objects.slices = [*objects.slices, *slices]


def _devices(node: views.Node) -> int:
    allocatable = (node.status.allocatable if node.status else None) or {}
    return sum(int(allocatable[name]) for name in names.GPU_RESOURCES if str(allocatable.get(name, "")).isdigit())


def drain(objects: Objects, node: str) -> None:
    """A node goes; its pods that a controller recreates wait again, the others are gone. Raises `WhatIfError`."""
    if not any(each.metadata.name == node for each in objects.nodes):
        raise WhatIfError(f"node {node!r} does not exist")
    objects.nodes = [each for each in objects.nodes if each.metadata.name != node]
    objects.slices = [each for each in objects.slices if each.spec.node_name != node]
    pods = []
    for pod in objects.pods:
        if pod.spec.node_name != node:
            pods.append(pod)
        elif _comes_again(pod):
            metadata = msgspec.structs.replace(
                pod.metadata, uid=f"{pod.metadata.uid}+", creation_timestamp=timestamp(objects.now)
            )
            pods.append(views.Pod(metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name="")))
    objects.pods = pods


def _comes_again(pod: views.Pod) -> bool:
    """Whether another is made for a pod whose node goes: not for one that ended, or is ending, or is there for the node."""
    if pod.metadata.deletion_timestamp is not None or (pod.status is not None and pod.status.phase in ("Succeeded", "Failed")):
        return False
    return any(each.controller and each.kind not in _OF_THE_NODE for each in pod.metadata.owner_references or ())
