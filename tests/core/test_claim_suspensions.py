"""Jobs with claims that are suspended, resume, grow and shrink: devices come free when pods are gone, and not before.

In random worlds pods take time to end and to be made again. The world judges what is written (no device twice), and at rest
that the scheduler counts as held what claims hold, and nothing else.
"""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Group, Target
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Deallocate, Evict, Fault, Place, Preempt, Resume
from tests.builders import run
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import asks, halves

HALF, WHOLE = asks(1, kind="half"), asks(1, kind="whole")
ENDLESS = 1e9


class World(ClaimStream):
    """jobs: name -> (members, needed, what each asks for, class, priority). Pods that are to go do so some steps later."""

    def __init__(self, seed):
        self.rnd = rnd = random.Random(seed)
        hosts = [f"n{each}" for each in range(rnd.randint(1, 2))]
        items = [each for host in hosts for each in halves(host, rnd.randint(2, 3))]
        classes = [ServiceClass("batch", mode="Suspend"), ServiceClass("plain")]
        super().__init__(hosts, items, classes=classes, reservations=0, patience=9e9, moves_per_minute=0.0)
        self.jobs, self.number, self.groups = {}, 0, {}
        self.going, self.coming = {}, []  # UID -> whether its job is suspended; pods to be made
        self.suspended = self.resumed = self.shrunk = 0

    def submit_job(self):
        rnd, name = self.rnd, f"j{len(self.jobs)}"
        members, kind, elastic = rnd.randint(1, 3), rnd.choice(("batch", "batch", "plain")), rnd.random() < 0.3
        needed = 1 if elastic else members
        self.jobs[name] = members, needed, rnd.choice((HALF, HALF, WHOLE)), kind, rnd.randint(0, 3)
        if members > 1 or elastic:
            self.groups[f"ns/{name}"] = Group("ns", name, needed)
            self.state.upsert_group(self.groups[f"ns/{name}"])
        for at in range(members):
            self.make(name, at)

    def make(self, job, at):
        self.number += 1
        _, needed, wanted, kind, priority = self.jobs[job]
        group = job if f"ns/{job}" in self.groups and self.groups[f"ns/{job}"].min_member else ""
        more = {"owner": f"uid-job-{job}", "root": f"batch/v1/Job/{job}", "controlled": True, "service_class": kind}
        elastic = {"elastic": True} if group and at >= needed else {}
        self.submit(f"{job}-{at}-{self.number}", ENDLESS, [wanted], priority=priority, group=group, **more, **elastic)

    def act(self):
        """One pass, and some of what it asks for; at times all of it."""
        self.now += 1.0
        for each in run(self.state, self.now):
            assert not isinstance(each, Fault), each
            if isinstance(each, Place):
                self.bind(each)
            elif isinstance(each, Preempt | Evict):
                suspends = getattr(each, "suspends", ())
                of_jobs = {uid for job in suspends for uid in job.pods}
                self.shrunk += sum(self.pods[victim.pod.uid].elastic for victim in each.victims if victim.pod.uid in self.pods)
                self.going.update({victim.pod.uid: victim.pod.uid in of_jobs for victim in each.victims})
                for job in suspends:
                    self.suspended += 1
                    self.intend(job.group, Target("Suspended", job.epoch, tuple(uid for _, uid in job.owners), job.members))
            elif isinstance(each, Resume):
                self.resumed += 1
                old = self.groups[each.group].target
                self.intend(each.group, Target("Running", each.epoch, old.owners if old else (), (), each.attained, each.since))
                for owner in old.owners if old else ():
                    job = owner.removeprefix("uid-job-")
                    self.coming += [(job, at) for at in range(self.jobs[job][0])]
            elif isinstance(each, Deallocate):
                for choice in (choice for binding in each.bindings for choice in binding.claims):
                    self.write(msgspec.structs.replace(self.claims[choice.claim], users=(), allocation=None))
        self.walk()

    def walk(self):
        wrong = [each for each in invariants.violations(self.state) if "members placed" not in each]  # a member may have gone
        assert not wrong, wrong

    def intend(self, key, target):
        group = self.groups.get(key) or Group(*key.split("/"), 0)
        self.groups[key] = msgspec.structs.replace(group, target=target)
        self.state.upsert_group(self.groups[key])

    def rests(self, job):
        """Whether a job is suspended: no pod of it is made, also in place of those that were evicted before, until it resumes."""
        targets = [each.target for each in self.groups.values() if each.target is not None]
        return any(each.state == "Suspended" and f"uid-job-{job}" in each.owners for each in targets)

    def follow(self, *, surely=False):
        """Pods that were to go are gone, those of jobs that go on are made again, and jobs that resume make theirs."""
        for uid, suspended in list(self.going.items()):
            if surely or self.rnd.random() < 0.4:
                del self.going[uid]
                old = self.pods.get(uid)
                if old is not None:
                    self.delete(uid)
                    job, at, _ = old.name.split("-")
                    if not suspended:
                        self.coming.append((job, int(at)))
        waiting, self.coming = self.coming, []
        for each in waiting:
            if each[0] not in self.jobs or self.rests(each[0]):
                continue
            if surely or self.rnd.random() < 0.5:
                self.make(*each)
            else:
                self.coming.append(each)
        self.walk()

    def end_job(self):
        """A job is done: its pods go."""
        if not self.jobs:
            return
        job = self.rnd.choice(sorted(self.jobs))
        if any(each.startswith(f"ns/job-batch.{job}") and self.groups[each].target for each in self.groups):
            return
        for uid in [uid for uid, each in self.pods.items() if each.name.startswith(f"{job}-")]:
            if uid in self.going:
                return
        for uid in [uid for uid, each in self.pods.items() if each.name.startswith(f"{job}-")]:
            self.delete(uid)

    def rest(self):
        for _ in range(25):
            self.follow(surely=True)
            self.act()

    def check_held(self):
        """What is counted as held is what claims hold by their status, and what is reserved for pods of jobs that resume."""
        allocations = [each.allocation for each in self.claims.values() if each.allocation is not None]
        claims, devices = self.state.device_claims, self.state.device_claims.devices
        there = [task for row in self.state.nodes.rows.values() for task in self.state.nodes.pods[row].values()]
        kept = [key for task in there if task.pod.placeholder for key in claims.keys_of(task.pod)]
        allocations += [each for key in kept if (each := claims.allocation_of(key)) is not None]
        assert devices.held.amounts() == devices.hold(allocations).amounts()


@pytest.mark.parametrize("seed", range(40))
def test_devices_come_free_when_pods_are_gone(seed):
    world = World(seed)
    for _ in range(60):
        world.rnd.choice((world.submit_job, world.act, world.act, world.follow, world.follow, world.end_job))()
        if len(world.jobs) > 8:
            break
    for _ in range(40):
        world.rnd.choice((world.act, world.follow))()
    world.rest()
    world.check_held()


def test_the_worlds_suspend_resume_and_shrink():
    found = [0, 0, 0]
    for seed in range(5):
        world = World(seed)
        for _ in range(60):
            world.rnd.choice((world.submit_job, world.act, world.act, world.follow, world.follow, world.end_job))()
        world.rest()
        found = [a + b for a, b in zip(found, (world.suspended, world.resumed, world.shrunk), strict=True)]
    assert all(found), found
