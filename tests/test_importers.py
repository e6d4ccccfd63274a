"""Other schedulers' queues become Fairlead's: what they contain, what could not be converted, and nothing that crashes."""

import contextlib
import json
import re

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.cluster import policies, views
from fairlead.importers import kai, kueue, slurm, volcano
from fairlead.importers.base import ImportFailed, manifests
from fairlead.simulation.world import World

GPU = "nvidia.com/gpu"
KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: research}
spec: {parentName: company}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohort: research
  namespaceSelector: {matchLabels: {team: vision}}
  fairSharing: {weight: 2}
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority, borrowWithinCohort: {policy: LowerPriority}}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: "9.5", borrowingLimit: 0}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 2}
    - name: h100
      resources:
      - {name: cpu, nominalQuota: 10, borrowingLimit: 0}
      - {name: nvidia.com/gpu, nominalQuota: 16, borrowingLimit: 0}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: alone}
spec:
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  resourceGroups: [{flavors: [{name: any, resources: [{name: memory, nominalQuota: 36Gi}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {gpu: a100}}
"""
KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: Team_A}
spec:
  parentQueue: dept
  priority: 200
  preemptMinRuntime: 4h
  resources:
    gpu: {quota: 8, limit: -1, overQuotaWeight: 2}
    cpu: {quota: 12000, limit: 24000, overQuotaWeight: 1}
    memory: {quota: -1, limit: 64000}
"""
VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: batch}
spec:
  weight: 3
  parent: root
  reclaimable: false
  deserved: {nvidia.com/gpu: 8, cpu: "32"}
  capability: {nvidia.com/gpu: 16, memory: 1Ti}
  guarantee: {resource: {cpu: 4}}
"""
SLURM = """
# To edit this file start with a cluster line for the new cluster
Cluster - 'hpc':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'research':Description='all of it':Organization='uni':Fairshare=100:GrpTRES=cpu=512,gres/gpu=64,gres/gpu:a100=8
Parent - 'research'
Account - 'vision':Description='x: y':Organization='uni':Fairshare=10:GrpTRES=mem=512G,gres/gpu=32:GrpJobs=50:GrpSubmitJobs=500
Parent - 'vision'
User - 'ann':DefaultAccount='vision':Fairshare=1:MaxJobs=5:MaxSubmitJobs=20:GrpTRES=gres/gpu=8
User - 'bob':DefaultAccount='vision':Fairshare=1:MaxJobs=5:MaxSubmitJobs=30:GrpTRES=gres/gpu=8
"""
QOS = """Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageFactor|GrpTRES|MaxWall|MaxTRESPU|MaxJobsPU
normal|0|00:00:00|||cluster||1.000000||||
high|5000|00:02:00|normal|01:00:00|requeue||1.000000||2-00:00:00|gres/gpu=8|4
"""


ASSOCIATIONS = """Cluster|Account|User|Partition|Share|GrpJobs|GrpTRES|GrpSubmit|MaxJobs|MaxTRES|MaxWall|QOS|Def QOS
hpc|root|||1|||||||normal|
hpc| root|root||1|||||||normal|
hpc| research|||100||cpu=512,gres/gpu=64||||||
hpc|  vision|||10|50|mem=512G|500|5||||normal
hpc|   vision|ann||parent||gres/gpu=8||||||
hpc|   vision|bob|debug|1|||||||high|
hpc|   vision|bob||parent||gres/gpu=8|||gres/gpu=4|||
hpc| theory|||20|||||||high,normal|
old| theory|||7|||||||normal|
"""


def read(reader, text):
    return reader(manifests(yaml.safe_load_all(text)))


def spec_of(made, name, kind="Queue"):
    return next(each["spec"] for each in made.objects if (each["kind"], each["metadata"]["name"]) == (kind, name))


def by_name(spec, pool=None):
    return {
        each["name"]: {key: value for key, value in each.items() if key != "name"}
        for each in spec["resources"]
        if each.get("pool") == pool
    }


def noted(made):
    return {(note.object, note.field) for note in made.notes}


def test_kueue():
    made = read(kueue.read, KUEUE)
    assert {each["metadata"]["name"] for each in made.objects if each["kind"] == "Queue"} == {
        "company",
        "research",
        "vision",
        "alone",
    }
    assert spec_of(made, "research") == {"parent": "company"}
    vision = spec_of(made, "vision")
    assert vision["parent"] == "research"
    assert by_name(vision) == {
        "cpu": {"quota": "19500m", "limit": "19500m", "weight": 2},
        GPU: {"quota": 24, "limit": 28, "weight": 2},
    }
    assert by_name(vision, "a100") == {
        "cpu": {"quota": "9500m", "limit": "9500m", "weight": 2, "pool": "a100"},
        GPU: {"quota": 8, "limit": 12, "weight": 2, "pool": "a100"},
    }
    assert by_name(vision, "h100") == {}, "that flavor has no nodes of its own"
    assert spec_of(made, "a100", "NodePool") == {"nodeSelector": {"matchLabels": {"gpu": "a100"}}}
    assert by_name(spec_of(made, "alone")) == {"memory": {"quota": "36Gi", "limit": "36Gi"}}, (
        "without a cohort nothing is borrowed"
    )
    namespace = next(each for each in made.objects if each["kind"] == "Namespace")
    assert namespace["metadata"] == {"name": "team-a", "labels": {"fairlead.dev/default-queue": "vision"}}
    assert spec_of(made, "urgent", "ServiceClass") == {"priorityClassName": "urgent"}
    assert ("ClusterQueue/vision", f"{GPU}.lendingLimit") in noted(made)
    assert ("ClusterQueue/alone", "queueingStrategy") in noted(made)
    assert ("ClusterQueue/alone", "preemption.withinClusterQueue") in noted(made)
    assert ("ResourceFlavor/a100", "nodeLabels") in noted(made)


def test_kai():
    made = read(kai.read, KAI)
    spec = spec_of(made, "team-a")
    assert (spec["parent"], spec["priority"]) == ("dept", 200)
    assert by_name(spec) == {
        GPU: {"quota": 8, "weight": 2},
        "cpu": {"quota": "12000m", "limit": "24000m", "weight": 1},
        "memory": {"quota": "100%", "limit": "64000M"},
    }
    assert noted(made) == {("Queue/Team_A", "name"), ("Queue/Team_A", "preemptMinRuntime")}


def test_volcano():
    made = read(volcano.read, VOLCANO)
    spec = spec_of(made, "batch")
    assert "parent" not in spec
    assert by_name(spec) == {
        GPU: {"quota": "8", "limit": "16", "weight": 3},
        "cpu": {"quota": "32", "weight": 3},
        "memory": {"limit": "1Ti", "weight": 3},
    }
    assert noted(made) == {("Queue/batch", "guarantee"), ("Queue/batch", "reclaimable")}


def test_slurm():
    made = slurm.read([SLURM, QOS])
    research, vision = spec_of(made, "research"), spec_of(made, "vision")
    assert by_name(research) == {GPU: {"limit": 64, "weight": 100}, "cpu": {"limit": 512, "weight": 100}}
    assert vision["parent"] == "research"
    assert by_name(vision) == {GPU: {"limit": 32, "weight": 10}, "memory": {"limit": "512Gi", "weight": 10}}
    assert vision["users"] == ["ann", "bob"]
    assert vision["jobs"] == {"running": 50, "submitted": 500}
    assert vision["perUser"] == {"running": 5, "resources": {GPU: 8}}
    assert ("Account/research", "GrpTRES") in noted(made), "limits by model"
    assert ("Account/vision", "maxsubmitjobs") in noted(made), "it differs between users"
    high = spec_of(made, "high", "ServiceClass")
    assert high == {
        "priorityClassName": "slurm-high",
        "preemption": {"mode": "Requeue", "minRuntime": "3600s", "gracePeriod": "120s"},
        "timeLimit": {"max": "172800s"},
    }
    values = {each["metadata"]["name"]: each["value"] for each in made.objects if each["kind"] == "PriorityClass"}
    assert values == {"slurm-normal": 0, "slurm-high": 5000}
    assert {("QOS/high", "maxtrespu"), ("QOS/high", "maxjobspu"), ("QOS/high", "preempt")} <= noted(made)


def test_associations_of_slurm_as_a_table():
    made = slurm.read([ASSOCIATIONS])
    vision, research, theory = (spec_of(made, name) for name in ("vision", "research", "theory"))
    assert (research.get("parent"), vision["parent"], theory.get("parent")) == (None, "research", None)
    assert by_name(research) == {GPU: {"limit": 64, "weight": 100}, "cpu": {"limit": 512, "weight": 100}}
    assert by_name(vision) == {GPU: {"weight": 10}, "memory": {"limit": "512Gi", "weight": 10}}
    assert (vision["users"], vision["jobs"]) == (["ann", "bob"], {"running": 50, "submitted": 500})
    assert vision["perUser"] == {"running": 5, "resources": {GPU: 8}}
    assert by_name(theory) == {GPU: {"weight": 20}}, "that of the first cluster"
    assert noted(made) == {
        ("Account/vision", "Partition"),
        ("Account/vision", "maxtres"),
        ("Account/vision", "QOS"),
        ("Account/theory", "QOS"),
        ("Account/theory", "Cluster"),
    }
    flat = slurm.read(["\n".join(re.sub(r"\| +", "|", line) for line in ASSOCIATIONS.splitlines())])
    assert spec_of(flat, "vision").get("parent") is None
    assert ("sacctmgr show assoc", "ParentName") in noted(flat)
    shown = slurm.read(["Account|ParentName|User|Share\nvision|research||3\nresearch|root||5\n"])
    assert spec_of(shown, "vision")["parent"] == "research"
    assert not shown.notes


def test_nothing_of_a_qos_of_slurm_is_lost_without_a_word():
    fields = [
        "MaxTRES",
        "MaxTRESPerNode",
        "GrpTRESMins",
        "GrpTRESRunMins",
        "GrpWall",
        "MinTRES",
        "MaxJobsPA",
        "UsageThres",
        "Flags",
    ]
    made = slurm.read(
        [f"Priority|Name|{'|'.join(fields)}|GrpJobs|UsageFactor|\n5|some|{'|'.join('x' * len(fields))}|0|1.000000|\n"]
    )
    assert noted(made) == {("QOS/some", field.lower()) for field in fields}


@pytest.mark.parametrize(
    "made", [read(kueue.read, KUEUE), read(kai.read, KAI), read(volcano.read, VOLCANO), slurm.read([SLURM, QOS])]
)
async def test_what_is_made_is_taken_by_the_api_server_and_the_core(made):
    world = World(nodes=0, seed=1)
    for each in made.objects:
        if each["kind"] != "Namespace":
            world.create({**each, "metadata": {"name": f"{each['metadata']['name']}-too"}})
        if each["kind"] == "Queue":
            policies.queue(msgspec.convert(each, views.Queue))
        elif each["kind"] == "ServiceClass":
            policies.service_class(msgspec.convert(each, views.ServiceClass))


def check_readable(made):
    """What was made is written as YAML without loss, is taken by the core, and is there once; notes name what was not converted."""
    assert list(yaml.safe_load_all(yaml.safe_dump_all(made.objects))) == made.objects
    keys = [(each["kind"], each["metadata"]["name"]) for each in made.objects]
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name) for _, name in keys)
    for each in made.objects:
        if each["kind"] == "Queue":
            policies.queue(msgspec.convert(each, views.Queue))
        elif each["kind"] == "ServiceClass":
            policies.service_class(msgspec.convert(each, views.ServiceClass))
    assert all(note.object and note.field and note.message for note in made.notes)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["resources", "gpu", "quota", "limit", "flavors", "resourceGroups", "name", "parent", "weight", "deserved"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["Queue", "ClusterQueue", "Cohort", "LocalQueue", "WorkloadPriorityClass", "ResourceFlavor", "Else", None]),
    st.dictionaries(
        st.sampled_from(
            [
                "resources",
                "resourceGroups",
                "cohort",
                "parent",
                "parentQueue",
                "weight",
                "priority",
                "deserved",
                "capability",
                "guarantee",
            ]
        ),
        JUNK,
        max_size=4,
    ),
    JUNK,
)
def test_whatever_is_in_there_ends_in_objects_notes_or_a_refusal(kind, spec, value):
    document = {"kind": kind, "metadata": {"name": "x"}, "spec": spec, "value": value}
    for reader in (kueue.read, kai.read, volcano.read):
        with contextlib.suppress(ImportFailed):
            check_readable(reader(manifests([document])))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*SLURM.splitlines(), *QOS.splitlines(), "Account - ''", "User - :::", "Name|", "||||", "x"])))
def test_any_lines_of_slurms_end_in_objects_or_a_refusal(lines):
    with contextlib.suppress(ImportFailed):
        check_readable(slurm.read(["\n".join(lines)]))


def test_two_names_that_become_one_make_one_object_and_a_note():
    queues = "\n---\n".join(KAI.replace("Team_A", name) for name in ("Team_A", "Team-A"))
    made = read(kai.read, queues)
    assert [each["metadata"]["name"] for each in made.objects if each["kind"] == "Queue"] == ["team-a"]
    assert "left out: there is another Queue 'team-a' before it" in [note.message for note in made.notes]


def test_the_command(tmp_path):
    file = tmp_path / "queues.yaml"
    file.write_text(KUEUE)
    done = CliRunner().invoke(app, ["import", "kueue", str(file)])
    assert done.exit_code == 0
    assert [each["kind"] for each in yaml.safe_load_all(done.stdout)].count("Queue") == 4
    assert "lendingLimit" in done.stderr
    found = json.loads(CliRunner().invoke(app, ["import", "kueue", str(file), "-o", "json"]).stdout)
    assert set(found) == {"objects", "notes"}
    assert "vision" in CliRunner().invoke(app, ["import", "kueue", str(file), "-o", "table"]).stdout
    assert CliRunner().invoke(app, ["import", "slurm", "-"], input=SLURM).exit_code == 0
    file.write_text("]:")
    for wrong in (["kueue", str(file)], ["kueue", "nowhere"], ["slurm", str(file)], ["torque", str(file)]):
        assert CliRunner().invoke(app, ["import", *wrong]).exit_code == 2
    for empty in ("", "# nothing\n", "kind: Pod\nmetadata: {name: p}\n"):
        file.write_text(empty)
        done = CliRunner().invoke(app, ["import", "kueue", str(file)])
        assert (done.exit_code, "nothing of kueue that has a counterpart here" in done.stderr) == (2, True)
    file.write_text("- 1")
    assert CliRunner().invoke(app, ["import", "kai", str(file)]).exit_code == 2
