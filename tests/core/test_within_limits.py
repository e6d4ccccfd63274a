"""No queue's pods ever hold more than its limit in the cluster: those that leave count until they are gone, in random worlds.

Elastic gangs are suspended and resume, members come anew while those before them still end, victims leave late or not at all.
"""

import random

import msgspec
import pytest

from fairlead.core.model.groups import Target
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Preempt, Resume
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, group, node, pod, queue
from tests.core.test_overbooked import GPUS, POLICY, World


class Job(msgspec.Struct):
    """What its controller and its operator know. early: members are recreated as soon as those before them are evicted."""

    name: str
    more: dict
    count: int
    least: int
    early: bool
    suspended: bool = False
    made: int = 0
    target: Target | None = None

    @property
    def owner(self):
        return f"uid-job-{self.name}"


class Limited(World):
    """Jobs of queues that have limits; the judge adds up what pods on nodes hold, whatever is to become of them."""

    def __init__(self, seed):
        super().__init__(seed)
        rnd = self.rnd = random.Random(f"limits {seed}")
        whole = GPUS * len(self.nodes)
        self.limits = {"q": rnd.randint(2, whole * 2 // 3), "r": rnd.randint(whole // 2, whole)}
        parent = ""
        if rnd.random() < 0.4:
            parent, self.limits["org"] = "org", rnd.randint(3, whole)
        quotas = rnd.random() < 0.5
        queues = [
            queue(name, rnd.randint(0, limit) if quotas else None, limit, parent=parent)
            for name, limit in self.limits.items()
            if name != "org"
        ]
        if parent:
            queues.insert(0, queue("org", None, self.limits["org"]))
        self.below = {"q": {"q"}, "r": {"r"}, "org": {"q", "r"}}
        policy = {**POLICY, "move_patience": 0.0, "patience": rnd.choice([0.0, 60.0])}
        self.state = cluster([node(name, gpus=GPUS) for name in self.nodes], queues, **policy)
        for name in ("whole", "batch", "halves"):
            service = ServiceClass(
                name,
                mode="Evict" if name == "whole" else "Suspend",
                moves_whole=name != "batch",
                checkpoint_interval=0.0 if name == "batch" else 100_000.0,
            )
            self.state.upsert_class(service)
        self.jobs = {}
        self.gone = {}

    # -- jobs and their controllers ------------------------------------------------------------

    def arrive(self, most=GPUS):
        rnd = self.rnd
        self.number += 1
        size, milli = rnd.choice([(1, 1000), (1, 1000), (1, 1000), (2, 1000), (2, 1000), (3, 1000), (4, 1000), (1, 500)])
        size = min(size, most)
        name, count = f"j{self.number}", rnd.choice([1, 1, 2, 3, 4])
        job = Job(
            name,
            {
                "queue": rnd.choice("qqr"),
                "gpus": size,
                "milli": milli,
                "priority": rnd.choice([0, 0, 0, 0, 0, 10, 20]),
                "service_class": rnd.choice(["", "", "whole", "batch", "halves"]),
                "group": name if count > 1 else "",
                "owner": f"uid-job-{name}",
                "root": f"batch/v1/Job/{name}",
            },
            count,
            rnd.randint(1, max(1, count - 1)),
            rnd.random() < 0.7,
        )
        self.jobs[name] = job
        self.say(f"job {name} {count} of {size}x{milli}, at least {job.least}, {job.more}, early: {job.early}")
        if count > 1:
            self.write(job)
        self.reconcile(job)

    def write(self, job):
        """Its PodGroup, with its target state."""
        key = job.more["group"] or f"job-{job.name}"
        made = group(key, job.least if job.count > 1 else 1, job.more["queue"] if job.count > 1 else "")
        self.state.upsert_group(msgspec.structs.replace(made, target=job.target))

    def of(self, job):
        return [each for each in self.pods.values() if each.owner == job.owner]

    def reconcile(self, job):
        if job.suspended:
            return
        there = [each for each in self.of(job) if not (job.early and each.terminating)]
        for _ in range(job.count - len(there)):
            job.made += 1
            self.comes(pod(f"{job.name}-{job.made}", created=self.now, **job.more))

    def vanish(self, uid, *, again):
        """again is what its controller decides."""
        if uid in self.pods:
            self.say(f"x {self.pods.pop(uid).name}")
            self.state.remove_pod(uid)

    def ends(self, job):
        self.say(f"job {job.name} ends")
        del self.jobs[job.name]
        for each in self.of(job):
            self.deleted(each.uid)

    def deleted(self, uid):
        """A user deletes a pod: it ends now, soon or late."""
        if uid not in self.pods:
            return
        if not self.pods[uid].node or self.rnd.random() < 0.3:
            self.vanish(uid, again=True)
            return
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], terminating=True, leaves=float(int(self.now + 30)))
        self.state.upsert_pod(self.pods[uid])
        self.later(self.rnd.choice([1.0, 20.0, 29.0, 200.0]), lambda: self.vanish(uid, again=True))

    # -- the operator --------------------------------------------------------------------------

    def carry_out(self, decided):
        for each in decided:
            suspends = each.suspends if isinstance(each, Preempt) else ()
            going = {uid for job in suspends for uid in job.pods}
            if isinstance(each, Preempt) and self.rnd.random() < 0.5:
                self.arrive(self.rnd.choice([1, 1, 2]))  # a job that gets what of the limits seems to be free
            for intent in suspends:
                self.suspend(intent)
            if isinstance(each, Resume):
                self.resume(each)
            elif going:
                evicted = tuple(victim for victim in each.victims if victim.pod.uid not in going)
                super().carry_out([msgspec.structs.replace(each, victims=evicted)])
            else:
                super().carry_out([each])

    def job_of(self, key):
        name = key.partition("/")[2].removeprefix("job-")
        return self.jobs.get(name)

    def suspend(self, intent):
        """The target state is written at once; the operator acts on it at once, later, or never."""
        job = self.job_of(intent.group)
        self.say(f"suspend {intent.group}: {intent.pods}")
        if job is None:
            return
        job.target = Target("Suspended", intent.epoch, tuple(uid for _, uid in intent.owners), intent.members)
        self.later(self.rnd.choice([0.0, 0.0, 0.5]), lambda: self.write(job))

        def acts():
            if job.target is not None and job.target.epoch == intent.epoch and job.target.state == "Suspended":
                self.say(f"{job.name} is suspended")
                job.suspended = True
                for each in self.of(job):
                    self.deleted(each.uid)

        if self.rnd.random() < 0.9:
            self.later(self.rnd.choice([0.0, 0.5, 5.0, 70.0]), acts)

    def resume(self, intent):
        job = self.job_of(intent.group)
        self.say(f"resume {intent.group}")
        if job is None:
            return
        owners = job.target.owners if job.target is not None else ()
        job.target = Target("Running", intent.epoch, owners, (), intent.attained, intent.since)
        self.later(self.rnd.choice([0.0, 0.5]), lambda: self.write(job))

        def acts():
            job.suspended = False

        self.later(self.rnd.choice([0.5, 1.0, 60.0, 200.0]), acts)

    # -- what happens --------------------------------------------------------------------------

    def disturb(self):
        chance, running = self.rnd.random(), sorted(uid for uid, each in self.pods.items() if each.node)
        if chance < 0.4 or not running:
            self.arrive()
        elif chance < 0.65:
            self.ends(self.jobs[self.rnd.choice(sorted(self.jobs))]) if self.jobs else None
        elif chance < 0.75:
            self.vanish(self.rnd.choice(running), again=True)
        elif chance < 0.85:
            self.deleted(self.rnd.choice(running))
        elif chance < 0.92:
            held = sorted(uid for uid, task in self.state.tasks.items() if task.state is TaskState.HELD and uid in self.pods)
            self.vanish(self.rnd.choice(held or running), again=True)
        else:
            self.node_goes(self.rnd.choice(self.nodes))

    def node_goes(self, name):
        """A node goes and comes back; the pods that were there are deleted in between, or later."""
        if name in self.gone:
            return
        self.say(f"node {name} goes")
        self.gone[name] = True
        self.state.remove_node(name)
        back = self.rnd.choice([1.0, 30.0, 300.0])
        for each in [each for each in self.pods.values() if each.node == name]:
            self.later(self.rnd.choice([0.5, 50.0, 400.0]), lambda uid=each.uid: self.vanish(uid, again=True))

        def returns():
            del self.gone[name]
            self.say(f"node {name} is back")
            self.state.upsert_node(node(name, gpus=GPUS))

        self.later(back, returns)

    def bind(self, binding):
        if binding.node in self.gone:
            self.state.bind_failed(binding.pod.uid, self.now)
            return
        super().bind(binding)

    def goes_on(self, seconds):
        for job in list(self.jobs.values()):
            if self.rnd.random() < 0.8:
                self.reconcile(job)
        super().goes_on(seconds)

    def judge(self):
        super().judge()
        for name, limit in self.limits.items():
            there = [each for each in self.pods.values() if each.node and each.queue in self.below[name]]
            holds = sum(each.spec.gpus * each.spec.gpu_milli for each in there)
            assert holds <= 1000 * limit, "\n".join([*self.log[-80:], f"{name} {limit}: {[each.name for each in there]}"])


@pytest.mark.parametrize("seed", range(400))
def test_no_queue_holds_more_than_its_limit_in_random_worlds(seed):
    world = Limited(seed)
    world.happens(world.rnd.randint(20, 80), 0.7, [0.5, 1.0, 5.0, 20.0, 60.0, 400.0])
    world.judge()
