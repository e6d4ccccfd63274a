"""Missed victims: queues hold more than their share, one job of a queue below its own waits, and some set of victims would do.

The judge tries every set: all others stay at their shares or above without it, the job's own queues stay within theirs with the
job, and the job has a place. The shares are divided by `core.fairshare`; nothing of the scheduler's search is used.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from fairlead.core.model.units import WHOLE
from fairlead.core.queues.division import Claim, divide
from fairlead.simulation.judged.results import Found, Kind
from fairlead.simulation.judged.world import Job, Share, World, fits

_SIZES = {"1": (1,), "1/2/4": (1, 2, 4), "1/2/4/8": (1, 2, 4, 8), "1/3/5": (1, 3, 5)}
_STRUCTURES = ("one node", "two nodes", "three nodes", "two levels", "gangs", "fractions")
_NODES = {"one node": 1, "two nodes": 2, "three nodes": 3, "fractions": 1}
_FRACTIONS = (250, 300, 500, 700)
_GPUS_PER_NODE = 8
_TAKER = "taker"

Held = dict[str, int]
Alike = tuple[str, tuple[tuple[str, tuple[int, ...]], ...], int]
"""Jobs worth the same as victims: their queue, the nodes (and devices, of fractions) of their members, their size."""


def made(variety: str, seed: int) -> World:
    """The world of a seed: all that others submitted runs, and the taker waits, not tried yet."""
    structure, _, sizes = variety.rpartition(" ")
    rnd = random.Random(f"victims/{variety}/{seed}")
    nodes = [_GPUS_PER_NODE] * _NODES.get(structure, rnd.randint(1, 2))
    queues = _tree(rnd, sum(nodes), 2 if structure == "two levels" else 1)
    world = World(nodes, queues)
    above = {each.parent for each in queues}
    leaves = [each.name for each in queues if each.name not in above]
    owner = rnd.choice(leaves)
    others = [name for name in leaves if name != owner]
    mine = rnd.random() < 0.3
    for number in range(4 * sum(nodes)):
        queue = owner if mine and rnd.random() < 0.15 else rnd.choice(others)
        world.submit(_job(rnd, f"j{number}", queue, structure, sizes, float(number)))
    world.play()
    for job in world.waiting:
        world.end(job.name)
    world.submit(_job(rnd, _TAKER, owner, structure, sizes, 1000.0))
    return world


def _job(rnd: random.Random, name: str, queue: str, structure: str, sizes: str, created: float) -> Job:
    size, members = rnd.choice(_SIZES[sizes]) * WHOLE, 1
    if structure == "gangs" and rnd.random() < 0.5:
        members = rnd.randint(2, 3)
    if structure == "fractions" and rnd.random() < 0.4:
        size = rnd.choice(_FRACTIONS)
    return Job(name, queue, size, members, created)


def _tree(rnd: random.Random, gpus: int, levels: int) -> list[Share]:
    """Queues with quotas and weights; quotas add up to the cluster, or to the queue above, at most."""
    queues: list[Share] = []

    def grow(parent: str, quota: int, left: int) -> None:
        count = rnd.randint(2, 3)
        cuts = sorted(rnd.randint(0, quota) for _ in range(count))
        for number, (low, high) in enumerate(zip([0, *cuts], cuts, strict=False)):
            name = f"{parent}q{number}"
            queues.append(Share(name, (high - low) * WHOLE, parent, rnd.randint(1, 3)))
            if left > 1:
                grow(name, high - low, left - 1)

    grow("", gpus, levels)
    return queues


def shares(world: World) -> Held:
    """The fair share of each queue whose level has not enough for all; the others have none."""
    asked = {name: world.held(name) for name in world.queues}
    for job in world.waiting:
        for each in world.path(job.queue):
            asked[each.name] += job.amount
    found: Held = {}
    pending = [("", world.gpus)]
    while pending:
        parent, amount = pending.pop()
        level = [each for each in world.queues.values() if each.parent == parent and asked[each.name]]
        claims = [Claim(each.name, asked[each.name], each.quota, None, each.weight or 0) for each in level]
        if sum(claim.request for claim in claims) <= amount:
            continue
        for name, share in divide(amount, claims, WHOLE, 0.0).items():
            found[name] = share
            pending.append((name, share))
    return found


def judge(world: World) -> tuple[bool, bool]:
    """(whether some set of victims serves the taker, whether its queues stay within their quotas with it)."""
    taker, fair = world.jobs[_TAKER], shares(world)
    held = {name: world.held(name) for name in world.queues}
    path = [each.name for each in world.path(taker.queue)]
    within = all(held[name] + taker.amount <= world.queues[name].quota for name in path)
    if fits(world.free(), taker):
        return False, within  # no eviction is needed
    jobs = Counter(_alike(world, job) for job in world.jobs.values() if job.name in world.places and job.queue != taker.queue)
    for chosen in _sets(list(jobs.items())):
        if _leaves_all_their_shares(world, chosen, held, fair, path, taker.amount) and fits(_without(world, chosen), taker):
            return True, within
    return False, within


def _alike(world: World, job: Job) -> Alike:
    tasks = [task for task in world.state.tasks.values() if task.pod.name.partition(".")[0] == job.name]
    return job.queue, tuple(sorted((task.pod.node, task.devices if job.gpus % WHOLE else ()) for task in tasks)), job.gpus


def _sets(alike: list[tuple[Alike, int]]) -> Iterator[Counter[Alike]]:
    """Every set of victims that is not empty."""
    if not alike:
        yield Counter()
        return
    (first, count), rest = alike[0], alike[1:]
    for chosen in _sets(rest):
        for number in range(count + 1):
            yield chosen + Counter({first: number})


def _leaves_all_their_shares(world: World, chosen: Counter[Alike], held: Held, fair: Held, path: list[str], amount: int) -> bool:
    lost: Counter[str] = Counter()
    for (queue, places, gpus), number in chosen.items():
        for each in world.path(queue):
            lost[each.name] += number * gpus * len(places)
    for queue in {queue for queue, _, _ in chosen}:
        theirs = [each.name for each in world.path(queue) if each.name not in path]
        mine = path[: len(path) - (len(world.path(queue)) - len(theirs))]
        if any(name not in fair or held[name] - lost[name] < fair[name] for name in theirs):
            return False
        if any(name not in fair or held[name] - lost[name] + amount > fair[name] for name in mine):
            return False
    return True


def _without(world: World, chosen: Counter[Alike]) -> dict[str, list[int]]:
    """What is free on each node without some jobs; which whole GPUs they have does not matter."""
    free = {name: list(left) for name, left in world.free().items()}
    for (_, places, gpus), number in chosen.items():
        for node, devices in places * number:
            for device in devices:
                free[node][device] += gpus
            taken = 0 if devices else gpus // WHOLE
            for device, left in enumerate(free[node]):
                if taken and not left and not _shared(world, node, device):
                    free[node][device], taken = WHOLE, taken - 1
    return free


def _shared(world: World, node: str, device: int) -> bool:
    """Whether a device is held by fractions."""
    pods = world.state.nodes.pods[world.state.nodes.rows[node]].values()
    return any(task.shape.gpu_milli < WHOLE and device in task.devices for task in pods)


def play(variety: str, seed: int) -> Found:
    """Judge one world, then have it played."""
    world = made(variety, seed)
    servable, within = judge(world)
    before = [f"{job.queue} {job.gpus}x{job.members} on {world.places.get(job.name)}" for job in world.jobs.values()]
    world.play()
    served = len(world.places.get(_TAKER, ())) == world.jobs[_TAKER].members
    missed = servable and not served
    note = f"{'within its quota, ' if within else ''}{before} {[(q.name, q.quota, q.weight) for q in world.queues.values()]}"
    return Found(0, int(servable), int(missed), note if missed else "")


KIND = Kind(tuple(f"{structure} {sizes}" for structure in _STRUCTURES for sizes in _SIZES), play)
