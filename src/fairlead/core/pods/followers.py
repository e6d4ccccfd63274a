"""Followers: pods that are created once their leader has a node, and run in its domain.

A leader and the places that are reserved for its followers (`state/spares.py`) are a part of the gang with a domain of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from fairlead.core.model.groups import Followers, Group
from fairlead.core.model.network_labels import level_of
from fairlead.core.model.pods import Closeness, Near, Part, Pod
from fairlead.core.model.selectors import Labels
from fairlead.core.pods.tasks import Gang, Task, TaskState

_CONTROLLERS = ("jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/")
"""How labels begin that followers share with their leader, whatever their template has."""
_UNASKED = "\0\0"  # no name has it


def leads_others(group: Group | None) -> bool:
    """Whether places may be reserved for followers of a gang: not where it has slices, equal parts, roles or spares."""
    if group is None or not group.followers:
        return False
    return group.closeness is None or group.closeness == _levels_of(group.closeness)


def _levels_of(asked: Closeness) -> Closeness:
    """What is asked of all members alike."""
    return Closeness(asked.required, asked.preferred)


def of_leader(group: Group, pod: Pod) -> Followers | None:
    """The followers of a member; None: it leads none."""
    if pod.spare:
        return None
    labels = dict(pod.labels)
    return next((each for each in group.followers if all(labels.get(key) == value for key, value in each.leaders)), None)


def leaders(gang: Gang, states: Iterable[TaskState]) -> Iterator[tuple[Task, Followers]]:
    """The members of a gang that have followers, with these; those in certain states that stay."""
    if gang.group is None or not leads_others(gang.group):
        return
    for task in gang.tasks.values():
        near = task.pod.spec.near
        if near is None or not near.own or task.state not in states or task.pod.terminating:
            continue
        if (found := of_leader(gang.group, task.pod)) is not None:
            yield task, found


def near_leader(gang: Gang, pod: Pod, near: Near | None) -> Near | None:
    """What is asked of the place of a leader, or of one that is reserved for its followers: they are in one domain.

    near: what is asked of it for other reasons. Nothing is added to slices.
    """
    if gang.group is None or not leads_others(gang.group) or (near is not None and near.team):
        return near
    leader = pod
    if pod.leader:
        if pod.leader not in gang.tasks:
            return near
        leader = gang.tasks[pod.leader].pod
    found = of_leader(gang.group, leader)
    if found is None or not found.count:
        return near
    if near is None or not (near.required or near.preferred):
        # Only their annotations or claims may ask for levels of some members; others do not count for where these are.
        near = Near(f"{gang.key}{_UNASKED}")
    team = f"{gang.key}{_UNASKED}{leader.uid}"
    return msgspec.structs.replace(near, team=team, own=(Part(team, level_of(found.level)),))


def place_for(leader: Pod, followers: Followers, place: Pod, may_use: Callable[[str], bool]) -> Pod:
    """A place for one follower. place: one for the leader itself, which is taken over where nothing is known of followers.

    may_use: whether a queue admits them; where it does not the leader's queue is charged.
    """
    like = followers.like
    if like is None:
        spec = msgspec.structs.replace(place.spec, pod_affinity=(), pod_anti_affinity=())
        return msgspec.structs.replace(place, spec=spec, leader=leader.uid)
    return msgspec.structs.replace(
        place,
        spec=like.spec,
        queue=like.queue if like.queue and may_use(like.queue) else leader.queue,
        labels=_labels(leader.labels, like.labels),
        closeness=_levels_of(like.closeness) if like.closeness is not None else None,
        claims=like.claims,
        extended=like.extended,
        measured=(),
        measured_at=0.0,
        declares=like.declares,
        leader=leader.uid,
    )


def _labels(leader: Labels, template: Labels) -> Labels:
    shared = {key: value for key, value in leader if key.startswith(_CONTROLLERS)}
    return tuple(sorted({**shared, **dict(template)}.items()))
