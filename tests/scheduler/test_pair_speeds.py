"""What a scheduler learned of jobs that share GPUs is known to the next one, however the first one ended."""

import asyncio
import json
from contextlib import ExitStack

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.api import names, speeds
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.core.model.policy import Policy
from fairlead.scheduler.decision_log import LogWriter, Player
from fairlead.simulation.neighbours import plan
from fairlead.simulation.world import Process, World
from tests.scheduler.test_standby import until

LEASES, RECORD = "coordination.k8s.io/leases", ("kube-system", "fairlead-scheduler-pair-speeds")


class Story:
    """A node with one GPU that two jobs may share, and schedulers."""

    def __init__(self, folder):
        self.folder = folder
        self.world = World(nodes=1, seed=1)
        labels = {"kubernetes.io/hostname": "shared", names.GPU_SHARING_LABEL: names.OWN_AGENT}
        self.world.add_host("shared", labels, {"cpu": "8", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "1"})
        self.world.create(plan.class_object(plan.Plan(seed=1, pairs=True), plan.SMALL))
        self.logs = []
        self.open = ExitStack()
        self.running = []

    async def start(self, number):
        self.logs.append(self.folder / f"{number}.jsonl")
        log = self.open.enter_context(self.logs[-1].open("wb"))
        process = Process(self.world, number, recorder=LogWriter(log, Policy()))
        process.start()
        self.running.append(process)
        await until(lambda: process.scheduler is not None)
        await asyncio.sleep(5.0)
        return process

    def submit(self, *pods):
        for name in pods:
            asked = {"nvidia.com/gpu": "1"}
            container = {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}
            labels = {names.SERVICE_CLASS_LABEL: plan.SMALL}
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision", "labels": labels}}
            spec = {"schedulerName": "fairlead", "restartPolicy": "Never", "containers": [container]}
            self.world.create({**manifest, "spec": spec}, "vision")

    def report(self, name, steps):
        record = self.world.api.store.get("pods", ("vision", name)).object
        written = speeds.written(self.world.clock.text(), steps)
        annotations = {**record["metadata"]["annotations"], names.MEASURED_SPEED_ANNOTATION: written}
        metadata = {**record["metadata"], "annotations": annotations}
        self.world.api.store.put("pods", ("vision", name), {**record, "metadata": metadata})

    def remove(self, *pods):
        pods_of = self.world.api.served("v1", "pods")
        for name in pods:
            self.world.api.delete(pods_of, "vision", name)

    def bound(self):
        return {key[1] for key, record in self.world.api.store.records("pods") if record.object["spec"].get("nodeName")}

    def record(self):
        found = self.world.api.store.get(LEASES, RECORD)
        return json.loads(found.object["metadata"]["annotations"][names.PAIR_SPEEDS_ANNOTATION]) if found is not None else {}

    async def learn(self):
        """One job fails soon after it met the other: nothing of either is left in the cluster then."""
        self.submit("a-1", "b-1")
        await until(lambda: self.bound() == {"a-1", "b-1"})
        await asyncio.sleep(100.0)
        for name in ("a-1", "b-1"):
            self.report(name, 10.0)
        await asyncio.sleep(20.0)
        self.world.kubelet.end(("vision", "b-1"), failed=True)
        await asyncio.sleep(70.0)
        self.remove("a-1", "b-1")
        await until(lambda: not self.bound())


def virtual(folder, story):
    async def run():
        each = Story(folder)
        with each.open:
            try:
                await story(each)
            finally:
                for process in each.running:
                    await process.stop()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


@pytest.mark.parametrize("how", ["killed", "killed beside a standby", "stopped"])
def test_the_next_scheduler_puts_no_job_beside_one_that_it_does_not_run_with(tmp_path, how):
    async def story(each):
        first = await each.start(1)
        if "standby" in how:
            await each.start(2)
        await each.learn()
        assert {"name/vision/vision/a", "name/vision/vision/b"} <= {kind[0] for kind in each.record()["kinds"]}
        await (first.stop() if how == "stopped" else first.kill())
        second = each.running[1] if "standby" in how else await each.start(2)
        await until(lambda: second.deciding)
        each.submit("a-2", "b-2")
        await until(each.bound)
        await asyncio.sleep(300.0)
        assert len(each.bound()) == 1, "the other waits"
        each.submit("c-1")
        await until(lambda: "c-1" in each.bound())

    virtual(tmp_path, story)
    for log in tmp_path.iterdir():
        assert Player(log).play().identical
    assert "SpeedsKept" in (tmp_path / "2.jsonl").read_text()


def test_it_is_written_once_a_minute_at_most_and_only_where_something_is_news(tmp_path):
    async def story(each):
        await each.start(1)
        each.submit("a-1", "b-1")
        await until(lambda: each.bound() == {"a-1", "b-1"})
        await asyncio.sleep(100.0)
        written = set()
        for steps in range(1, 60):
            for name in ("a-1", "b-1"):
                each.report(name, float(10 + steps % 2 * steps))
            await asyncio.sleep(5.0)
            found = each.world.api.store.get(LEASES, RECORD)
            written.add(found.object["metadata"]["resourceVersion"] if found is not None else "")
        assert 4 <= len(written - {""}) <= 6
        await asyncio.sleep(120.0)
        last = each.world.api.store.get(LEASES, RECORD).object
        for _ in range(30):
            each.report("a-1", 10.0)
            await asyncio.sleep(30.0)
        settled = each.world.api.store.get(LEASES, RECORD).object
        await asyncio.sleep(600.0)
        assert each.world.api.store.get(LEASES, RECORD).object == settled
        assert settled["metadata"]["uid"] == last["metadata"]["uid"]

    virtual(tmp_path, story)


@pytest.mark.parametrize(
    "text", ["nonsense", '{"kinds": [["name/vision//a", -5.0]]}', msgspec.json.encode({"kinds": 7}).decode()]
)
def test_what_others_wrote_there_is_a_warning_and_stops_nothing(tmp_path, text):
    async def story(each):
        first = await each.start(1)
        await each.learn()
        await first.kill()
        leases = each.world.api.served("coordination.k8s.io/v1", "leases")
        changed = {"metadata": {"annotations": {names.PAIR_SPEEDS_ANNOTATION: text}}}
        each.world.api.patch(leases, *RECORD, "application/merge-patch+json", changed)
        with capture_logs() as logs:
            second = await each.start(2)
            await until(lambda: second.deciding)
        assert [line["log_level"] for line in logs if "jobs that share GPUs" in line["event"]] == ["warning"]
        each.submit("a-2", "b-2")
        await until(lambda: each.bound() == {"a-2", "b-2"})

    virtual(tmp_path, story)
