"""A closed world: pods come and go on a few nodes, the core places them, and the kubelet's own managers admit them in that order.

NodeResourceTopology objects are up to a minute old when they arrive. A case is one pod that came. Every pod is also tried on
every node that has enough of each resource, so that nodes which would do, and which the core passes over, are counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead.cluster import numa, pod_specs, views
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.transactions import Place, Transaction
from fairlead.core.numa.model import Machine, NumaNeed
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from testbed.numa import cases, judge

_NODES = 4
_STALE = 60.0


class Result(msgspec.Struct, frozen=True):
    """What became of the pods.

    cases: pods that came; placed: of them; refused_by_kubelet: of those. nodes: (pod, node) where the kubelet would admit it;
    missed: of them those that the core excluded, missed_nodes: their share in percent.
    """

    cases: int
    placed: int
    refused_by_kubelet: int
    nodes: int
    missed: int
    missed_nodes: float
    judge: str


class World(NamedTuple):
    """What happened on each node, as the judge reads it. expected: for each step what it is, and our verdict."""

    jobs: list[dict[str, Any]]
    expected: list[list[tuple[str, bool]]]
    cases: int
    placed: int


def world(seed: int, pods: int) -> World:
    """One world: so many pods come, by the same seed the same."""
    draw = random.Random(seed)
    machines = {f"node-{at}": cases.machine(draw) for at in range(_NODES)}
    state = ClusterState()
    for name, machine in machines.items():
        state.upsert_node(_node(name, machine))
        state.numa.upsert(numa.topology(_object(name, machine, 0)))
    steps: dict[str, list[dict[str, Any]]] = {name: [] for name in machines}
    expected: dict[str, list[tuple[str, bool]]] = {name: [] for name in machines}
    ends: list[tuple[float, str, str]] = []
    reports = [(draw.uniform(0, _STALE), name) for name in machines]
    told: dict[str, list[dict[str, Any]]] = {}
    now, came, placed = 0.0, 0, 0
    while came < pods:
        now += draw.expovariate(1 / 10)
        for at, (due, name) in enumerate(reports):
            if due <= now:
                state.numa.upsert(numa.topology(_object(name, machines[name], draw.randrange(1 << 30))))
                reports[at] = (now + draw.uniform(0, _STALE), name)
        for end, uid, name in sorted(ends):
            if end <= now:
                state.remove_pod(uid)
                steps[name].append({"remove": uid})
                expected[name].append(("remove", True))
        ends = [each for each in ends if each[0] > now]
        uid = f"pod-{came}"
        like = draw.choice(sorted(machines))
        need, told[uid] = cases.need(draw, machines[like])
        came += 1
        state.upsert_pod(Pod(uid, "ns", uid, _spec(need, told[uid])))
        task = state.tasks[uid]
        prefer = list(range(8))
        draw.shuffle(prefer)
        for name in machines:
            row = state.nodes.rows[name]
            if task.ranking.fits_alone(row):
                steps[name].append({"try": uid, "containers": told[uid], "prefer": prefer})
                expected[name].append(("try", task.ranking.fits_row(row)))
        chosen = _placed(list(schedule(state, now)), uid)
        if chosen is None:
            state.remove_pod(uid)
            continue
        placed += 1
        steps[chosen].append({"admit": uid, "containers": told[uid], "prefer": prefer})
        expected[chosen].append(("admit", True))
        state.upsert_pod(msgspec.structs.replace(state.tasks[uid].pod, node=chosen))
        ends.append((now + draw.expovariate(1 / 60), uid, chosen))
    jobs = [{"node": cases.node(machines[name]), "steps": steps[name]} for name in machines]
    return World(jobs, [expected[name] for name in machines], came, placed)


def _placed(transactions: Sequence[Transaction], uid: str) -> str | None:
    for each in transactions:
        if isinstance(each, Place):
            for binding in each.bindings:
                if binding.pod.uid == uid:
                    return binding.node
    return None


def _node(name: str, machine: Machine) -> Node:
    totals = {"cpu": 0, "memory": 0, "pods": 110}
    for zone in machine.zones:
        totals["cpu"] += (zone.cpus - zone.cpus_reserved) * 1000
        for resource, amount in (*zone.memory, *zone.devices):
            totals[resource] = totals.get(resource, 0) + amount
    return Node(name, totals)


def _object(name: str, machine: Machine, version: int) -> numa.NodeResourceTopology:
    """The node's object, as an exporter writes it. version: makes what is said to be free different."""
    zones = []
    for at, zone in enumerate(machine.zones):
        amounts = [("cpu", zone.cpus, zone.cpus - zone.cpus_reserved)] if machine.static else []
        amounts += [(each, size, size) for each, size in zone.memory] if machine.memory_static else []
        amounts += [(each, count, count) for each, count in zone.devices]
        zones.append(
            {
                "name": f"node-{at}",
                "type": "Node",
                "costs": [{"name": f"node-{to}", "value": cost} for to, cost in enumerate(machine.distances[at])],
                "attributes": [{"name": "socket", "value": str(zone.socket)}],
                "resources": [
                    {"name": each, "capacity": str(all_), "allocatable": str(usable), "available": str(version % (usable + 1))}
                    for each, all_, usable in amounts
                ],
            }
        )
    attributes = {
        "topologyManagerPolicy": machine.policy,
        "topologyManagerScope": machine.scope,
        "topologyManagerPolicyOptions": f"prefer-closest-numa-nodes={str(machine.closest).lower()}",
        "cpuManagerPolicyOptions": f"full-pcpus-only={str(machine.full_cores).lower()}",
        "threadsPerCore": str(machine.threads),
    }
    told = {
        "metadata": {"name": name},
        "zones": zones,
        "attributes": [{"name": key, "value": value} for key, value in attributes.items()],
    }
    return msgspec.convert(told, numa.NodeResourceTopology)


def _spec(need: NumaNeed, containers: list[dict[str, Any]]) -> PodSpec:
    """What the pod asks for in all, as the API server's object would be read."""
    first: list[dict[str, Any]] = []
    main: list[dict[str, Any]] = []
    for at, each in enumerate(containers):
        requests = each.get("requests") or each["resources"]
        one = {"name": f"c{at}", "resources": {"limits": each["resources"], "requests": requests}}
        if each["sidecar"]:
            one["restartPolicy"] = "Always"
        (first if each["init"] or each["sidecar"] else main).append(one)
    view = msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": main, "initContainers": first}}, views.Pod)
    found = pod_specs.pod_spec(view)
    if found.numa != (need if any(each.cpus or each.memory or each.devices for each in need) else ()):
        raise AssertionError(f"{found.numa} is not {need}")
    return found


def run(wanted: int, first: int, report: Callable[[int, int], None] | None = None) -> Result:
    """At least so many cases, in worlds of 25 pods from this seed on."""
    seed, came, placed, refused, nodes, missed = first, 0, 0, 0, 0, 0
    version = ""
    while came < wanted:
        worlds = [world(each, 25) for each in range(seed, seed + 20)]
        seed += 20
        answers = iter(judge.ask([job for each in worlds for job in each.jobs]))
        for each in worlds:
            came, placed = came + each.cases, placed + each.placed
            for expected in each.expected:
                answer = next(answers)
                version = answer["version"]
                if answer.get("error"):
                    raise RuntimeError(answer["error"])
                for (kind, ours), verdict in zip(expected, answer["verdicts"], strict=True):
                    if kind == "admit" and not verdict["admitted"]:
                        refused += 1
                    elif kind == "try" and verdict["admitted"]:
                        nodes += 1
                        missed += not ours
        if report is not None:
            report(min(came, wanted), wanted)
    return Result(came, placed, refused, nodes, missed, round(100 * missed / max(1, nodes), 3), version)
