"""Nodes and failures on the simulated cluster: buggy jobs blame no node, a bad node is found, and its release discards the evidence."""

import asyncio
from functools import partial

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.simulation import aijobs
from fairlead.simulation.world import OperatorProcess, Process, World

LABEL, UNTIL, REASON = "fairlead.dev/quarantined", "fairlead.dev/quarantined-until", "fairlead.dev/quarantine-reason"
FAILURES = "fairlead.dev/failures"


class Story:
    """A cluster of nodes of eight GPUs, users, and jobs that crash where they are to."""

    def __init__(self, nodes):
        self.world = World(nodes=0, seed=1)
        for number in range(nodes):
            self.world.create(aijobs.node(f"n{number}", 8))
        Process(self.world, 0).start()
        self.operator = OperatorProcess(self.world)
        self.operator.start()
        self.buggy, self.bad = set(), ""
        self.doomed = set()

    def job(self, name, user, *, seconds=900, workers=1, buggy=False, **spec):
        made = aijobs.ai_job(name, workers, seconds=seconds, restart={"limit": 3, "backoff": "1s"}, **spec)
        made["metadata"]["annotations"] = {"fairlead.dev/user": user}
        self.world.create(made, "vision")
        if buggy:
            self.buggy.add(name)

    async def live(self, seconds):
        """Time passes; what runs on the bad node, and every buggy job, crashes twenty seconds after it began."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for pod in aijobs.pods(self.world):
                name, job = pod["metadata"]["name"], pod["metadata"]["labels"].get("fairlead.dev/job", "")
                if pod["status"].get("phase") != "Running" or name in self.doomed:
                    continue
                first = name.rpartition("-")[0].endswith("-0")
                if pod["spec"]["nodeName"] == self.bad or (job in self.buggy and first):
                    self.doomed.add(name)
                    loop.call_later(20.0, partial(self.world.kubelet.end, ("vision", name), failed=True))
            await asyncio.sleep(1.0)

    def node(self, name):
        return self.world.api.store.get("nodes", ("", name)).object["metadata"]

    @property
    def quarantined(self):
        names = [f"n{number}" for number in range(100) if self.world.api.store.get("nodes", ("", f"n{number}"))]
        return [name for name in names if LABEL in (self.node(name).get("labels") or {})]

    def patch(self, node, metadata):
        resource = self.world.api.served("v1", "nodes")
        self.world.api.patch(resource, "", node, "application/merge-patch+json", {"metadata": metadata})


def play(story):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


def test_buggy_jobs_of_several_users_quarantine_no_node():
    async def story():
        on = Story(3)
        await asyncio.sleep(5.0)
        for number in range(8):
            on.job(f"buggy-{number}", f"user-{number % 4}", workers=1 + number % 2, buggy=True)
            on.job(f"sound-{number}", f"user-{number % 4}")
            await on.live(120.0)
        await on.live(600.0)
        phases = {aijobs.phase(on.world, f"buggy-{number}") for number in range(8)}
        return on.quarantined, phases, [(on.node(f"n{number}").get("annotations") or {}).get(FAILURES) for number in range(3)]

    quarantined, phases, noted = play(story)
    assert phases == {"Failed"}
    assert (quarantined, noted) == ([], [None] * 3), "a job that fails everywhere says nothing of a node"


def test_a_laptop_is_never_blamed_for_jobs():
    async def story():
        on = Story(1)
        await asyncio.sleep(5.0)
        on.bad = "n0"
        for number in range(6):
            on.job(f"job-{number}", f"user-{number}")
        await on.live(600.0)
        return on.quarantined

    assert play(story) == []


async def until_blamed(on, names, most=25):
    """Jobs of several users come, each as large as a node, until a node is quarantined. Returns how many came."""
    for number in range(most):
        for each in range(3):
            on.job(f"{names}-{number}-{each}", f"user-{(number + each) % 5}", workers=8, seconds=400)
        await on.live(150.0)
        if on.quarantined:
            return number
    return most


def test_a_bad_node_is_found_and_its_release_forgets_what_was_noted():
    async def story():
        on = Story(8)
        await asyncio.sleep(5.0)
        on.bad = "n0"
        came = await until_blamed(on, "first")
        found, told = on.quarantined, on.node("n0")["annotations"]
        on.job("gang", "user-1", workers=8, seconds=60)
        await on.live(30.0)
        gang = {pod["spec"].get("nodeName") for pod in aijobs.pods(on.world, "gang")}
        on.patch("n0", {"labels": {LABEL: None}})
        await on.live(5.0)
        forgotten = on.node("n0")["annotations"]
        on.job("next", "user-2")
        on.job("after", "user-3")
        await on.live(400.0)
        still = on.quarantined
        await on.operator.kill()
        OperatorProcess(on.world).start()
        await on.live(60.0)
        again = await until_blamed(on, "second")
        return came, found, told, gang, forgotten, still, again, on.quarantined

    came, found, told, gang, forgotten, still, again, last = play(story)
    assert found == ["n0"], came
    assert "ran elsewhere" in told[REASON]
    assert told[UNTIL] > "2026"
    assert gang
    assert "n0" not in gang
    assert not {UNTIL, REASON, FAILURES} & set(forgotten), "taking the label away forgets the record"
    assert still == [], "one more failure is not enough then"
    assert last == ["n0"], f"found anew after {again} jobs"


def test_a_release_while_no_operator_runs_forgets_as_well():
    async def story():
        on = Story(2)
        await asyncio.sleep(5.0)
        await on.operator.kill()
        noted = "2026-01-01T00:00:01Z (lost),2026-01-01T00:02:00Z (lost)"
        on.patch("n0", {"annotations": {UNTIL: "2026-01-01T06:00:00Z", FAILURES: noted}})
        OperatorProcess(on.world).start()
        await on.live(20.0)
        return on.node("n0")["annotations"]

    annotations = play(story)
    assert set(annotations) & {UNTIL, FAILURES, REASON} == set()
    assert annotations["fairlead.dev/released"] >= "2026-01-01T00:00:05Z"


def test_a_condition_quarantines_until_it_is_over_and_not_again_once_released():
    async def story():
        on = Story(4)
        await asyncio.sleep(5.0)
        resource = on.world.api.served("v1", "nodes")

        def say(status, at):
            record = on.world.api.store.get("nodes", ("", "n2")).object
            kept = [each for each in record["status"]["conditions"] if each["type"] != "ReadonlyFilesystem"]
            said = {"type": "ReadonlyFilesystem", "status": status, "lastTransitionTime": at, "message": "remounted ro"}
            patch = {"status": {"conditions": [*kept, said]}}
            on.world.api.patch(resource, "", "n2", "application/merge-patch+json", patch, subresource="status")

        say("True", on.world.api.clock.text())
        await on.live(5.0)
        found = on.quarantined, on.node("n2")["annotations"][REASON]
        await on.live(6 * 3600 + 60.0)
        lasts = on.quarantined
        on.patch("n2", {"labels": {LABEL: None}})
        await on.live(60.0)
        released = on.quarantined
        say("False", on.world.api.clock.text())
        await on.live(60.0)
        say("True", on.world.api.clock.text())
        await on.live(60.0)
        return found, lasts, released, on.quarantined

    found, lasts, released, anew = play(story)
    assert found == (["n2"], "condition ReadonlyFilesystem=True: remounted ro")
    assert lasts == ["n2"], "as long as it holds"
    assert released == [], "whoever released the node knew of it"
    assert anew == ["n2"], "it came about anew"
