"""One list of scheduler names and of sharing agents, known to every process."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.policies import policies
from fairlead.cli import scheduler as scheduler_command
from fairlead.cli.main import app
from fairlead.cli.queue import jobs
from fairlead.cli.snapshot import Snapshot
from fairlead.cluster import convert, views
from fairlead.cluster.translate import first_events
from fairlead.operator.jobs.members import members, pod
from fairlead.operator.workloads import WORKLOADS
from fairlead.scheduler import configuration
from fairlead.scheduler.options import Options

SHARED = ("crds", "demo", "explain", "feasibility", "local", "nodes", "operator", "queue", "quota", "scheduler", "share")
FILE = """
apiVersion: config.fairlead.dev/v1alpha1
kind: SchedulerConfiguration
profiles:
- {schedulerName: plain, profile: kubernetes}
- {schedulerName: gpus, profile: ai}
gpuSharing: {agents: [slicer]}
"""


def parts(times=1, **given):
    """The file with resources that count as parts of a GPU."""
    listed = ", ".join([f'{{resource: {given["resource"]}, part: "{given["part"]}"}}'] * times)
    return FILE.replace("gpuSharing: {agents: [slicer]}", f"gpuSharing: {{parts: [{listed}]}}")


@pytest.fixture(autouse=True)
def restored():
    yield
    names.answer_to(names.DEFAULT_SCHEDULERS)
    names.share_by(names.DEFAULT_SHARING_AGENTS)
    names.count_parts(())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "fairlead.yaml"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def adopted():
    names.answer_to({"plain": "kubernetes", "gpus": "ai"})


def pod_view(scheduler, **more):
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "i"}], **more}
    metadata = {"name": scheduler, "namespace": "x", "uid": scheduler, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod)


@pytest.mark.parametrize("command", [*SHARED, "submit", "top", "whatif"])
def test_every_process_takes_the_file_by_the_same_flag_and_variable(command):
    option = next(each for each in get_command(app).commands[command].params if each.name == "config")
    assert (option.opts, option.envvar) == (["--config"], "FAIRLEAD_CONFIG")


@pytest.mark.parametrize("given", ["flag", "variable"])
def test_policies_know_the_names_of_the_file(file, given):
    flags, env = (["--config", file], {}) if given == "flag" else ([], {"FAIRLEAD_CONFIG": file})
    result = CliRunner().invoke(app, ["crds", "--policies", "--require-scheduler", *flags], env=env)
    assert result.exit_code == 0
    text = result.stdout
    assert "'gpus'" in text
    assert "'fairlead-kubernetes'" not in text
    assert list(yaml.safe_load_all(text)) == policies(require_scheduler=True, schedulers=["plain", "gpus"])


def test_names_given_by_a_flag_take_precedence(file):
    result = CliRunner().invoke(app, ["crds", "--policies", "--config", file, "--scheduler-name", "other"])
    assert "'other'" in result.stdout
    assert "'gpus'" not in result.stdout


def test_a_command_without_the_file_knows_the_defaults_again(file):
    assert CliRunner().invoke(app, ["crds", "--config", file]).exit_code == 0
    assert dict(names.SCHEDULERS) == {"plain": "kubernetes", "gpus": "ai"}
    assert set(names.SHARING_AGENTS) == {"slicer"}
    assert CliRunner().invoke(app, ["crds"]).exit_code == 0
    assert names.SCHEDULERS == names.DEFAULT_SCHEDULERS
    assert names.SHARING_AGENTS == names.DEFAULT_SHARING_AGENTS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot read"),
        ("kind: x", "Invalid enum value 'x' - at `$.kind`"),
        (FILE.replace("slicer", "enabled"), "'enabled' is not an agent"),
        (FILE.replace("slicer", "a b"), "gpuSharing"),
        (parts(resource="nvidia.com/mig-1g.24gb", part="1/0"), "part '1/0' of nvidia.com/mig-1g.24gb divides by zero"),
        (
            parts(resource="nvidia.com/mig-1g.24gb", part="8/7"),
            "part '8/7' of nvidia.com/mig-1g.24gb is not above 0 and at most 1",
        ),
        (parts(resource="nvidia.com/mig-1g.24gb", part="0"), "part '0' of nvidia.com/mig-1g.24gb is not above 0"),
        (parts(resource="nvidia.com/gpu", part="0.5"), "nvidia.com/gpu without a product is a whole GPU"),
        (parts(resource="amd.com/gpu", part="0.5"), "gpuSharing.parts[0].resource"),
        (parts(resource="nvidia.com/x", part="half"), "gpuSharing.parts[0].part"),
        (parts(resource="nvidia.com/x", part="0.5", times=2), "nvidia.com/x of product '' is listed twice"),
    ],
)
@pytest.mark.parametrize("command", ["crds", "queue", "operator", "scheduler"])
def test_a_file_that_cannot_be_used_is_refused_by_name(tmp_path, command, text, told):
    path = tmp_path / "broken.yaml"
    if text is not None:
        path.write_text(text)
    result = CliRunner().invoke(app, [command, "--config", str(path)])
    assert result.exit_code == 2
    assert told in result.output


def test_the_operator_makes_gangs_of_workloads_of_these_names(adopted):
    def jobset(name):
        template = {"spec": {"schedulerName": name, "containers": []}}
        job = {"name": "w", "template": {"spec": {"parallelism": 2, "template": template}}}
        return {"metadata": {"name": "js"}, "spec": {"replicatedJobs": [job]}}

    workload = WORKLOADS["jobset.x-k8s.io/v1alpha2", "JobSet"]
    found = {name: workload.ours(jobset(name)) for name in ("plain", "gpus", "fairlead", "fairlead-kubernetes")}
    assert found == {"plain": True, "gpus": True, "fairlead": False, "fairlead-kubernetes": False}
    for version in ("v1beta1", "v1alpha2"):
        assert WORKLOADS[f"scheduling.k8s.io/{version}", "PodGroup"].ours({"metadata": {"name": "g"}})


def test_pods_of_other_names_are_others(adopted):
    found = {name: convert.pod(pod_view(name), "default") for name in ("plain", "gpus", "fairlead")}
    assert {name: (pod.ours, pod.profile) for name, pod in found.items() if pod.ours} == {
        "plain": (True, "kubernetes"),
        "gpus": (True, "ai"),
    }


def test_what_is_shown_is_of_these_names(adopted):
    snapshot = Snapshot(0.0)
    snapshot.pods = [pod_view(name) for name in ("plain", "gpus", "fairlead")]
    assert sorted(job.name for job in jobs(snapshot)) == ["gpus", "plain"]
    ours = [each.object.name for each in first_events(snapshot.objects()) if getattr(each, "object", None) and each.object.ours]
    assert sorted(ours) == ["gpus", "plain"]


def test_nodes_offer_fractions_by_agents_of_the_list():
    def shares(label):
        labels = {} if label is None else {"fairlead.dev/gpu-sharing": label}
        return convert.node(msgspec.convert({"metadata": {"name": "n", "labels": labels}}, views.Node)).shares_gpus

    assert [shares(each) for each in (None, "", "enabled", "slicer", "fairlead-agent")] == [False] * 4 + [True]
    names.share_by(["slicer"])
    assert [shares(each) for each in (None, "", "enabled", "slicer", "fairlead-agent")] == [False] * 3 + [True, False]


def test_members_of_aijobs_get_the_first_name_of_profile_ai(adopted):
    assert names.own_scheduler() == "gpus"
    template = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    made = {"metadata": {"name": "j", "namespace": "x", "uid": "u"}, "spec": {"roles": [{"name": "w", "template": template}]}}
    job = msgspec.convert(made, AIJob)
    assert pod(job, job.spec.roles[0], members(job)[0], 0)["spec"]["schedulerName"] == "gpus"
    names.answer_to({"plain": "kubernetes"})
    assert names.own_scheduler() == "plain"


def test_a_shadow_judges_pods_of_ours_by_their_profile(adopted):
    assert scheduler_command._watched("*", names.SCHEDULERS) == {"plain": "kubernetes", "gpus": "ai", "*": "ai"}
    assert scheduler_command._watched("plain", names.SCHEDULERS) == {"plain": "kubernetes"}
    assert scheduler_command._watched("default-scheduler", names.SCHEDULERS) == {"default-scheduler": "ai"}
    assert set(Options().schedulers) == {"plain", "gpus"}


def test_no_module_asks_for_the_default_names():
    """Those that do write them on objects that identify us, not on pods."""
    own = {"kubernetes/cluster.py", "kubernetes/statuses.py", "simulated/cluster.py"}
    allowed = {"api/names.py", "scheduler/configuration.py", *(f"cluster/{each}" for each in own)}
    root = Path(inspect.getfile(names)).parents[1]
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "simulation" not in path.parts
        and re.search(r"names\.(DEFAULT_SCHEDULERS|(KUBERNETES_)?SCHEDULER_NAME)\b", path.read_text())
    }
    assert found <= allowed | {"cli/configured.py"}


def test_all_processes_know_the_parts_of_the_file():
    given = yaml.safe_load(parts(resource="nvidia.com/mig-1g.24gb", part="1/7"))
    found = configuration.parse(given, "file")
    configuration.adopt(found)
    assert dict(names.GPU_PARTS) == {("nvidia.com/mig-1g.24gb", ""): 142}
    assert found.options().policy.gpu_parts == (("nvidia.com/mig-1g.24gb", "", 142),)
