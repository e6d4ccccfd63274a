"""Random worlds with slices, equal parts and roles in domains of their own; members come again, nodes and schedulers fail.

The same worlds as in `test_level_worlds`, and the same judge for what is required of whole gangs. Here each slice, and each
role with a required level, is in one domain; at rest an exhaustive search over domains finds no gang that waits though
it could start.
"""

from collections import Counter
from itertools import product

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Closeness, SliceRule
from tests.builders import GPU, pod, spec
from tests.core.test_level_worlds import World, live

RULES = (
    ("rack", (2,)),
    ("rack", (3,)),
    ("net/rack", (2,)),
    ("rack", (4, 2)),
    ("block", (4,)),
)


class Slices(World):
    """Gangs of one role with slices, and of two roles of which one must be in one rack. Pods are of one size in a gang."""

    def submit(self):
        rnd = self.rnd
        self.number += 1
        name, size = f"g{self.number}", rnd.choice((2, 3, 4, 4, 5, 6))
        kind = rnd.random()
        closeness = Closeness(("block",) if rnd.random() < 0.2 else (), rnd.choice(("", "rack")))
        if kind < 0.55:
            level, sizes = rnd.choice(RULES)
            more = (SliceRule("rack", (2,)),) if level == "block" and rnd.random() < 0.7 else ()
            closeness = msgspec.structs.replace(closeness, slices=(SliceRule(level, sizes), *more))
        elif kind < 0.75:
            closeness = msgspec.structs.replace(closeness, required=(), preferred="rack", balanced=True)
        elif kind < 0.9:
            closeness = msgspec.structs.replace(closeness, roles=(("server", Closeness(("rack",))),))
        made = Group("ns", name, size, closeness=closeness if closeness != Closeness() else None)
        gpus, priority = rnd.choice((1, 1, 2)), rnd.choice((0, 0, 5))
        members = [self.member_of(made, index, gpus, priority) for index in range(size)]
        events = [(self.state.upsert_group, made), *((self.state.upsert_pod, each) for each in members)]
        rnd.shuffle(events)
        self.groups[name] = made
        self.pods.update({each.uid: each for each in members})
        for event, thing in events:
            event(thing)

    def member_of(self, group, index, gpus, priority):
        self.number += 1
        roles = bool(group.closeness and group.closeness.roles)
        labels = {"fairlead.dev/index": str(index)}
        if roles:
            labels["fairlead.dev/role"] = "server" if index < 2 else "worker"
        name = f"{group.name}-{index}-{self.number}"
        more = {"labels": tuple(sorted(labels.items())), "created": self.now, "priority": priority}
        return pod(name, group=group.name, spec_=spec(gpus=gpus), **more)

    # -- the judge -----------------------------------------------------------------------------

    def parts(self, group):
        """(level, members' indexes) of what must be in one domain each."""
        closeness, size = group.closeness, group.min_member
        for rule in closeness.slices if closeness else ():
            step = rule.sizes[-1]
            for first in range(0, size, step):
                yield rule.level, range(first, min(size, first + step))
        for _, role in closeness.roles if closeness else ():
            for level in role.required:
                yield level, range(min(2, size))
        for level in closeness.required if closeness else ():
            yield level, range(size)

    def judge(self, uid):
        name = self.pods[uid].group
        group = self.groups.get(name)
        if group is None or name in self.moved:
            return
        where = {}
        for each in self.pods.values():
            if each.group == name and each.node in self.nodes and not each.terminating:
                where.setdefault(index_of(each), set()).add(each.node)
        for level, indexes in self.parts(group):
            found = {self.domain(node, level) for index in indexes for node in where.get(index, ())}
            assert len(found) <= 1, f"{indexes} of {name} are in {found}"
            assert None not in found, f"a member of {name} is in no domain"
        closeness = group.closeness
        if closeness is not None and closeness.balanced and len(where) == group.min_member:
            counts = Counter(self.domain(node, "rack") for nodes in where.values() for node in nodes).values()
            assert max(counts) - min(counts) <= 1, f"{name} has {counts}"

    def could_start(self):
        free = {name: each.allocatable[GPU] for name, each in self.nodes.items()}
        for each in self.pods.values():
            if each.node in free:
                free[each.node] -= each.spec.gpus
        for name, group in sorted(self.groups.items()):
            members = [each for each in self.pods.values() if each.group == name]
            if any(task.reported is ReasonCode.RESERVATION for task in self.state.gangs[f"ns/{name}"].tasks.values()):
                continue  # for an older one, which waits for work that runs
            if len(members) == group.min_member and not any(each.node for each in members) and self.fits(group, members, free):
                yield name

    def fits(self, group, members, free):
        """Whether members, all of one size, can be laid: all ways to give units to racks."""
        known = {each.name for each in self.levels} | {each.label for each in self.levels}
        parts = list(self.parts(group))
        closeness = group.closeness or Closeness()
        asked = [level for level, _ in parts] + (["rack"] if closeness.balanced else [])
        if not set(asked) <= known:
            return False
        gpus = members[0].spec.gpus
        racks = Counter()
        for node, amount in free.items():
            place = tuple(self.domain(node, each.name) for each in self.levels)
            if None not in place:
                racks[place] += max(0, amount) // gpus
            else:
                racks[*place, node] += max(0, amount) // gpus  # a domain of its own at levels that it lacks
        size = group.min_member
        narrow = [indexes for level, indexes in parts if level.endswith("rack") and len(indexes) < size]
        units = narrow or [range(each, each + 1) for each in range(size)]
        if narrow and len(narrow) * len(narrow[0]) < size and closeness.roles:
            units = [*narrow, *(range(each, each + 1) for each in range(2, size))]
        return any(self.holds(closeness, parts, units, racks, chosen) for chosen in product(racks, repeat=len(units)))

    def holds(self, closeness, parts, units, racks, chosen):
        used = Counter()
        place = {}
        for unit, rack in zip(units, chosen, strict=True):
            used[rack] += len(unit)
            place.update(dict.fromkeys(unit, rack))
        if any(used[rack] > racks[rack] for rack in used):
            return False
        for level, indexes in parts:
            at = next(at for at, each in enumerate(self.levels) if level in (each.name, each.label))
            found = {place[index][: at + 1] for index in indexes}
            if len(found) > 1 or None in next(iter(found)):
                return False
        if closeness.balanced:
            counts = Counter(each[: len(self.levels)] for each in place.values())
            return max(counts.values()) - min(counts.values()) <= 1 and all(None not in each for each in counts)
        return True


def index_of(each):
    return int(dict(each.labels)["fairlead.dev/index"])


@pytest.mark.parametrize("seed", range(40))
def test_every_slice_is_in_one_domain_and_no_gang_waits_in_vain(seed):
    live(seed, 60, Slices)
