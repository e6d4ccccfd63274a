"""The commands that show a cluster, on a simulated one over HTTP; the demo; shadow mode; real kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.api import names
from fairlead.cli import devices
from fairlead.cli.connection import run
from fairlead.cli.main import app
from fairlead.cli.snapshot import read
from fairlead.cli.top import Sort, summary
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import load
from fairlead.cluster.simulated.http import Server
from fairlead.scheduler.app import Scheduler, Simulation
from fairlead.scheduler.options import Options
from fairlead.simulation.world import Process, World
from testbed import objects
from tests.waiting import until

LIMIT = 30.0


class Box(threading.Thread):
    """A world with a scheduler in it, served over HTTP on a loop of its own."""

    def __init__(self, folder: Path, scheduler=True, nodes=10, speed=20):
        super().__init__(daemon=True)
        self.kubeconfig = folder / "kubeconfig"
        self.ready = threading.Event()
        self.with_scheduler = scheduler
        self.nodes = nodes
        self.speed = speed

    def run(self):
        asyncio.run(self.main())

    async def main(self):
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        self.world = World(nodes=self.nodes, seed=1, speed=self.speed, start=time.time())
        async with Server(self.world.wire) as self.server:
            self.server.write_kubeconfig(self.kubeconfig)
            process = Process(self.world, 0)
            if self.with_scheduler:
                process.start()
            self.ready.set()
            await self.stop.wait()
            await process.kill()

    def __enter__(self):
        self.start()
        assert self.ready.wait(LIMIT)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.join(LIMIT)

    def create(self, *manifests, namespace="vision"):
        def work():
            for manifest in manifests:
                self.world.create(manifest, namespace)

        asyncio.run_coroutine_threadsafe(self._call(work), self.loop).result(LIMIT)

    async def _call(self, work):
        return work()

    def kubectl(self, *arguments, text=None, check=True):
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=check, timeout=60).stdout

    def fairlead(self, *arguments):
        return CliRunner().invoke(app, [*arguments, "--kubeconfig", str(self.kubeconfig)])

    def json(self, *arguments):
        done = self.fairlead(*arguments, "-o", "json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


@pytest.fixture
def box(tmp_path):
    with Box(tmp_path) as running:
        yield running


@pytest.fixture
def renamed():
    """Commands with `--config` run in this process."""
    yield
    names.answer_to(names.DEFAULT_SCHEDULERS)


def test_percentages_are_shown_as_what_they_come_to(box):
    box.create(objects.queue("half", quota="50%", limit="100%"))
    total = sum(node["gpus"] for node in box.json("nodes")["nodes"])

    def amounts():
        found = {each["name"]: each for each in box.json("share")["queues"]}
        return [(each["quota"], each["limit"]) for each in found["half"]["resources"]] if "half" in found else None

    assert until(amounts) == [(total / 2, total)]
    found = next(each for each in box.json("quota")["queues"] if each["queue"] == "half")
    assert [(each["quota"], each["limit"]) for each in found["resources"]] == [(total / 2, total)]


def test_amounts_are_shown_as_they_are_written(box):
    team = objects.queue("team")
    limits = [{"name": "cpu", "quota": "96"}, {"name": "memory", "limit": "1Ti"}]
    box.create({**team, "spec": {"resources": limits}}, objects.pod("p", queue="team", gpus=0, cpu="1500m", memory="3Gi"))

    def rows():
        lines = [each.split() for each in box.fairlead("quota", "--queue", "team").stdout.splitlines()]
        return {each[1]: each[2:] for each in lines if each[:1] == ["team"]}

    found = until(lambda: read if (read := rows()).get("cpu", [""])[0] == "1.5" else None)
    assert found["cpu"] == ["1.5", "96", "94.5", "-", "-"]
    assert found["memory"] == ["3Gi", "-", "-", "1Ti", "1021Gi"]
    (line,) = (each.split() for each in box.fairlead("share", "--resource", "cpu").stdout.splitlines() if each.startswith("team"))
    assert (line[2], line[5]) == ("96", "1.5")


@pytest.mark.usefixtures("renamed")
def test_the_commands_answer_as_the_release_of_their_configuration_does(box, tmp_path):
    team = objects.queue("team")
    team["spec"]["schedulerName"] = "blue"
    box.create(team, objects.pod("huge", scheduler="blue", queue="team", gpus=64), objects.pod("lost", queue="team"))
    lost = until(lambda: found if (found := box.json("explain", "pod/lost", "-n", "vision"))["code"] else None)
    assert (lost["code"], "is served by scheduler 'blue'" in lost["message"]) == ("OtherScheduler", True)
    assert "team" not in {each["name"] for each in box.json("share")["queues"]}
    assert box.fairlead("explain", "pod/huge", "-n", "vision").exit_code != 0
    blue = tmp_path / "blue.yaml"
    profiles = "profiles: [{schedulerName: blue, profile: ai}]"
    blue.write_text(f"apiVersion: config.fairlead.dev/v1alpha1\nkind: SchedulerConfiguration\nname: blue\n{profiles}\n")
    given = ("--config", str(blue))
    shown = {each["name"] for each in box.json("share", *given)["queues"]}
    assert ("team" in shown, "vision" in shown) == (True, False)
    assert box.json("explain", "pod/huge", "-n", "vision", *given)["code"] == "Resources"
    printed = CliRunner().invoke(app, ["crds", "--policies", *given])
    assert (printed.exit_code, "blue-fencing" in printed.stdout, "fairlead-user" in printed.stdout) == (0, True, False)
    refused = CliRunner().invoke(app, ["crds", "--policies", "--trust", "ray", *given])
    message = " ".join(refused.output.replace("│", " ").split())
    assert (refused.exit_code, "are of the policies of release fairlead" in message) == (2, True), message


def test_queue_nodes_share_and_explain_tell_of_the_same_jobs(box):
    box.create(
        objects.pod_group("ring", 3),
        *(objects.pod(f"ring-{i}", group="ring", gpus=8) for i in range(3)),
        objects.pod("huge", gpus=64),
        objects.pod("lost", queue="nowhere"),
    )
    jobs = until(lambda: {j["name"]: j for j in box.json("queue")["jobs"]} if len(running(box)) == 1 and waiting(box) else None)
    assert (jobs["ring"]["state"], jobs["ring"]["pods"], jobs["ring"]["gpus"], jobs["ring"]["queue"]) == (
        "Running",
        3,
        24.0,
        "vision",
    )
    assert len(jobs["ring"]["nodes"]) == 3
    assert jobs["huge"]["state"] == "Pending"
    assert jobs["huge"]["reason"]["code"] == "Resources"
    nodes = box.json("nodes", "--gpus")["nodes"]
    assert sum(node["gpus_used"] for node in nodes) == 24
    assert {node["state"] for node in nodes} == {"idle", "allocated"}
    shares = {each["name"]: each for each in box.json("share")["queues"]}
    gpus = next(each for each in shares["vision"]["resources"] if each["resource"] == "nvidia.com/gpu")
    assert gpus["allocated"] == 24
    assert shares["vision"]["pending"] == 1
    ring = box.json("explain", "podgroup/ring", "-n", "vision")
    assert (ring["state"], ring["placed"], ring["nodes"]) == ("Running", 3, jobs["ring"]["nodes"])
    huge = box.json("explain", "pod/huge", "-n", "vision")
    assert (huge["position"], huge["code"]) == (1, "Resources")
    assert "Insufficient nvidia.com/gpu" in huge["message"]
    assert huge["advice"].startswith("No node is large enough: a pod asks for 64 nvidia.com/gpu, the largest node has 8.")
    assert box.json("explain", "pod/lost", "-n", "vision")["code"] == "UnknownQueue"
    assert [each["name"] for each in huge["rank"]][:3] == ["queue priority", "express", "share of vision"]
    assert huge["ahead"] == []
    quota = {each["queue"]: each for each in box.json("quota")["queues"]}["vision"]
    assert (quota["running"], quota["submitted"]) == (1, 2)
    assert next(each for each in quota["users"] if each["user"] == "vision")["running"] == 1
    where = box.json("feasibility", "pod/huge", "-n", "vision")
    assert (where["feasible"], where["nodes"], where["node"]) == ([], 10, "")
    assert {each["message"] for each in where["refused"]} == {"Insufficient nvidia.com/gpu"}
    back = box.json("feasibility", "pod/ring-0", "-n", "vision")
    assert back["node"] in back["feasible"]  # it is judged as if it did not run there
    commands = (
        ("queue",),
        ("nodes",),
        ("share",),
        ("explain", "pod/huge", "-n", "vision"),
        ("feasibility", "pod/huge", "-n", "vision"),
    )
    for command in commands:
        done = box.fairlead(*command)
        assert done.exit_code == 0, done.output
        assert done.stdout.strip()


def test_explain_says_who_took_its_place(box):
    gpus = sum(
        int(each["status"]["allocatable"].get("nvidia.com/gpu", 0))
        for each in json.loads(box.kubectl("get", "nodes", "-o", "json"))["items"]
    )
    low = [objects.pod(f"low-{i}", group="low", priorityClassName="batch") for i in range(gpus)]
    box.create(objects.pod_group("low", gpus), *low)
    until(lambda: running(box))
    box.create(objects.pod("high", priorityClassName="serving"))
    until(lambda: any(each["name"] == "high" for each in running(box)))
    box.create(*(objects.pod(f"low-{i}", group="low", priorityClassName="batch") for i in range(gpus)))
    found = box.json("explain", "podgroup/low", "-n", "vision")
    assert found["preempted"].startswith("Preempted by vision/high on node")
    assert "its priority is higher" in found["preempted"]
    assert found["expected_start"] or found["would_start_on"]
    assert "preempted" in box.fairlead("explain", "podgroup/low", "-n", "vision").output


@pytest.fixture
def slow_box(tmp_path):
    """Where a process of its own has time to answer."""
    with Box(tmp_path, speed=2) as running:
        yield running


def test_a_job_is_suspended_and_resumes_with_an_operator(slow_box):
    box = slow_box
    command = [sys.executable, "-m", "fairlead", "operator", "--kubeconfig", str(box.kubeconfig), "--no-leader-elect"]
    operator = subprocess.Popen([*command, "--address", ""], stderr=subprocess.DEVNULL)
    try:
        labels = {"fairlead.dev/service-class": "nightly"}
        job = objects.job("train", pods=2)
        spec = {**objects.pod("template", gpus=8, priorityClassName="batch")["spec"], "restartPolicy": "Never"}
        job["spec"]["template"] = {"metadata": {"labels": labels}, "spec": spec}
        box.create(objects.service_class("nightly", preemption={"mode": "Suspend"}))
        box.create(job)
        until(lambda: len(running(box)) == 2)
        nodes = len(json.loads(box.kubectl("get", "nodes", "-o", "json"))["items"])
        box.create(*(objects.pod(f"high-{i}", gpus=8, priorityClassName="serving") for i in range(nodes)))
        until(lambda: box.json("queue", "--state", "Suspended")["jobs"])
        (found,) = box.json("queue", "--state", "Suspended")["jobs"]
        assert (found["name"], found["pods"], found["gpus"], found["priority"] > 0) == ("job-batch.train", 2, 16.0, True)
        told = box.json("explain", "podgroup/job-batch.train", "-n", "vision")
        assert told["state"] == "Suspended"
        assert told["position"] > 0
        assert "Suspended by" in told["preempted"]
        assert box.json("explain", "job/train", "-n", "vision")["state"] == "Suspended"
        assert "SUSPENDED" in box.fairlead("queue").output.upper()
        box.kubectl("delete", "pod", "-n", "vision", *(f"high-{i}" for i in range(nodes)), "--wait=false")
        until(lambda: len([each for each in running(box) if each["name"].startswith("train")]) == 2)
        assert not box.json("queue", "--state", "Suspended")["jobs"]
    finally:
        operator.terminate()
        assert operator.wait(20) == 0


@pytest.fixture
def operator(slow_box):
    command = [sys.executable, "-m", "fairlead", "operator", "--kubeconfig", str(slow_box.kubeconfig), "--no-leader-elect"]
    process = subprocess.Popen([*command, "--address", ""], stderr=subprocess.DEVNULL)
    yield process
    process.terminate()
    assert process.wait(20) == 0


def submitted(box, *arguments):
    """Arguments after `--` come last."""
    options, command = (list(arguments), [])
    if "--" in options:
        cut = options.index("--")
        options, command = options[:cut], options[cut:]
    return CliRunner().invoke(app, ["submit", "-n", "vision", "--kubeconfig", str(box.kubeconfig), *options, *command])


def test_a_script_is_submitted_runs_and_is_controlled(slow_box, operator, tmp_path):
    box, script = slow_box, tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -J Train -N 2 -G 4 --mail-user=me\n#FAIRLEAD --image=train --env A=b\npython train.py\n"
    )

    def phase(name):
        return json.loads(box.kubectl("get", "aijob", name, "-n", "vision", "-o", "json")).get("status", {}).get("phase")

    done = submitted(box, str(script), "-o", "json", "--", "--fast")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["jobs"], told["left_out"]) == (["vision/train"], ["line 2: --mail-user has no meaning here"])
    until(lambda: phase("train") == "Running")
    pod = json.loads(box.kubectl("get", "pod", "train-worker-1-0", "-n", "vision", "-o", "json"))
    assert pod["spec"]["containers"][0]["command"] == ["/fairlead/script", "--fast"]
    kept = json.loads(box.kubectl("get", "configmap", "train-script", "-n", "vision", "-o", "json"))
    assert kept["data"]["script"] == script.read_text()
    assert kept["metadata"]["ownerReferences"][0]["kind"] == "AIJob"
    assert box.fairlead("hold", "train", "-n", "vision").exit_code == 3, "it runs"
    assert "train suspended" in box.fairlead("suspend", "train", "-n", "vision").output
    until(lambda: phase("train") == "Suspended")
    assert "train resumed" in box.fairlead("resume", "aijob/train", "-n", "vision").output
    until(lambda: phase("train") == "Running")
    assert "train cancelled" in box.fairlead("cancel", "train", "-n", "vision").output
    until(lambda: not [each for each in running(box) if each["name"] == "train"])
    assert box.fairlead("cancel", "train", "-n", "vision").exit_code == 4


def test_a_script_that_is_submitted_again_is_not_the_one_before(box, tmp_path):
    """A deleted job's ConfigMap is collected a while after it."""
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash\n#FAIRLEAD --image=train\necho new\n")
    before = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "name": "train", "uid": "earlier"}
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"script": "old", "rest": "of it"}}
    box.create({**kept, "metadata": {"name": "train-script", "ownerReferences": [before]}})

    def found():
        return json.loads(box.kubectl("get", "configmap", "train-script", "-n", "vision", "-o", "json"))

    done = submitted(box, str(script))
    assert done.exit_code == 0, done.output
    job = json.loads(box.kubectl("get", "aijob", "train", "-n", "vision", "-o", "json"))
    assert found()["data"] == {"script": script.read_text()}
    assert [each["uid"] for each in found()["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]], "it goes with this job"
    box.kubectl("delete", "aijob", "train", "-n", "vision")
    box.create({**kept, "metadata": {"name": "train-script"}})
    done = submitted(box, str(script))
    assert done.exit_code == 3
    assert "ConfigMap train-script exists in namespace vision and is of no job train: delete it" in done.output
    assert found()["data"] == kept["data"], "a user's own stays as it is"
    assert not json.loads(box.kubectl("get", "aijobs", "-n", "vision", "-o", "json"))["items"], "and no job runs it"


def test_each_of_several_jobs_is_controlled_whatever_the_others_are_refused(box):
    phases = {"runs": "Running", "over": "Succeeded", "first": "Pending", "last": "Pending"}
    box.create(objects.job("ended"), *map(objects.ai_job, phases))
    statuses = {f"aijob/{name}": {"phase": phase} for name, phase in phases.items()}
    statuses["job/ended"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    for job, status in statuses.items():
        text = json.dumps({"status": status})
        box.kubectl("patch", job, "-n", "vision", "--subresource=status", "--type=merge", "-p", text)

    def done(command, *jobs):
        found = box.fairlead(command, *jobs, "-n", "vision")
        return found.exit_code, found.stdout.splitlines(), found.stderr.splitlines()

    refusals = ["fairlead: runs is already running: use `fairlead suspend` instead", "fairlead: over has ended: Succeeded"]
    assert done("hold", "first", "runs", "over", "last") == (3, ["first held", "last held"], refusals)
    assert done("hold", "first", "nobody") == (4, ["first already held"], ["fairlead: nobody: no such job in namespace vision"])
    assert done("suspend", "over", "job/ended", "last") == (
        3,
        ["last already suspended"],
        ["fairlead: over has ended: Succeeded", "fairlead: job/ended has ended: Failed"],
    )
    assert done("release", "first", "runs") == (0, ["first released", "runs not held"], [])
    assert done("resume", "first", "last") == (0, ["first not suspended by its user", "last resumed"], [])
    assert done("cancel", "nobody", "over", "pod/x")[0] == 2, "before anything is done"
    assert done("cancel", "nobody", "over") == (4, ["over cancelled"], ["fairlead: nobody: no such job in namespace vision"])
    assert done("cancel", "runs?dryRun=All")[0] == 4, "a name is no query"


def test_a_job_whose_pods_wait_for_nodes_is_held_and_one_that_runs_is_not(box):
    waits, runs = objects.job("waits"), objects.job("runs")
    waits["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "64"}}
    box.create(waits, runs)

    def job(name):
        return json.loads(box.kubectl("get", "job", name, "-n", "vision", "-o", "json"))

    until(lambda: job("waits").get("status", {}).get("active") and job("runs").get("status", {}).get("ready"))
    done = box.fairlead("hold", "job/waits", "job/runs", "-n", "vision")
    assert (done.exit_code, done.stdout) == (3, "job/waits held\n")
    assert "job/runs is already running" in done.stderr
    assert job("waits")["spec"]["suspend"]
    assert not job("runs")["spec"].get("suspend")


@pytest.mark.parametrize("command", ["suspend", "hold"])
def test_what_the_scheduler_suspended_stays_suspended_where_its_user_says_so(box, command):
    marks = {names.SUSPENDED_BY_ANNOTATION: "policy", names.SUSPENDED_FOR_ANNOTATION: "job-batch.low"}
    low = objects.job("low")
    low["metadata"] |= {
        "annotations": {**marks, names.TARGET_EPOCH_ANNOTATION: "3"},
        "labels": {names.SUSPENDED_BY_LABEL: "policy"},
    }
    low["spec"]["suspend"] = True
    box.create(low, objects.pod_group("job-batch.low", 1))

    def seen(kind, name):
        found = json.loads(box.kubectl("get", kind, name, "-n", "vision", "-o", "json"))
        both = {**found["metadata"].get("annotations", {}), **found["metadata"].get("labels", {})}
        return found["spec"].get("suspend"), {
            key: value for key, value in both.items() if key in (*marks, names.PAUSED_ANNOTATION)
        }

    assert box.fairlead(command, "job/low", "-n", "vision").stdout in ("job/low suspended\n", "job/low held\n")
    assert seen("job", "low") == (True, {names.SUSPENDED_FOR_ANNOTATION: "job-batch.low"}), "no operator resumes it"
    assert seen("podgroup", "job-batch.low")[1] == {names.PAUSED_ANNOTATION: "true"}, "and no place is reserved for it"
    assert "already" in box.fairlead(command, "job/low", "-n", "vision").stdout
    assert box.fairlead("resume", "job/low", "-n", "vision").stdout == "job/low resumed\n"
    assert seen("job", "low") == (False, {})
    assert seen("podgroup", "job-batch.low")[1] == {}


def test_what_cannot_be_submitted_is_said_and_a_rehearsal_submits_nothing(box, tmp_path):
    plain = tmp_path / "plain.sh"
    plain.write_text("echo hello\n")
    for arguments, told in (
        ([str(plain)], "#!/bin/bash"),
        (["--", "true"], "no image: use"),
        ([], "give a script"),
        (["--image", "i", "--gpus", "many", "--", "true"], "--gpus 'many' is not a whole number"),
        ([str(tmp_path / "none.sh")], "cannot read"),
        ([str(tmp_path)], "Is a directory"),
    ):
        done = submitted(box, *arguments)
        assert (done.exit_code, told in done.output) == (2, True), done.output
    done = submitted(box, "--dry-run", "--image", "i", "-G", "8", "--name", "probe", "--", "python", "train.py")
    assert done.exit_code == 0, done.output
    assert "kind: AIJob" in done.output
    assert "# vision/probe would start now on" in done.output
    assert not box.json("queue")["jobs"]
    huge = submitted(box, "--dry-run", "--image", "i", "-G", "64", "--name", "huge", "--", "true")
    assert "would not start now" in huge.output


def written(folder, name, *manifests):
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(manifests[0]) if len(manifests) == 1 else "\n---\n".join(map(json.dumps, manifests)))
    return str(path)


def test_a_dry_run_is_refused_as_the_submission_would_be(box, tmp_path):
    typed = objects.ai_job("typed", timelimit="12h")
    late = objects.ai_job("late", timeLimit="1h30")
    many = objects.ai_job("many", workers=1_000_000)
    for manifest, told in (
        (typed, 'unknown field "spec.timelimit"'),
        (late, "spec.timeLimit"),
        (many, "spec.roles[0].replicas"),
        (objects.ai_job("Ünïcode"), "metadata.name"),
        ({**objects.ai_job("old"), "apiVersion": "v1"}, "API version"),
    ):
        file = written(tmp_path, "job", manifest)
        answers = [submitted(box, file, *more) for more in ((), ("--dry-run",))]
        assert [(each.exit_code, told in each.stderr) for each in answers] == [(3, True)] * 2, [each.output for each in answers]
        assert answers[0].stderr == answers[1].stderr
    elsewhere = objects.ai_job("elsewhere")
    elsewhere["metadata"]["namespace"] = "language"
    (tmp_path / "empty.yaml").write_text("# none\n")
    for file, told in (
        (written(tmp_path, "elsewhere", elsewhere), "is of namespace language, and --namespace is vision"),
        (written(tmp_path, "nameless", {**objects.ai_job("x"), "metadata": {}}), "no metadata.name"),
        (str(tmp_path / "empty.yaml"), "has no AIJob in it"),
    ):
        for more in ((), ("--dry-run",)):
            done = submitted(box, file, *more)
            assert (done.exit_code, told in done.stderr) == (2, True), done.output
    assert not json.loads(box.kubectl("get", "aijobs", "-A", "-o", "json"))["items"]


def test_a_dry_run_shows_what_is_left_out_and_when_each_job_would_start(box, tmp_path):
    script = tmp_path / "sweep.sh"
    script.write_text("#!/bin/bash\n#SBATCH -a 0-399%200 --gpus=8 --mail-user=me -d afterok:first\ntrue\n")
    done = submitted(box, str(script), "--dry-run", "--image", "i")
    assert (done.exit_code, done.stderr) == (0, "left out: line 2: --mail-user has no meaning here\n")
    last = done.stdout.splitlines()[-1]
    assert last == "# vision/sweep would not start now: job 'first', which it depends on, does not exist in namespace vision"
    box.create(objects.ai_job("first"))
    told = json.loads(submitted(box, str(script), "--dry-run", "--image", "i", "-o", "json").stdout)
    assert [each["kind"] for each in told["manifests"]] == ["AIJob", "ConfigMap"]
    assert told["left_out"] == ["line 2: --mail-user has no meaning here"]
    (found,) = told["expected"]
    free = sum(each["gpus"] - each["gpus_used"] == 8 for each in box.json("nodes")["nodes"])
    assert (found["job"], found["starts"], found["elements"], found["after"]) == ("vision/sweep", "now", 200, ["afterok:first"])
    assert 0 < found["starting"] == len(found["nodes"]) <= free
    pair = written(tmp_path, "pair", objects.ai_job("a", gpus=1), objects.ai_job("b", suspend=True), objects.ai_job("c", gpus=64))
    lines = [each for each in submitted(box, pair, "--dry-run").stdout.splitlines() if each.startswith("#")]
    assert lines[0].startswith("# vision/a would start now on ")
    assert lines[1].startswith("# vision/b would not start now: AIJob 'b' is suspended")
    assert lines[2].startswith("# vision/c would not start now: ")


def test_what_if_touches_nothing(box, tmp_path):
    box.create(objects.pod_group("ring", 3), *(objects.pod(f"ring-{i}", group="ring", gpus=8) for i in range(3)))
    until(lambda: len(running(box)) == 1)
    more = tmp_path / "more.yaml"
    more.write_text(json.dumps(objects.job("sweep", pods=4)))
    snapshot = tmp_path / "cluster.json"
    result = box.json("whatif", "-f", more, "-n", "vision", "--save", snapshot)
    assert result["starts"] == [f"vision/sweep-{i}" for i in range(4)]
    assert {each["name"] for each in box.json("queue")["jobs"]} == {"ring"}
    done = CliRunner().invoke(app, ["whatif", "--snapshot", str(snapshot), "--drain", "nowhere"])
    assert (done.exit_code, "node 'nowhere' does not exist" in done.output) == (2, True)
    table = CliRunner().invoke(app, ["whatif", "--snapshot", str(snapshot), "--add-nodes", "2", "-f", str(more)])
    assert table.exit_code == 0, table.output
    assert "default/sweep-0" in table.output
    (tmp_path / "folder").mkdir()
    failed = box.fairlead("whatif", "--add-nodes", "1", "--save", str(tmp_path / "folder"))
    assert (failed.exit_code, "cannot be written" in failed.output) == (2, True), failed.output
    (tmp_path / "empty.yaml").write_text("---\n# nothing\n")
    done = CliRunner().invoke(app, ["whatif", "--snapshot", str(snapshot), "-f", str(tmp_path / "empty.yaml")])
    assert (done.exit_code, "empty.yaml has no object in it" in done.output) == (2, True)
    for wrong in (["--quota", "vision"], ["--add-nodes", "many"], ["-f", str(tmp_path / "none")], ["--snapshot", str(more)]):
        assert CliRunner().invoke(app, ["whatif", "--snapshot", str(snapshot), *wrong]).exit_code == 2


def test_a_cluster_without_devices_says_so(box):
    done = box.fairlead("devices")
    assert (done.exit_code, "no ResourceSlice is published" in done.output) == (0, True), done.output


def test_a_server_that_does_not_serve_devices_is_told_apart(box, monkeypatch):
    monkeypatch.setattr(devices, "_GROUP", "/apis/resource.k8s.io/v0")
    done = box.fairlead("devices")
    assert (done.exit_code, "does not serve resource.k8s.io/v1" in done.output) == (4, True), done.output


def running(box):
    return box.json("queue", "--state", "Running")["jobs"]


def waiting(box):
    return any(job["reason"] for job in box.json("queue", "--state", "Pending")["jobs"] if job["name"] == "huge")


def test_queue_can_be_narrowed(box):
    box.create(objects.pod("a"), objects.pod("b", queue="robotics"))
    until(lambda: len(box.json("queue")["jobs"]) == 2)
    assert [job["name"] for job in box.json("queue", "--queue", "robotics")["jobs"]] == ["b"]
    assert box.json("queue", "-n", "language")["jobs"] == []
    assert box.json("queue", "--queue", "language")["jobs"] == []
    assert box.json("share", "--resource", "memory")["queues"]
    done = box.fairlead("share", "--resource", "nope")
    assert (done.exit_code, "no queue has a quota, a limit or pods with 'nope'; there are cpu, " in done.output) == (4, True)
    done = box.fairlead("queue", "--queue", "nope")
    assert (done.exit_code, "queue 'nope' does not exist" in done.output) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("explain", "pod/nobody", "-n", "vision"), 4, "does not exist"),
        (("explain", "podgroup/nobody"), 4, "does not exist"),
        (("explain", "nobody"), 2, "is not pod/NAME"),
        (("explain", "node/n"), 2, "is not pod/NAME"),
        (("feasibility", "pod/nobody", "-n", "vision"), 4, "does not exist"),
    ],
)
def test_explain_says_what_is_wrong(box, arguments, code, told):
    done = box.fairlead(*arguments)
    assert done.exit_code == code
    assert told in done.output


def test_a_cluster_that_does_not_answer_is_exit_code_5(tmp_path, box):
    text = box.kubeconfig.read_text()
    dead = tmp_path / "dead"
    dead.write_text(text.replace(str(box.server.port), "1"))
    assert CliRunner().invoke(app, ["queue", "--kubeconfig", str(dead)]).exit_code == 5
    assert CliRunner().invoke(app, ["nodes", "--kubeconfig", str(tmp_path / "nothing")]).exit_code == 5


def test_a_wrong_token_is_exit_code_3(tmp_path, box):
    other = tmp_path / "other"
    other.write_text(box.kubeconfig.read_text().replace(box.server.token, "wrong"))
    done = CliRunner().invoke(app, ["queue", "--kubeconfig", str(other)])
    assert done.exit_code == 3
    assert "refuses" in done.output


def on_a_terminal(command, marks, size=(30, 80), wait=LIMIT):
    """The output of a command on a terminal, ended by Ctrl-C once all marks have been seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored, and inherited so, where the tests run in the background
        os.environ |= {"TERM": "xterm-256color", "LINES": str(size[0]), "COLUMNS": str(size[1])}
        os.execv(sys.executable, [sys.executable, "-m", "fairlead", *command])
    seen = b""
    deadline = time.monotonic() + wait
    try:
        while not all(mark.encode() in seen for mark in marks):
            assert time.monotonic() < deadline, seen.decode(errors="replace")[-3000:]
            seen += os.read(terminal, 65_536)
    finally:
        os.kill(pid, signal.SIGINT)
        drained = threading.Thread(target=_drain, args=(terminal,), daemon=True)
        drained.start()
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    return seen.decode(errors="replace"), os.waitstatus_to_exitcode(status)


def _drain(terminal):
    while True:
        try:
            if not os.read(terminal, 65_536):
                return
        except OSError:
            return


def test_watch_mode_draws_again_and_ends_with_ctrl_c(box):
    box.create(objects.pod("seen-on-screen"))
    until(lambda: running(box))
    text, code = on_a_terminal(
        ["queue", "--watch", "--interval", "0.2", "--kubeconfig", str(box.kubeconfig)], ["seen-on-screen", "Running"]
    )
    assert code == 0
    assert "vision" in text


def test_completion_offers_what_waits(box, monkeypatch):
    from fairlead.cli.explain import _complete

    box.create(objects.pod("waits", gpus=64), objects.pod_group("ring", 2))
    monkeypatch.setenv("KUBECONFIG", str(box.kubeconfig))
    assert until(lambda: _complete("pod/")) == ["pod/waits"]
    assert _complete("podgroup/") == ["podgroup/ring"]
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert _complete("pod") == []


def test_the_demo_opens_to_kubectl_and_to_our_commands(tmp_path):
    out = tmp_path / "kubeconfig"
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored, and inherited so, where the tests run in the background
        os.environ |= {"TERM": "xterm-256color", "LINES": "40", "COLUMNS": "120"}
        command = [sys.executable, "-m", "fairlead", "demo", "--nodes", "12", "--jobs", "400", "--kubeconfig-out", str(out)]
        os.execv(sys.executable, command)
    threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
    try:
        until(out.exists)
        env = {**os.environ, "KUBECONFIG": str(out)}

        def call(*command):
            return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True).stdout

        manifest = {**objects.pod("mine", gpus=1), "metadata": {"name": "mine", "namespace": "vision"}}
        subprocess.run(["kubectl", "create", "-f", "-"], input=json.dumps(manifest), env=env, text=True, check=True, timeout=60)
        call("kubectl", "wait", "-n", "vision", "--for=condition=PodScheduled", "pod/mine", "--timeout=30s")
        queue = json.loads(call(sys.executable, "-m", "fairlead", "queue", "-o", "json"))
        assert "mine" in {job["name"] for job in queue["jobs"]}
        assert len(json.loads(call(sys.executable, "-m", "fairlead", "nodes", "-o", "json"))["nodes"]) == 12
    finally:
        os.kill(pid, signal.SIGINT)
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not out.exists(), "the kubeconfig leads nowhere once the demo has ended"


def test_kubectls_generators_work_on_the_simulated_cluster(box):
    """They send protobuf, and so does what drains a node."""
    box.kubectl("create", "namespace", "made")
    for command in (
        "configmap c --from-literal=a=b",
        "secret generic s --from-literal=a=b",
        "serviceaccount a",
        "deployment d --image=x --replicas=0",
        "job j --image=x",
        "cronjob cj --image=x --schedule=@daily",
        "quota q --hard=pods=30,requests.nvidia.com/gpu=3",
        "service clusterip s --tcp=80",
        "poddisruptionbudget one --selector=a=b --max-unavailable=50%",
        "role r --verb=get --resource=pods",
        "rolebinding r --role=r --user=u",
        "ingress i --rule=a/b=c:80",
        "priorityclass p --value=5 --preemption-policy=Never",
    ):
        assert "created" in box.kubectl("create", *command.split(), "-n", "made"), command

    def shown(what, path):
        return box.kubectl("get", *what.split(), "-n", "made", "-o", f"jsonpath={{{path}}}")

    assert shown("configmap c", ".data") == '{"a":"b"}'
    assert shown("secret s", ".data.a") + shown("secret s", ".type") == "Yg==Opaque"
    assert (shown("deployment d", ".spec.replicas"), shown("cronjob cj", ".spec.schedule")) == ("0", "@daily")
    assert shown("quota q", ".spec.hard") == '{"pods":"30","requests.nvidia.com/gpu":"3"}'
    assert shown("poddisruptionbudget one", ".spec.maxUnavailable") == "50%"
    assert shown("ingress i", ".spec.rules[0].http.paths[0].backend.service.port.number") == "80"
    assert (shown("priorityclass p", ".value"), shown("priorityclass p", ".preemptionPolicy")) == ("5", "Never")
    assert box.kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "kubernetes-admin" in box.kubectl("auth", "whoami")


def test_a_node_of_the_simulated_cluster_is_drained(box):
    pod = objects.pod("k", annotations={"fairlead.dev/simulated-duration": "6000s"})
    box.create(pod)
    box.kubectl("wait", "-n", "vision", "--for=condition=Ready", "pod/k", "--timeout=30s")
    node = box.kubectl("get", "pod", "k", "-n", "vision", "-o", "jsonpath={.spec.nodeName}")
    assert f"node/{node} drained" in box.kubectl("drain", node, "--force", "--timeout=30s")
    assert box.kubectl("get", "pods", "-n", "vision", "-o", "name") == ""


def test_real_kubectl_works_on_the_simulated_cluster(box):
    pod = objects.pod("k", labels={"app": "k"}, annotations={"fairlead.dev/simulated-duration": "600s"})
    pod["metadata"]["namespace"] = "vision"
    text = json.dumps(pod)
    assert "pod/k created" in box.kubectl("create", "-f", "-", text=text)
    box.kubectl("wait", "-n", "vision", "--for=condition=Ready", "pod/k", "--timeout=30s")
    shown = box.kubectl("get", "pods", "-n", "vision", "-l", "app=k")
    assert shown.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert "1/1" in shown
    assert "Running" in shown
    described = box.kubectl("describe", "pod", "k", "-n", "vision")
    assert "Successfully assigned vision/k to" in described
    assert "started on" in box.kubectl("logs", "k", "-n", "vision")
    assert "serverside-applied" in box.kubectl(
        "apply", "--server-side", "--field-manager", "x", "--force-conflicts", "-f", "-", text=text
    )
    assert "Name:" in box.kubectl("describe", "node", "a100-000")
    assert "nodeName" in box.kubectl("explain", "pod.spec.nodeName")
    assert "Parent queue. Default: the root." in box.kubectl("explain", "queue.spec.parent")
    assert "ObjectMeta" in box.kubectl("explain", "queue.metadata")
    assert 'pod "k" deleted' in box.kubectl("delete", "pod", "k", "-n", "vision")
    assert "cordoned" in box.kubectl("cordon", "a100-000")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "hello", "namespace": "vision"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "template": {
                "metadata": {"annotations": {"fairlead.dev/simulated-duration": "5s"}},
                "spec": {
                    "schedulerName": "fairlead",
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }
    box.kubectl("apply", "-f", "-", text=json.dumps(job))
    box.kubectl("wait", "-n", "vision", "--for=condition=Complete", "job/hello", "--timeout=30s")
    box.kubectl("delete", "job", "hello", "-n", "vision")
    until(lambda: "hello" not in box.kubectl("get", "pods", "-n", "vision", "-o", "name"))
    bad = text.replace('"containers"', '"contaniers"')
    refused = subprocess.run(
        ["kubectl", "--kubeconfig", str(box.kubeconfig), "create", "-f", "-"],
        input=bad,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'unknown field "spec.contaniers"' in refused.stderr


def test_a_shadow_writes_nothing_and_reports_both_worlds(tmp_path):
    """Beside a scheduler that really binds: here kubectl's place is taken by the administrator."""
    with Box(tmp_path, scheduler=False) as box:
        command = [
            sys.executable,
            "-m",
            "fairlead",
            "scheduler",
            "--shadow",
            "--address",
            "",
            "--kubeconfig",
            str(box.kubeconfig),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(json.loads(line) for line in process.stdout), daemon=True)
        reader.start()
        box.create(
            objects.pod("other", gpus=8, scheduler="default-scheduler"),
            objects.pod("big", gpus=64, scheduler="default-scheduler"),
        )
        decided = until(lambda: [each for each in lines if each["kind"] == "decided"])
        assert [each["pod"] for each in decided] == ["vision/other"]
        waits = until(lambda: [each for each in lines if each["kind"] == "waiting"])
        assert waits[0]["pod"] == "vision/big"
        before = box.json("nodes")
        node = next(each["name"] for each in before["nodes"] if each["name"] != decided[0]["node"])
        bind = {"target": {"kind": "Node", "name": node}}
        asyncio.run_coroutine_threadsafe(box._call(lambda: box.world.api.bind("vision", "other", bind)), box.loop).result(LIMIT)
        (happened,) = until(lambda: [each for each in lines if each["kind"] == "happened"])
        assert (happened["node"], happened["shadow_node"]) == (node, decided[0]["node"])
        assert happened["lead_seconds"] > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        reader.join(LIMIT)
        process.stdout.close()
        process.stderr.close()
        summary = until(lambda: [each for each in lines if each["kind"] == "summary"])[0]
        assert (summary["decided"], summary["happened"], summary["same_node"]) == (1, 1, 0)
        pod = box.world.api.store.get("pods", ("vision", "big")).object
        assert "conditions" not in pod["status"], "a shadow writes no conditions"
        assert box.world.api.store.count("events") == 0
        assert box.world.api.store.count("coordination.k8s.io/leases") == 0


async def test_a_shadow_would_evict_and_says_whom(tmp_path):
    """The low one runs, placed by another scheduler; the high one is not placed: the shadow would free capacity."""
    from fairlead.cluster.simulated.transport import SimulatedTransport

    world = World(nodes=10, seed=1)
    world.create(objects.pod("filler", gpus=8), "vision")
    for index, name in enumerate(world.manifests):
        gpus = int(world.allocatable(name)["nvidia.com/gpu"])
        low = objects.pod(f"low-{index}", gpus=gpus, scheduler="other", priorityClassName="batch")
        world.create(low, "vision")
        world.api.bind("vision", f"low-{index}", {"target": {"kind": "Node", "name": name}})
    world.create(objects.pod("high", gpus=8, scheduler="other", priorityClassName="serving"), "vision")
    lines = []
    from fairlead.cluster.kubernetes.config import Config

    async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), read_only=True) as client:
        options = Options(address="", shadow=True, schedulers={"*": "ai"})
        scheduler = Scheduler(client, options, simulation=Simulation(), report=lines.append)
        task = asyncio.ensure_future(scheduler.run())
        while not any(type(each).__name__ == "WouldEvict" for each in lines):
            await asyncio.sleep(0.01)
        scheduler.stop()
        await task
    assert client.writes == 0
    victim = next(each.pod for each in lines if type(each).__name__ == "WouldEvict")
    assert victim.startswith("vision/low-")


def test_the_kubeconfig_is_for_its_owner_only(box):
    assert box.kubeconfig.stat().st_mode & 0o077 == 0
    assert load(str(box.kubeconfig)).server.startswith("https://127.0.0.1:")


def test_top_shows_who_holds_gpus_and_how_much_of_them_is_used(box):
    box.create(
        objects.pod_group("ring", 3),
        *(objects.pod(f"ring-{i}", group="ring", gpus=8) for i in range(3)),
        objects.pod("small", gpus=1),
        objects.pod("huge", gpus=64),
    )
    until(lambda: len(running(box)) == 2 and waiting(box))
    found = box.json("top")
    assert [(job["name"], job["gpus"], job["use"], job["user"]) for job in found["jobs"]] == [
        ("ring", 24.0, None, "vision"),
        ("small", 1.0, None, "vision"),
    ]
    assert (found["gpus_used"], found["gpus_wanted"], found["running"], found["pending"]) == (25.0, 64.0, 2, 1)
    assert [job["name"] for job in box.json("top", "--limit", "1")["jobs"]] == ["ring"]
    assert box.json("top", "-n", "elsewhere")["jobs"] == []
    done = box.fairlead("top", "--once")
    assert done.exit_code == 0
    assert f"25 of {found['gpus']} allocated" in done.stdout
    measured = {("vision", "ring-0"): 90.0, ("vision", "ring-1"): 30.0, ("vision", "small"): 5.0}
    snapshot = run(str(box.kubeconfig), read)
    used = summary(snapshot, measured, sort=Sort.USE)
    assert [(job.name, job.use) for job in used.jobs] == [("small", 5.0), ("ring", 60.0)]
    assert used.use == pytest.approx(41.7)
    refused = box.fairlead("top", "--once", "--prometheus", "http://127.0.0.1:9")
    assert (refused.exit_code, "127.0.0.1:9" in refused.output) == (1, True)


@pytest.mark.parametrize("command", ["scheduler", "operator", "agent"])
def test_the_processes_of_a_cluster_end_in_good_order_on_sighup(box, command, tmp_path):
    serves = [] if command == "agent" else ["--address", ""]
    if command == "scheduler":
        serves.append("--no-leader-elect")  # the box has a scheduler, which leads
    # A SIGHUP that the tests ignore, as under `nohup`, would be ignored by the process, too.
    hears = ["env", "--default-signal=HUP"]
    arguments = [*hears, sys.executable, "-m", "fairlead", command, "--kubeconfig", str(box.kubeconfig), *serves]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if any(f'"{event}"' in line for event in ("leading", "registered", "synced")):
                break
        process.send_signal(signal.SIGHUP)
        late = threading.Timer(60.0, process.kill)
        late.start()
        told = process.stderr.read()
        late.cancel()
        assert process.wait(20) == 0, told
    assert "Traceback" not in told
