"""What an event costs on a full cluster where work waits: a pod ends, is bound, comes; an object changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fairlead.cluster.port import Bound
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import UserLimits
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.simulation.growth.cluster import LATE, Cluster, empty, full, pod, running
from fairlead.simulation.growth.placing import tree
from fairlead.simulation.machines import GPUS_PER_NODE, queue

_NODES = 200
_LAST = _NODES * GPUS_PER_NODE - 1
_SEARCHES = 12  # in vain, until the rest between two is as long as it may be


class Events:
    """The same kind of event again and again, and the pass that follows it."""

    def __init__(self, cluster: Cluster, happens: Callable[[int], None], *, decides: bool = True) -> None:
        self._cluster = cluster
        self._happens = happens
        self._decides = decides

    def prepare(self, round_: int) -> None:
        """Nothing."""

    def run(self, round_: int) -> int:
        """It happens, and is answered."""
        self._happens(round_)
        if self._decides:
            self._cluster.decide()
        return 1


def _ends(cluster: Cluster) -> Events:
    return Events(cluster, lambda round_: cluster.remove(f"run-{round_}"))


def _with_waiting(classes: int) -> Cluster:
    """A full cluster on which so many unschedulable classes of one queue wait."""
    cluster = full(_NODES, [queue("q")])
    cluster.upsert(*[pod(f"wait-{number}", shape=number, created=LATE + number) for number in range(classes)])
    cluster.decide()
    return cluster


def end_by_classes(classes: int) -> Events:
    """A pod ends, one of 200 a second, and so many unschedulable classes of one queue have waited for minutes."""
    cluster = _with_waiting(classes)
    _wait(cluster, ["q"])
    return _ends(cluster)


def _wait(cluster: Cluster, queues: Sequence[str]) -> None:
    """Searches for what waits were in vain until it rests as long as it may between two of them.

    queues: of what runs, one after the other; another pod of its queue takes the place of each that ends.
    """
    for number in range(_SEARCHES):
        cluster.now += cluster.state.policy.search_backoff_limit
        for again in range(2):  # the second is within the backoff
            last = _LAST - 2 * number - again
            cluster.remove(f"run-{last}")
            cluster.upsert(pod(f"instead-{last}", queue=queues[last % len(queues)], created=0.0, user="first"))
            cluster.decide()
    cluster.step = 0.005


def bound_by_classes(classes: int) -> Events:
    """A binding is confirmed, and so many unschedulable classes wait in another queue."""
    cluster = empty(_NODES, [queue("q", 800), queue("other", 800)])
    cluster.upsert(*[pod(f"new-{number}", created=float(number)) for number in range(_NODES * GPUS_PER_NODE)])
    cluster.decide()
    cluster.upsert(*[pod(f"wait-{number}", queue="other", shape=number, created=LATE + number) for number in range(classes)])
    cluster.decide()
    return Events(cluster, lambda round_: cluster.take(Bound(f"new-{round_}")))


def end_by_queues(queues: int) -> Events:
    """A pod ends, one of 200 a second, and one pod has waited for minutes in each of so many queues."""
    made, leaves = tree(queues, 1)
    cluster = full(_NODES, made)
    cluster.upsert(
        *[pod(f"wait-{number}", queue=leaves[number % queues], created=LATE + number) for number in range(max(400, 2 * queues))]
    )
    cluster.decide()
    _wait(cluster, leaves)
    return _ends(cluster)


def end_by_limited_users(users: int) -> Events:
    """A pod ends, and so many users have as many jobs as their limit allows, and more that wait."""
    cluster = empty(1000, [queue("q", per_user=UserLimits(running=2))])
    cluster.upsert(*[pod(f"run-{number}", user=f"user-{number % users}", created=float(number)) for number in range(4 * users)])
    cluster.decide()
    return _ends(cluster)


def end_by_vain_searches(classes: int) -> Events:
    """A pod ends, and so many classes of its queue search for victims, while another queue is below its quota."""
    cluster = full(_NODES, [queue("q", 800), queue("other", 800)], fill=["q"])
    cluster.upsert(*[pod(f"wait-{number}", shape=number, created=LATE + number) for number in range(classes)])
    cluster.decide()
    return _ends(cluster)


def group_by_pods(pods: int) -> Events:
    """A PodGroup comes that names a service class, and so many pods wait already."""
    cluster = empty(_NODES, [queue("q")])
    cluster.upsert(ServiceClass("batch"))
    for number in range(pods // 4):
        cluster.upsert(*[pod(f"{number}-{member}", group=f"group-{number}", created=LATE) for member in range(4)])

    def happens(round_: int) -> None:
        cluster.upsert(Group("bench", f"group-{round_}", min_member=4, created=LATE, service_class="batch"))

    return Events(cluster, happens, decides=False)


def pod_by_submitted(pods: int) -> Events:
    """A pod comes to a queue that limits submitted jobs, and so many are known."""
    cluster = empty(max(10, pods // GPUS_PER_NODE + 1), [queue("q", per_user=UserLimits(submitted=1_000_000))])
    cluster.upsert(*[pod(f"run-{number}", user=f"user-{number % 50}", created=float(number)) for number in range(pods)])
    cluster.decide()
    return Events(cluster, lambda round_: cluster.upsert(pod(f"new-{round_}", user=f"user-{round_ % 50}", created=LATE)))


def budget_by_pods(pods: int) -> Events:
    """The status of a PodDisruptionBudget changes while a pod waits, and so many run."""
    cluster = full(pods // GPUS_PER_NODE, [queue("q")])
    cluster.upsert(DisruptionBudget("bench", "budget", _labelled("b")), pod("wait", created=LATE))
    cluster.decide()
    return Events(
        cluster, lambda round_: cluster.upsert(DisruptionBudget("bench", "budget", _labelled("b"), disrupted=(f"x-{round_}",)))
    )


def queue_by_pods(pods: int) -> Events:
    """A queue is edited, and so many pods run in another."""
    cluster = full(pods // GPUS_PER_NODE, [queue("q"), queue("other", 1)], fill=["q"])
    return Events(cluster, lambda round_: cluster.upsert(queue("other", 2 + round_)))


def idle_by_classes(classes: int) -> Events:
    """A pass without any event, and so many unschedulable classes wait."""
    cluster = _with_waiting(classes)
    return Events(cluster, lambda _: cluster.take())


def end_by_waiting_users(users: int) -> Events:
    """A pod ends, and one pod of each of so many users waits."""
    cluster = full(_NODES, [queue("q")])
    cluster.upsert(*[pod(f"wait-{number}", user=f"user-{number}", created=LATE + number) for number in range(users)])
    cluster.decide()
    return _ends(cluster)


def reclaim_by_budgets(budgets: int) -> Events:
    """A queue below its share reclaims a GPU, and what it may take is under so many PodDisruptionBudgets."""
    nodes = 250
    cluster = empty(nodes, [queue("q", 1000), queue("other", 1000)])
    cluster.upsert(
        *[msgspec.structs.replace(each, labels=(("app", f"a{number % budgets}"),)) for number, each in enumerate(running(nodes))]
    )
    cluster.upsert(
        *[
            DisruptionBudget("bench", f"budget-{number}", _labelled(f"a{number}"), allowed=0 if number % 4 else 1)
            for number in range(budgets)
        ]
    )
    cluster.decide()
    return Events(cluster, lambda round_: cluster.upsert(pod(f"claim-{round_}", queue="other", created=LATE)))


def _labelled(value: str) -> tuple[Requirement, ...]:
    return (Requirement("app", "In", (value,)),)
