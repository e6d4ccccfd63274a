"""Random machines on which random pods come and go: what the core predicts, and what the kubelet's own managers do.

Which of equal devices a plugin prefers is drawn at random and told to the judge only. So the core keeps all states that are
possible; of them those that are not as the judge's are dropped after each step, and at least one must be left.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fairlead.core.nodes.numa import World
from fairlead.core.numa.admission import admit, release
from fairlead.core.numa.model import NONE, ContainerNeed, Machine, NumaNeed, memories, resources, unused
from testbed.numa import cases, judge

_STEPS = 10


class Recorded(msgspec.Struct, frozen=True):
    """Verdicts of a version of the kubelet: for each seed from 0 on those of its steps."""

    judge: str
    verdicts: list[list[dict[str, Any]]]


def steps(seed: int) -> tuple[Machine, dict[str, NumaNeed], list[dict[str, Any]]]:
    """A machine, what its pods need, and steps as the judge reads them. All pods together find enough of each resource."""
    draw = random.Random(seed)
    machine = cases.machine(draw)
    told: list[dict[str, Any]] = []
    needs: dict[str, NumaNeed] = {}
    live: list[str] = []
    totals = _totals(machine)
    for at in range(_STEPS):
        if live and draw.random() < 0.3:
            told.append({"remove": live.pop(draw.randrange(len(live)))})
            continue
        need, containers = cases.need(draw, machine)
        if any(
            sum(_asked(each, name) for uid in live for each in needs[uid]) + sum(_asked(each, name) for each in need) > total
            for name, total in totals.items()
        ):
            continue
        prefer = list(range(len(machine.zones)))
        draw.shuffle(prefer)
        uid = f"pod-{at}"
        told.append({"admit": uid, "containers": containers, "prefer": prefer})
        needs[uid] = need
        live.append(uid)
    return machine, needs, told


def _totals(machine: Machine) -> dict[str, int]:
    found: dict[str, int] = {}
    for zone in machine.zones:
        for name, count in zone.devices:
            found[name] = found.get(name, 0) + count
    return found


def _asked(need: ContainerNeed, name: str) -> int:
    return dict(need.devices).get(name, 0)


def job(seed: int) -> dict[str, Any]:
    """The steps of a seed as the judge reads them."""
    machine, _, told = steps(seed)
    return {"node": cases.node(machine), "steps": told}


def compare(seed: int, verdicts: Sequence[dict[str, Any]]) -> tuple[list[str], int]:
    """What the core predicts otherwise than the judge says, in words; and for how many admissions it was not certain."""
    machine, needs, told = steps(seed)
    worlds, wrong, unsure = [World(unused(machine))], list[str](), 0
    for at, (step, verdict) in enumerate(zip(told, verdicts, strict=True)):
        uid, following = step.get("admit", ""), list[World]()
        admitted = set[bool]()
        for world in worlds:
            if not uid:
                held = dict(world.holds).get(step["remove"])
                left = tuple(each for each in world.holds if each[0] != step["remove"])
                following.append(world if held is None else World(release(machine, world.free, held), left))
                continue
            results = admit(machine, world.free, needs[uid])
            admitted.add(isinstance(results, list))
            if not isinstance(results, list):
                following += [] if verdict["admitted"] else [world]
            elif verdict["admitted"]:
                following += [World(each.free, (*world.holds, (uid, each.held))) for each in results]
            else:
                wrong += [f"seed {seed}, step {at}: it is refused: {verdict}"] if len(worlds) == 1 else []
        unsure += len(admitted) > 1
        worlds = [each for each in dict.fromkeys(following) if _agrees(machine, each, verdict)]
        if not worlds:
            wrong.append(f"seed {seed}, step {at}: {machine}, {step}: no state that was predicted is {verdict}")
            break
    return wrong, unsure


def _agrees(machine: Machine, world: World, verdict: dict[str, Any]) -> bool:
    free = world.free
    if machine.static and [sum(line) for line in free.cores] != verdict["cpus"]:
        return False
    if machine.memory_static and any(
        list(line) != verdict["memory"][name] for name, line in zip(memories(machine), free.memory, strict=True)
    ):
        return False
    return machine.policy == NONE or all(
        list(line) == verdict["devices"][name] for name, line in zip(resources(machine), free.devices, strict=True)
    )


def record(seeds: int, path: Path) -> None:
    """Write the judge's verdicts on seeds from 0 on."""
    answers = judge.ask([job(seed) for seed in range(seeds)])
    kept = [[{key: value for key, value in each.items() if key != "message"} for each in one["verdicts"]] for one in answers]
    told = msgspec.json.encode(Recorded(answers[0]["version"], kept))
    path.write_bytes(gzip.compress(told, 9, mtime=0))


def recorded(path: Path) -> Recorded:
    """The verdicts that were written."""
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Recorded)
