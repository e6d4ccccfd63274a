"""Stand-ins of suspended jobs: what is recorded of pods that are suspended, and the placeholders that are made of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fairlead.api.names import API_VERSION
from fairlead.core.model.groups import Member
from fairlead.core.model.pods import Pod, on_paper
from fairlead.core.pods.tasks import Gang, Task
from fairlead.core.state.tables import Tables

_AI_JOB = f"{API_VERSION}/AIJob/"


def members_of(tables: Tables, tasks: list[Task], attained: float, now: float) -> tuple[Member, ...]:
    """What a job comes back as: the pods that are suspended, and of an AIJob also those that have succeeded.

    These start again with the others. Where their pods are gone, what they ask for is not known: no places are reserved.
    """
    gang, services = tasks[0].gang, tables.services
    done = gang.completions.pods() if gang is not None and gang.completions is not None else []
    anew = gang is not None and tasks[0].pod.root.startswith(_AI_JOB)
    shapes: dict[int, list[Task]] = {}
    for task in tasks:
        shapes.setdefault(task.shape.number, []).append(task)
    pods, counts = [], []
    for _, same in sorted(shapes.items()):
        came = services.attained.first_came(same[0])
        pods.append(record(same[0].pod, attained, came, now, anew=anew))
        counts.append(len(same))
    if anew and done:
        came = min(map(services.attained.first_came, tasks))
        kinds = {_kind(tables, pod): number for number, pod in enumerate(pods)}
        for pod in done:
            number = kinds.setdefault(_kind(tables, pod), len(pods))
            if number == len(pods):
                pods.append(record(pod, attained, came, now, anew=anew))
                counts.append(0)
            counts[number] += 1
    return tuple(Member(count, pod) for count, pod in zip(counts, pods, strict=True))


def ended_since(members: Iterable[Member], gang: Gang | None) -> list[Pod]:
    """The pods of an AIJob that have come back and succeeded since it resumed. Others keep what they had succeeded in before."""
    least = max((member.pod.attempt for member in members), default=0)
    done = gang.completions.pods() if gang is not None and gang.completions is not None else []
    return [pod for pod in done if pod.root.startswith(_AI_JOB) and pod.attempt >= least]


def _kind(tables: Tables, pod: Pod) -> tuple[object, ...]:
    """Equal for pods of a job that have one shape."""
    keys = tables.pairs.keys
    return pod.spec, tuple(pair for pair in pod.labels if pair[0] in keys)


def record(pod: Pod, attained: float, came: float, now: float, *, anew: bool) -> Pod:
    """What is remembered of a pod: what decides where and when one like it runs.

    attained: device-seconds of its job. came: when that came first. now: when it is suspended. anew: it comes back as one of the
    next attempt.
    """
    return msgspec.structs.replace(
        on_paper(pod),
        uid="",
        name="",
        terminating=False,
        finished=False,
        succeeded=0.0,
        attained=attained,
        suspended=now,
        created=came,
        attempt=pod.attempt + anew,
    )


def of_members(key: str, members: Iterable[Member], nodes: Sequence[str] = ()) -> Iterator[Pod]:
    """A placeholder for each member of a job. nodes: those that are nominated for the first ones; empty: none."""
    namespace, _, name = key.partition("/")
    pods = (member.pod for member in members for _ in range(member.count))
    for number, pod in enumerate(pods):
        uid = f"suspended/{key}/{number}"
        yield msgspec.structs.replace(
            pod,
            uid=uid,
            namespace=namespace,
            name=f"{name}-{number}",
            group=name,
            node="",
            nominated=nodes[number] if number < len(nodes) else "",
            placeholder=True,
        )


def places(placeholders: Iterable[Task], names: Sequence[str]) -> tuple[str, ...]:
    """The nodes of placeholders that have places, by the numbers of their members; empty: none. names: of nodes, by row."""
    placed = {int(task.pod.uid.rpartition("/")[2]): names[task.row] for task in placeholders if task.row >= 0}
    return tuple(placed.get(number, "") for number in range(max(placed, default=-1) + 1))


def alike(placeholder: Task, task: Task) -> bool:
    """Whether a pod may have the place of a placeholder: what is learned of its kind, which goes by its name, may differ."""
    one, other = placeholder.shape, task.shape
    if placeholder.queue != task.queue:
        return False
    return one is other or one.lasting() == other.lasting()


def without(kept: Sequence[tuple[Task, str]], taken: Iterable[Pod]) -> list[tuple[Task, str]]:
    """The placeholders that stand in for pods which have had no place yet, with their nodes.

    Each pod that has or had one has taken one: that on its node where it can. Which nodes it prefers does not matter: a job that
    has failed since it resumed prefers others.
    """
    left, elsewhere = list(kept), list[Pod]()
    for pod in taken:
        same = next((each for each in left if _stands_for(each[0].pod, pod) and each[1] == pod.node), None)
        if same is None:
            elsewhere.append(pod)
        else:
            left.remove(same)
    for pod in elsewhere:
        other = next((each for each in left if _stands_for(each[0].pod, pod)), None)
        if other is not None:
            left.remove(other)
    return left


def _stands_for(placeholder: Pod, pod: Pod) -> bool:
    one, other = (msgspec.structs.replace(each.spec, pressure=(), paired=(), preferred_nodes=None) for each in (placeholder, pod))
    return one == other
