"""A whole Fairlead with real processes: jobs run, are killed, suspended, grow and shrink, and end with the same result."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from fairlead.agent.node import Options
from fairlead.api import names
from fairlead.observability.history import Wanted
from fairlead.observability.store import History
from fairlead.simulation.local import Local

TRAIN = Path(__file__).parents[2] / "examples/training/train.py"
LIMIT = 60.0
PACED = """
import os, runpy, time
nap, pause = time.sleep, float(os.environ["PAUSE"])
time.sleep = lambda seconds: nap(0.001 if seconds == pause and os.path.exists({hurry!r}) else seconds)
runpy.run_path({train!r}, run_name="__main__")
"""
GPU = {"nvidia.com/gpu": "1"}


@pytest.fixture
async def local(tmp_path):
    options = Options(gpus=4, cpus=64, memory=64 << 30, folder=tmp_path / "agent", name="here")
    async with Local(options, history=f"sqlite:///{tmp_path}/history.db") as running:
        running.folder = tmp_path
        yield Story(running)


class Story:
    """What a user sees."""

    def __init__(self, running):
        self.running = running
        self.api = running.api
        self.folder = running.folder

    def create(self, manifest):
        resource = self.api.catalog.of_kind(manifest["apiVersion"], manifest["kind"])
        self.api.create(resource, "default", manifest)

    def job(self, name, command, workers=1, role=None, env=(), **spec):
        container = {"name": "main", "image": "none", "command": command, "resources": {"requests": GPU, "limits": GPU}}
        container["env"] = [{"name": key, "value": str(value)} for key, value in dict(env).items()]
        template = {"spec": {"containers": [container]}}
        roles = [{"name": "worker", "replicas": workers, **(role or {}), "template": template}]
        metadata = {"name": name, "namespace": "default"}
        self.create(
            {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "metadata": metadata, "spec": {"roles": roles, **spec}}
        )

    def training(self, name, workers=2, role=None, steps=40, pause=0.01, **spec):
        path = self.folder / f"checkpoints-{name}"
        env = {"STEPS": steps, "PAUSE": pause}
        checkpoint = {"path": str(path), "gracePeriod": "10s"}
        paced = PACED.format(hurry=str(self.hurry(name)), train=str(TRAIN))
        self.job(name, [sys.executable, "-c", paced], workers, role, env, checkpoint=checkpoint, **spec)

    def hurry(self, name):
        """Once this file is there a training makes no pauses any more: until then it does not end, however slow the machine."""
        return self.folder / f"hurry-{name}"

    def status(self, name):
        record = self.api.store.get("fairlead.dev/aijobs", ("default", name))
        return record.object.get("status") or {} if record is not None else {}

    def pods(self, prefix):
        return {key[1]: record.object for key, record in self.api.store.records("pods") if key[1].startswith(prefix)}

    def running_pods(self, prefix):
        return sorted(name for name, pod in self.pods(prefix).items() if (pod.get("status") or {}).get("phase") == "Running")

    def phase(self, name):
        return (self.pods(name).get(name, {}).get("status") or {}).get("phase")

    def patch(self, name, patch):
        resource = self.api.served("fairlead.dev/v1alpha1", "aijobs")
        self.api.patch(resource, "default", name, "application/merge-patch+json", patch)

    def log(self, name):
        pod = self.pods(name)[name]
        return self.api.logs(pod, pod["spec"]["containers"][0]["name"])

    def processes(self, word):
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                try:
                    told, where = (each / "environ").read_text(errors="replace"), (each / "cwd").readlink()
                except OSError:
                    continue
                if where.is_relative_to(self.folder) and word in told.split("\0"):
                    found.append(int(each.name))
        return found

    async def until(self, what):
        try:
            async with asyncio.timeout(LIMIT):
                while not (found := what()):
                    await asyncio.sleep(0.02)
                return found
        except TimeoutError:
            raise AssertionError(f"not within {LIMIT:g} s: {self.seen()}") from None

    def seen(self):
        """Where all jobs and pods stand."""
        jobs = {key[1]: record.object.get("status") for key, record in self.api.store.records("fairlead.dev/aijobs")}
        pods = {name: (pod.get("status"), self.log(name)[-500:]) for name, pod in self.pods("").items()}
        return f"{jobs} {pods}"

    async def reaches(self, name, phase):
        return await self.until(lambda: self.status(name) if self.status(name).get("phase") == phase else None)

    async def result(self, name, attempt=0):
        await self.reaches(name, "Succeeded")
        return re.findall(r"result (\w+)", self.log(f"{name}-worker-0-{attempt}"))[0]


async def test_a_job_is_processes_with_logs_exit_codes_and_devices_of_their_own(local):
    hurry = local.hurry("hello")  # the second fails once the first has ended: a job that failed ends what still runs of it
    script = "echo $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES in $FAIRLEAD_JOB; test $RANK = 0 || "
    wait = f"{{ until [ -e '{hurry}' ]; do sleep 0.05; done; false; }}"
    local.job("hello", ["sh", "-c", script + wait], 2, restart={"limit": 0})
    await local.until(lambda: local.phase("hello-worker-0-0") == "Succeeded")
    hurry.touch()
    told = await local.reaches("hello", "Failed")
    assert "hello-worker-1-0 failed with exit code 1" in told["message"]
    first, second = local.log("hello-worker-0-0"), local.log("hello-worker-1-0")
    assert first.startswith("0 of 2 on ")
    assert second.startswith("1 of 2 on ")
    assert {first.split()[4], second.split()[4]} == {"0", "1"}
    local.job("missing", ["/no/such/program"], restart={"limit": 0})
    await local.reaches("missing", "Failed")
    assert "exit code 127" in local.status("missing")["message"]
    assert "No such file" in local.log("missing-worker-0-0")


async def test_a_training_survives_its_suspension_and_a_killed_worker_and_ends_with_the_same_result(local):
    local.training("calm", steps=100, pause=0.001)
    expected = await local.result("calm")
    local.training("paused", steps=100, pause=0.5)
    await local.reaches("paused", "Running")
    await local.until(lambda: "begins" in local.log("paused-worker-0-0"))
    local.patch("paused", {"spec": {"suspend": True}})
    await local.reaches("paused", "Suspended")
    await local.until(lambda: not local.pods("paused"))
    assert not local.processes("FAIRLEAD_JOB=paused"), "its GPUs are free"
    assert await local.until(lambda: local.status("paused").get("lastCheckpoint"))
    local.patch("paused", {"spec": {"suspend": False}})
    await local.reaches("paused", "Running")
    await local.until(lambda: "begins at step" in local.log("paused-worker-0-1"))
    assert "begins at step 0" not in local.log("paused-worker-0-1"), "it goes on where it was"
    (victim,) = (pid for pid in local.processes("FAIRLEAD_JOB=paused") if pid in local.processes("FAIRLEAD_INDEX=1"))
    os.kill(victim, signal.SIGKILL)
    local.hurry("paused").touch()
    assert await local.result("paused", 2) == expected
    told = local.status("paused")
    assert (told["restarts"], told["interruptions"], told["attempt"]) == (1, 1, 2)


async def test_an_elastic_training_grows_and_shrinks_and_ends_with_the_same_result(local):
    local.training("calm", steps=200, pause=0.001)
    expected = await local.result("calm")
    local.job("other", ["sleep", "1000"], 2)
    await local.reaches("other", "Running")
    local.training("grows", role={"minReplicas": 2, "maxReplicas": 4}, steps=200, pause=0.3)
    await local.reaches("grows", "Running")
    assert len(local.running_pods("grows")) == 2
    local.patch("other", {"spec": {"suspend": True}})
    await local.until(lambda: local.status("grows").get("size") == 4)
    local.patch("other", {"spec": {"suspend": False}})
    await local.until(lambda: local.status("grows").get("size") == 2)
    await local.reaches("other", "Running")
    local.hurry("grows").touch()
    assert await local.result("grows") == expected
    told = local.status("grows")
    assert {"attempt", "restarts", "interruptions"}.isdisjoint(told), "it never began anew"
    assert told["resizes"] == 2


async def test_what_cannot_be_run_says_so_and_what_is_left_behind_goes(local):
    container = {"name": "main", "image": "train:1"}
    spec = {"schedulerName": "fairlead", "restartPolicy": "Never", "containers": [container]}
    local.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "image", "namespace": "default"}, "spec": spec})
    pod = await local.until(lambda: next((p for p in local.pods("image").values() if p["status"].get("phase") == "Failed"), None))
    assert pod["status"]["reason"] == "CreateContainerError"
    assert "this node runs commands, not images" in pod["status"]["message"]
    spec = {**spec, "containers": [{"name": "runs", "image": "i", "command": ["sleep", "1000"]}, container]}
    local.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "half", "namespace": "default"}, "spec": spec})
    await local.until(lambda: any(p["status"].get("phase") == "Failed" for p in local.pods("half").values()))
    assert local.log("half") == "", "nothing of it was started"
    spec = {
        **spec,
        "restartPolicy": "Always",
        "containers": [{"name": "again", "image": "i", "command": ["sh", "-c", "echo once"]}],
    }
    local.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again", "namespace": "default"}, "spec": spec})
    await local.until(lambda: "'restartCount': 2" in str(local.pods("again")))
    local.api.delete(local.api.served("v1", "pods"), "default", "again")
    await local.until(lambda: not local.pods("again"))
    local.job("forks", ["sh", "-c", "sleep 1000 & echo left"])
    await local.reaches("forks", "Succeeded")
    await local.until(lambda: not local.processes("FAIRLEAD_JOB=forks"))


def shell(name, script, **more):
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **more}


def pod(name, *containers, **spec):
    body = {"schedulerName": "fairlead", "restartPolicy": "Never", "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": body}


def exit_codes(status):
    found = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {each["name"]: each["state"].get("terminated", {}).get("exitCode") for each in found}


async def ended(local, name):
    return await local.until(
        lambda: status if (status := local.pods(name)[name]["status"])["phase"] in ("Succeeded", "Failed") else None
    )


async def test_a_sidecar_runs_beside_the_others_and_ends_after_them(local):
    there, last = local.folder / "sidecar", local.folder / "last"
    serves = shell(
        "proxy", f"trap 'echo ended > {last}; exit 9' TERM; echo > {there}; while :; do sleep 0.1; done", restartPolicy="Always"
    )
    waits = f"while [ ! -e {there} ]; do sleep 0.05; done"
    local.create(pod("work", shell("main", f"{waits}; [ ! -e {last} ]"), initContainers=[serves, shell("prepare", waits)]))
    status = await ended(local, "work")
    assert (status["phase"], exit_codes(status)) == ("Succeeded", {"proxy": 9, "prepare": 0, "main": 0})
    assert last.read_text() == "ended\n"
    again = shell("broken", "exit 1", restartPolicy="Always")
    local.create(pod("beside", shell("main", "exit 3"), initContainers=[again]))
    status = await ended(local, "beside")
    assert (status["phase"], exit_codes(status)["main"]) == ("Failed", 3), "also where the sidecar fails again and again"


async def test_an_init_container_that_fails_ends_a_pod_that_never_restarts(local):
    local.create(pod("broken", shell("main", "true"), initContainers=[shell("prepare", "exit 5")]))
    status = await ended(local, "broken")
    assert (status["phase"], exit_codes(status)) == ("Failed", {"prepare": 5})
    marker = local.folder / "marker"
    twice = shell("prepare", f"[ -e {marker} ] || {{ touch {marker}; exit 1; }}")
    local.create(pod("retried", shell("main", "true"), initContainers=[twice], restartPolicy="OnFailure"))
    assert (await ended(local, "retried"))["phase"] == "Succeeded"


async def test_a_pod_ends_at_its_deadline_and_within_the_grace_of_its_deletion(local):
    local.create(pod("late", shell("main", "sleep 1000"), activeDeadlineSeconds=1))
    status = await ended(local, "late")
    assert (status["phase"], status["reason"], exit_codes(status)) == ("Failed", "DeadlineExceeded", {"main": 143})
    listens_not = local.folder / "deaf"
    deaf = shell("main", f"trap '' TERM; echo > {listens_not}; while :; do sleep 0.1; done")
    local.create(pod("deaf", deaf, terminationGracePeriodSeconds=1000))
    await local.until(listens_not.exists)
    pods = local.api.served("v1", "pods")
    local.api.delete(pods, "default", "deaf")
    await local.until(lambda: "deletionTimestamp" in local.pods("deaf")["deaf"]["metadata"])
    local.api.delete(pods, "default", "deaf", {"gracePeriodSeconds": 1})
    await local.until(lambda: not local.pods("deaf"))


async def test_everything_ends_with_it(tmp_path):
    async with Local(Options(gpus=1, folder=tmp_path / "agent", name="here")) as running:
        running.folder = tmp_path
        story = Story(running)
        story.job("sleeps", ["sleep", "1000"])
        await story.reaches("sleeps", "Running")
        assert story.processes("FAIRLEAD_JOB=sleeps")
    await story.until(lambda: not story.processes("FAIRLEAD_JOB=sleeps"))


async def fairlead(kubeconfig, *arguments):
    """A command as its user gives it: exit code, and what it printed."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", *arguments, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_a_script_is_submitted_and_its_members_logs_are_read(local):
    kubeconfig = local.running.server.write_kubeconfig(local.folder / "kubeconfig")
    script = local.folder / "hello.sh"
    script.write_text("#!/bin/sh\n#SBATCH --nodes=2 --gpus-per-node=1\necho member $RANK\nsleep 0.3\necho end of $RANK\n")
    code, told = await fairlead(kubeconfig, "submit", "--image", "none", "--name", "hello", str(script))
    assert (code, told) == (0, "submitted default/hello\n")
    await local.until(lambda: "hello-worker-0-0" in local.pods("hello"))
    assert await fairlead(kubeconfig, "logs", "hello", "--follow") == (0, "member 0\nend of 0\n")
    code, told = await fairlead(kubeconfig, "logs", "hello", "--all", "--tail", "1")
    assert told == "hello-worker-0-0 | end of 0\nhello-worker-1-0 | end of 1\n"
    assert (await fairlead(kubeconfig, "logs", "hello", "--index", "1"))[1] == "member 1\nend of 1\n"
    assert (await fairlead(kubeconfig, "logs", "hello-worker-1-0", "--tail", "0"))[1] == ""
    for arguments, complaint in ((["hello", "-i", "7"], "no such member"), (["nobody"], "no such pod")):
        code, told = await fairlead(kubeconfig, "logs", *arguments)
        assert code == 4
        assert complaint in told


async def test_the_exit_code_of_submit_wait_is_the_highest_of_the_job(local):
    kubeconfig = local.running.server.write_kubeconfig(local.folder / "kubeconfig")
    script = local.folder / "codes.sh"
    script.write_text("#!/bin/sh\n#SBATCH --array=3,7,0 --no-requeue\nexit $SLURM_ARRAY_TASK_ID\n")
    given = ("--image", "none", "--wait", str(script))
    assert await fairlead(kubeconfig, "submit", *given) == (
        7,
        "default/codes is submitted\nsubmitted default/codes: Failed\n",
    )
    code, told = await fairlead(kubeconfig, "submit", *given, "--name", "again", "-o", "json")
    found = json.loads(told[told.index("{") :])
    assert (code, found["phases"], found["exit_codes"]) == (7, {"default/again": "Failed"}, {"default/again": 7})


async def test_logs_of_what_has_not_started_say_so(local):
    kubeconfig = local.running.server.write_kubeconfig(local.folder / "kubeconfig")
    local.job("huge", ["true"], 5)
    local.job("after", ["true"], 1, dependsOn=[{"job": "huge", "when": "afterok"}])
    await local.until(lambda: local.pods("huge"))
    code, told = await fairlead(kubeconfig, "logs", "huge")
    waits = "has not started: `fairlead explain pod/huge-worker-0-0 -n default` shows why"
    assert (code, told) == (0, f"huge-worker-0-0 {waits}\n")
    code, told = await fairlead(kubeconfig, "logs", "after")
    assert (code, told.startswith("fairlead: after has no pods: `fairlead explain aijob/after -n default`")) == (4, True)


async def test_when_a_waiting_job_is_expected_to_start(local):
    kubeconfig = local.running.server.write_kubeconfig(local.folder / "kubeconfig")
    local.job("long", ["sleep", "1000"], 4, timeLimit="1h")
    await local.reaches("long", "Running")
    local.job("next", ["true"], 2)
    await local.until(lambda: "PodScheduled" in str(local.pods("next")))
    group = ("default", "next")
    await local.until(
        lambda: (local.api.store.get("fairlead.dev/podgroups", group).object.get("status") or {}).get("expectedStart")
    )
    code, told = await fairlead(kubeconfig, "queue", "--start")
    assert code == 0
    (line,) = (line for line in told.splitlines() if "default/" in line)
    assert line.startswith("default/next")
    assert re.search(r"~(59:\d\d|1:00:00) \(", line), "when the other has reached its limit"
    code, told = await fairlead(kubeconfig, "queue", "--start", "--output", "json")
    (found,) = (job for job in json.loads(told)["jobs"] if job["name"] == "next")
    assert time.time() < found["earliest_start"] < found["expected_start"] < found["latest_start"]
    code, told = await fairlead(kubeconfig, "explain", "podgroup/next", "-n", "default", "--output", "json")
    explained = json.loads(told)
    assert explained["earliest_start"] < explained["expected_start"] < explained["latest_start"]
    code, told = await fairlead(kubeconfig, "explain", "podgroup/next", "-n", "default")
    assert "in 8 of 10 cases between" in " ".join(told.split())


def recorded(url):
    """name -> (state, exit code, runs) of all jobs in a history."""
    history = History(url, create=False)
    try:
        found = history.jobs(Wanted(), time.time())
    finally:
        history.close()
    return {each.job.name: (str(each.job.state), each.job.exit_code, each.runs) for each in found}


async def test_what_jobs_used_outlives_them(tmp_path):
    history = f"sqlite:///{tmp_path}/history.db"
    wanted = {"ends": ("Succeeded", 0, 2), "fails": ("Failed", 3, 2), "sleeps": ("Running", None, 1)}
    options = Options(gpus=2, cpus=8, folder=tmp_path / "agent", name="here")
    async with Local(options, history=history) as running:
        running.folder = tmp_path
        story = Story(running)
        story.job("ends", ["true"], 2)
        await story.reaches("ends", "Succeeded")
        story.job("fails", ["sh", "-c", "exit 3"], restart={"limit": 1, "backoff": "1ms"})
        await story.reaches("fails", "Failed")
        story.job("sleeps", ["sleep", "1000"])
        await story.reaches("sleeps", "Running")
        await story.until(lambda: recorded(history) == wanted)
    environment = {**os.environ, "FAIRLEAD_DATABASE": history}
    command = [sys.executable, "-m", "fairlead", "history", "-o", "json"]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    jobs = {each["name"]: each for each in json.loads(out)["jobs"]}
    assert {name: (each["state"], each["exit_code"], each["runs"]) for name, each in jobs.items()} == wanted
    async with Local(options, history=history) as running:  # a new cluster, which knows nothing of the old one's job
        running.folder = tmp_path
        again = Story(running)
        again.job("again", ["true"])
        wanted |= {"sleeps": ("Lost", None, 1), "again": ("Succeeded", 0, 1)}
        await again.until(lambda: recorded(history) == wanted)
    _, told = await fairlead(tmp_path / "none", "history", "sleeps", "--database", history)
    assert "Lost" in told
    _, told = await fairlead(tmp_path / "none", "history", "--state", "succeeded", "--state", "failed", "--database", history)
    assert {line.split()[0] for line in told.splitlines()[1:]} == {"default/again", "default/fails", "default/ends"}
    _, told = await fairlead(tmp_path / "none", "history", "fails", "--runs", "--database", history)
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["fails-worker-0-0", "fails-worker-0-1"]


async def test_a_job_ends_at_its_time_limit_and_does_not_begin_again(local):
    local.job("long", ["sleep", "1000"], 2, timeLimit="2s")
    local.job("many", ["sleep", "1000"], array={"indexes": "0-1"}, timeLimit="2s")
    for name in ("long", "many"):
        told = await local.reaches(name, "Failed")
        assert "attempt" not in told
    assert local.status("long")["message"] == "it reached its time limit of 2s"
    assert local.status("many")["failedIndexes"] == "0-1"
    await local.until(lambda: not local.processes("FAIRLEAD_JOB=long"))


async def test_an_idle_session_is_shut_down_by_the_rules_of_its_class(local):
    spec = {"defaultFor": ["Interactive"], "idleDuration": "1s"}
    local.create({"apiVersion": "fairlead.dev/v1alpha1", "kind": "ServiceClass", "metadata": {"name": "notebooks"}, "spec": spec})
    await asyncio.sleep(0.1)
    local.job("session", ["sleep", "1000"], workloadType="Interactive")
    told = await local.reaches("session", "Succeeded")
    assert told["message"] == "no activity for 1s: shut down"
    group = local.api.store.get("fairlead.dev/podgroups", ("default", "session")).object
    assert group["spec"]["serviceClass"] == "notebooks"


async def test_parts_of_a_gpu_are_given_out_without_labelling_a_node(local):
    """Two halves are on one device, and what does not fit beside them gets another."""

    def part(name, fraction):
        metadata = {"name": name, "annotations": {"fairlead.dev/gpu-fraction": fraction}}
        container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; sleep 1000"]}
        spec = {"schedulerName": "fairlead", "restartPolicy": "Never", "containers": [container]}
        local.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def device(name):
        return (await local.until(lambda: re.findall(r"on (\d+)", local.log(name))))[0]

    node = local.api.store.get("nodes", ("", "here")).object
    assert node["metadata"]["labels"]["fairlead.dev/gpu-sharing"] == "fairlead-agent"
    part("a", "0.5")
    part("b", "0.5")
    first, second = await device("a"), await device("b")
    assert first == second
    part("c", "0.7")
    assert await device("c") != first


async def test_two_jobs_of_a_class_that_shares_run_on_one_gpu_and_no_third(local):
    """Each requests a whole GPU. They share one once no other is free, and the object of the later one names the other."""
    local.create(
        {"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": "small"}, "spec": {"sharing": "Pairs"}}
    )
    command = ["sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; sleep 1000"]

    async def device(job):
        (pod,) = await local.until(lambda: local.running_pods(job))
        return (await local.until(lambda: re.findall(r"on (\d+)", local.log(pod))))[0]

    local.job("whole", command, workers=3)
    await local.until(lambda: len(local.running_pods("whole")) == 3)
    local.job("first", command, serviceClass="small")
    first = await device("first")
    local.job("second", command, serviceClass="small")
    assert await device("second") == first
    pods = {name: pod for job in ("first", "second") for name, pod in local.pods(job).items()}
    told = {name: pod["metadata"]["annotations"][names.GPU_PARTNER_ANNOTATION] for name, pod in pods.items()}
    assert told == {"first-worker-0-0": names.ALONE, "second-worker-0-0": pods["first-worker-0-0"]["metadata"]["uid"]}
    local.job("third", command, serviceClass="small")
    why = "1 node(s) had no device with enough free capacity"
    await local.until(lambda: any(why in json.dumps(pod.get("status")) for pod in local.pods("third").values()))
    assert not local.running_pods("third")
    queue = local.api.store.get("fairlead.dev/queues", ("", "default"))
    assert queue is None or queue.object["status"]["used"]["nvidia.com/gpu"] == "4"


async def test_everything_works_under_a_name_that_the_configuration_gives(tmp_path):
    """Its agent gives out fractions whatever agents the configuration lists."""
    try:
        names.answer_to({"gpus": names.AI_PROFILE})
        names.share_by(["slicer"])
        options = Options(gpus=1, cpus=8, memory=8 << 30, folder=tmp_path / "agent", name="here")
        async with Local(options, history=f"sqlite:///{tmp_path}/history.db") as running:
            running.folder = tmp_path
            story = Story(running)
            story.job("whole", ["true"])
            await story.reaches("whole", "Succeeded")
            container = {"name": "main", "image": "none", "command": ["true"]}
            template = {"metadata": {"annotations": {"fairlead.dev/gpu-fraction": "0.5"}}, "spec": {"containers": [container]}}
            spec = {"roles": [{"name": "worker", "replicas": 2, "template": template}]}
            story.create({"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": {"name": "halves"}, "spec": spec})
            await story.reaches("halves", "Succeeded")
    finally:
        names.answer_to(names.DEFAULT_SCHEDULERS)
        names.share_by(names.DEFAULT_SHARING_AGENTS)
