"""Random histories of pods and PodGroups against a plain model: a pod counts for its first job, whatever becomes of its labels."""

import random

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.observability.history import HistoryError, State, Wanted
from fairlead.observability.store import History
from fairlead.operator.accounting.accounting import Accounting
from tests.databases import on_databases
from tests.operator.observed import gone, pod

PODS, GROUPS, STEPS = 6, 3, 120
OPEN = (State.PENDING, State.RUNNING, State.SUSPENDED)


class World:
    """What there is, and what must be in the history of it: of each run its job and whether it goes on."""

    def __init__(self, seed: int, url: str) -> None:
        self.dice = random.Random(seed)
        self.url = url
        self.history = History(url)
        self.groups: dict[str, views.PodGroup] = {}
        self.pods: dict[str, dict] = {}
        self.made = 0
        self.job: dict[str, str] = {}  # a pod's uid -> its first job's
        self.open: dict[str, bool] = {}  # a pod's uid that had a node -> whether its run goes on
        self.known: set[str] = set()  # jobs with a row
        self.accounting = Accounting(self.history, self.groups.get)

    def step(self, now: float) -> None:
        act = self.dice.choice((self.make, self.place, self.relabel, self.relabel, self.end, self.delete, self.group, self.write))
        act(now)
        if self.dice.random() < 0.03:
            self.restart(now)

    def hear(self, name: str, now: float) -> None:
        self.accounting.apply([pod(name, **self.pods[name])], now)
        self._expect(name)

    def _expect(self, name: str) -> None:
        given = self.pods[name]
        group = given["group"]
        named = self.groups[f"vision/{group}"].metadata.uid if f"vision/{group}" in self.groups else f"vision/{group}"
        job = self.job.get(given["uid"], named if group else given["uid"])
        if given["node"] or job in self.known:
            self.known.add(job)
            self.job[given["uid"]] = job
        if given["node"]:
            self.open[given["uid"]] = given["phase"] in ("Pending", "Running")

    def make(self, now: float) -> None:
        name = f"p{self.dice.randrange(PODS)}"
        if name not in self.pods:
            self.made += 1
            group = self.dice.choice(("", *(f"g{each}" for each in range(GROUPS))))
            self.pods[name] = {"uid": f"uid-{self.made}", "group": group, "node": "", "phase": "Pending"}
            self.hear(name, now)

    def some(self) -> str:
        return self.dice.choice(sorted(self.pods)) if self.pods else ""

    def place(self, now: float) -> None:
        if name := self.some():
            if not self.pods[name]["node"]:
                self.pods[name] |= {"node": "n", "phase": "Running"}
            self.hear(name, now)

    def relabel(self, now: float) -> None:
        if name := self.some():
            self.pods[name]["group"] = self.dice.choice(("", *(f"g{each}" for each in range(GROUPS + 1))))
            self.hear(name, now)

    def end(self, now: float) -> None:
        name = self.some()
        if name and self.pods[name]["node"]:
            self.pods[name]["phase"] = self.dice.choice(("Succeeded", "Failed"))
            self.hear(name, now)

    def delete(self, now: float) -> None:
        if name := self.some():
            uid = self.pods.pop(name)["uid"]
            self.accounting.apply([gone(name)], now)
            if uid in self.open:
                self.open[uid] = False

    def group(self, _: float) -> None:
        key = f"vision/g{self.dice.randrange(GROUPS)}"
        if key in self.groups:
            del self.groups[key]
        else:
            self.made += 1
            metadata = {"name": key.partition("/")[2], "namespace": "vision", "uid": f"uid-group-{self.made}"}
            self.groups[key] = msgspec.convert({"metadata": metadata, "spec": {}}, views.PodGroup)

    def write(self, now: float) -> None:
        self.accounting.write(now)

    def restart(self, now: float) -> None:
        """Another operator goes on from what was written and what there is; what went meanwhile is over.

        The one before still runs, has missed what became of its pods, and writes nothing any more.
        """
        self.accounting.write(now)
        before, late = self.history, self.accounting
        self.history = History(self.url)
        late.apply([gone(name) for name in self.pods], now)
        with pytest.raises(HistoryError, match="another operator has taken the database over"):
            late.write(now)
        before.close()
        self.job = {uid: job for uid, job in self.job.items() if uid in self.open}
        self.accounting = Accounting(self.history, self.groups.get)
        if (name := self.some()) and self.dice.random() < 0.5:
            uid = self.pods.pop(name)["uid"]
            if uid in self.open:
                self.open[uid] = False
        self.known = {entry.job.uid for entry in self.history.jobs(Wanted(limit=10_000), now)}
        self.known |= {job.uid for job in self.history.open_ends()[0]}
        for each in sorted(self.pods):
            self.hear(each, now)
        self.accounting.close_others()

    def check(self, now: float) -> None:
        self.accounting.write(now)
        runs = {}
        for entry in self.history.jobs(Wanted(limit=10_000), now):
            theirs = self.history.runs(entry.job.uid)
            runs |= {run.uid: run for run in theirs}
            alive = any(self.job.get(each["uid"]) == entry.job.uid and each["phase"] in ("Pending", "Running")
                        for each in self.pods.values())  # fmt: skip
            assert (entry.job.state in OPEN) == (entry.job.ended_at is None) == alive, entry
        assert {uid: (run.job, run.ended_at is None) for uid, run in runs.items()} == {
            uid: (self.job[uid], going) for uid, going in self.open.items()
        }


@on_databases(range(60))
def test_a_pod_counts_for_its_first_job(database, seed):
    world = World(seed, database)
    try:
        for count in range(STEPS):
            world.step(10.0 + count)
            if count % 10 == 0:
                world.check(10.0 + count)
        world.check(1000.0)
    finally:
        world.history.close()
