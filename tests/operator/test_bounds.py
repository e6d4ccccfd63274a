"""What tenants may not do with AIJobs: broken templates, members without number, changes after the start, others' names."""

import asyncio
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.translate import Change
from fairlead.operator.app import Options
from fairlead.operator.jobs.accepted import as_admitted
from fairlead.operator.jobs.limits import Bounds, Waiting
from fairlead.operator.jobs.members import asks_gpus, group, members, pod, service
from fairlead.operator.jobs.pods import time_limit
from fairlead.operator.jobs.templates import problem
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import OperatorProcess, World
from tests.operator.builders import Story, job
from tests.operator.worlds import events_on, in_a_world

JOB, POD, GROUP = (f"{names.API_VERSION}", "AIJob"), ("v1", "Pod"), (names.API_VERSION, "PodGroup")
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}


def made(world, kind):
    resource = world.api.catalog.of_kind(*kind)
    return {key[1]: record.object for key, record in world.api.store.records(resource.table)}


def submit(world, name="bert", roles=None, namespace="vision", annotations=None, **spec):
    roles = roles or [{"name": "worker", "template": TEMPLATE}]
    metadata = {"name": name, "annotations": annotations or {}}
    world.create(
        {"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": metadata, "spec": {"roles": roles, **spec}}, namespace
    )


def condition(world, name="bert", kind="Accepted"):
    status = made(world, JOB)[name].get("status") or {}
    found = next((each for each in status.get("conditions") or () if each["type"] == kind), {})
    return found.get("status"), found.get("reason"), found.get("message", "")


# -- templates ---------------------------------------------------------------------------------

BROKEN = [
    {},
    {"spec": None},
    {"spec": {"containers": []}},
    {"spec": {"containers": "x"}},
    {"spec": {"containers": [1]}},
    {"spec": {"containers": [{"name": "a", "env": "x"}]}},
    {"spec": {"containers": [{"name": "a", "env": [1]}]}},
    {"spec": {"containers": [{"name": "a", "env": [{"name": ["x"]}]}]}},
    {"spec": {"containers": [{"name": "a"}], "affinity": []}},
    {"spec": {"containers": [{"name": "a"}], "affinity": {"nodeAffinity": None}}},
    {"spec": {"containers": [{"name": "a"}], "initContainers": {"a": 1}}},
    {"metadata": [], "spec": {"containers": [{"name": "a"}]}},
    {"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{"name": "a"}]}},
]


@pytest.mark.parametrize("template", BROKEN, ids=str)
def test_a_broken_template_is_told_to_its_user_once(template):
    async def story(world, operator):
        submit(world, "bert", [{"name": "worker", "template": template}])
        submit(world, "good")
        await asyncio.sleep(300.0)
        status, reason, message = condition(world)
        assert (status, reason) == ("False", "InvalidTemplate")
        assert message.startswith("role 'worker': template.")
        assert [each["reason"] for each in events_on(world, "bert")] == ["InvalidTemplate"]
        assert sorted(made(world, POD)) == ["good-worker-0-0"]
        assert not operator.faults.counts

    in_a_world(story)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "env", "x", "value"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PART = st.sampled_from(
    [
        "metadata",
        "labels",
        "annotations",
        "spec",
        "containers",
        "initContainers",
        "env",
        "name",
        "resources",
        "requests",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "preferredDuringSchedulingIgnoredDuringExecution",
        "topologySpreadConstraints",
        "schedulerName",
        "terminationGracePeriodSeconds",
    ]
)
WHOLE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "containers": [{"name": "main", "env": [{"name": "A", "value": "b"}], "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "first"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [],
            }
        },
        "topologySpreadConstraints": [],
    },
}


def spoiled(template, name, value):
    """The template with every field of that name made another."""
    if isinstance(template, dict):
        return {key: value if key == name else spoiled(each, name, value) for key, each in template.items()}
    return [spoiled(each, name, value) for each in template] if isinstance(template, list) else template


@settings(max_examples=1500, deadline=None)
@given(ANY, st.lists(st.tuples(PART, ANY), max_size=3), st.booleans(), st.sampled_from(["Training", "Inference", "Interactive"]))
def test_any_template_is_told_of_or_makes_a_pod(other, changes, whole, kind):
    template = WHOLE if whole else {"spec": other}
    for name, value in changes:
        template = spoiled(template, name, value)
    if not isinstance(template, dict):
        return
    bert = job(roles=[{"name": "worker", "replicas": 2, "template": template}], workloadType=kind)
    bert.status = Story(job()).run().job.status
    bert.status.preferred_nodes = ["n"]
    reason, message = problem(bert)
    assert bool(reason) == bool(message)
    if reason:
        return
    role = bert.spec.roles[0]
    for manifest in (group(bert), service(bert), *(pod(bert, role, each, 0) for each in members(bert))):
        msgspec.json.encode(manifest)
    assert asks_gpus(role) in (True, False)


def test_a_job_that_cannot_be_read_is_told_so():
    async def story(world, operator):
        bare = views.OnlyMetadata(metadata=views.Metadata(name="old", namespace="vision", uid="u"))
        operator.jobs.jobs_informer.report([Change("vision/old", bare, "Expected `int`, got `str` - at `$.spec`")])
        await asyncio.sleep(1.0)
        told = [(each["reason"], each.get("note") or each.get("message")) for each in events_on(world, "old")]
        assert told == [("InvalidSpec", "it cannot be read: Expected `int`, got `str` - at `$.spec`")]
        assert not operator.faults.counts

    in_a_world(story)


# -- members without number --------------------------------------------------------------------


def test_elastic_members_are_made_as_they_find_places():
    story = Story(job(roles=[{"name": "worker", "minReplicas": 1, "replicas": 1, "maxReplicas": 10_000, "template": TEMPLATE}]))
    story.look()
    assert len(story.pods) <= 33
    for count in range(30):
        for name, seen in sorted(story.pods.items())[: 10 * count]:
            story.pods[name] = msgspec.structs.replace(seen, phase="Running", node="n")
        story.look(10.0)
        waiting = sum(not seen.node for seen in story.pods.values())
        running = len(story.pods) - waiting
        assert 32 <= waiting <= max(33, min(running, 256))


def test_a_job_with_too_many_members_waits_and_the_numbers_are_named():
    async def story(world, operator):
        roles = [{"name": name, "replicas": 1, "maxReplicas": 500, "template": TEMPLATE} for name in ("one", "two")]
        submit(world, roles=roles)
        await asyncio.sleep(60.0)
        assert condition(world) == (
            "False",
            "TooManyMembers",
            "it may have 1000 members; at most 999 are allowed: lower replicas or maxReplicas",
        )
        assert not made(world, POD)
        assert not operator.faults.counts

    in_a_world(story, Options(leader_elect=False, address="", max_members=999))


def test_only_so_many_wait_for_nodes_and_the_rest_is_made_later():
    options = Options(leader_elect=False, address="", max_waiting_pods_per_namespace=20, max_waiting_pods=30)

    async def story(world, operator):
        for number in range(20):
            submit(world, f"array-{number}", array={"indexes": "0-9999"})
        submit(world, "gang", [{"name": "worker", "replicas": 25, "template": TEMPLATE}], namespace="language")
        await asyncio.sleep(120.0)
        in_vision = [name for name in made(world, POD) if name.startswith("array")]
        assert len(in_vision) == 20
        assert operator.jobs.waiting.all == 45, "a gang is whole: it is let in where nothing of its namespace waits"
        told = [condition(world, f"array-{number}") for number in range(20)]
        held = [each for each in told if each[1] == "TooManyWaitingPods"]
        assert held
        assert all("of at most 20 pods" in message or "of at most 30 pods" in message for _, _, message in held)
        resource = world.api.catalog.of_kind(*POD)
        for name in in_vision:
            world.api.delete(resource, "vision", name, {"gracePeriodSeconds": 0})
        world.api.delete(world.api.catalog.of_kind(*JOB), "language", "gang", {})
        for name in [name for name in made(world, POD) if name.startswith("gang")]:
            world.api.delete(resource, "language", name, {"gracePeriodSeconds": 0})
        await asyncio.sleep(120.0)
        assert len(made(world, POD)) == 20, "others take their places"
        assert not operator.faults.counts

    in_a_world(story, options)


def test_what_waits_is_counted_as_it_is():
    dice, waiting, known = random.Random(5), Waiting(Bounds(10, 6, 9)), set()
    for _ in range(5000):
        key, placed = f"ns{dice.randrange(3)}/p{dice.randrange(8)}", dice.random() < 0.5
        waiting.seen(key, placed=placed)
        (known.discard if placed else known.add)(key)
        namespace, wanted = f"ns{dice.randrange(3)}", dice.randrange(1, 8)
        here = sum(each.startswith(namespace) for each in known)
        whole = dice.random() < 0.5
        allowance, why = waiting.allowance(namespace, wanted, whole=whole)
        free = wanted if whole and not here and len(known) < 9 else max(0, min(6 - here, 9 - len(known)))
        assert (waiting.all, allowance, bool(why)) == (len(known), min(wanted, free), free < wanted)


# -- changes after the start -------------------------------------------------------------------


def admitted(**spec):
    body = {"metadata": {"name": "bert", "namespace": "vision"}, "spec": spec}
    return msgspec.convert(body, views.PodGroup)


def test_a_time_limit_raised_after_the_start_does_not_restart_it_for_ever():
    changed = job(timeLimit="1000h")
    kept, said = as_admitted(changed, admitted(timeLimit="10s"), changed)
    assert said == "no effect until the job is submitted again: timeLimit 1000h (it was made with 10s)"
    story = Story(kept).run()
    story.set(started="2026-01-01T00:00:00Z")
    story.look()
    story.set(phase="Failed", disrupted=True)
    story.look(10.0)
    assert (story.phase, story.job.status.message) == ("Failed", "it reached its time limit of 10s")


def test_an_elements_time_limit_is_the_one_that_its_pod_was_made_with():
    story = Story(job(workers=1, timeLimit="1000h")).run()
    story.set(started="2026-01-01T00:00:00Z", limit="10s")
    story.look()
    story.set(phase="Failed", disrupted=True)
    story.look(10.0)
    assert (story.phase, story.job.status.message) == ("Failed", "it reached its time limit of 10s")
    early = Story(job(workers=1, timeLimit="10s")).run()
    early.set(started="2026-01-01T00:00:00Z", limit="1h")
    early.look()
    early.set(phase="Failed", disrupted=True)
    early.look(60.0)
    assert early.phase == "Restarting", "it was made with an hour"


@pytest.mark.parametrize(("text", "limit"), [("10s", "10s"), ("", ""), ("banana", ""), ("-1s", ""), ("1e999h", "")])
def test_a_time_limit_on_a_pod_that_cannot_be_read_is_none(text, limit):
    assert time_limit(text) == limit


def test_a_queue_changed_after_the_start_is_not_the_one_that_is_charged():
    async def story(world, operator):
        world.create({"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "other"}, "spec": {}})
        submit(world, queue="vision", timeLimit="1h")
        await asyncio.sleep(5.0)
        resource = world.api.catalog.of_kind(*JOB)
        body = made(world, JOB)["bert"]
        world.api.update(resource, "vision", "bert", {**body, "spec": {**body["spec"], "queue": "other", "timeLimit": "9h"}})
        await asyncio.sleep(5.0)
        assert made(world, JOB)["bert"]["status"]["queue"] == "vision"
        status, reason, message = condition(world)
        assert (status, reason) == ("True", "ChangeWithoutEffect")
        assert "queue other (it was made with vision), timeLimit 9h (it was made with 1h)" in message
        assert made(world, POD)["bert-worker-0-0"]["metadata"]["labels"][names.QUEUE_LABEL] == "vision"
        assert not operator.faults.counts

    in_a_world(story)


# -- others' names, others' namespaces, others' jobs -------------------------------------------


@pytest.mark.parametrize("kind", ["PodGroup", "Service"])
def test_what_has_the_jobs_name_and_is_not_its_own_is_told_of_and_does_not_rule_it(kind):
    version, spec = (names.API_VERSION, {"minMember": 1}) if kind == "PodGroup" else ("v1", {"clusterIP": "None"})

    async def story(world, operator):
        world.create({"apiVersion": version, "kind": kind, "metadata": {"name": "bert"}, "spec": spec}, "vision")
        submit(world, roles=[{"name": "worker", "replicas": 2, "template": TEMPLATE}])
        await asyncio.sleep(60.0)
        assert condition(world)[:2] == ("False", "NameTaken")
        assert condition(world)[2].startswith(f"{kind} bert exists in namespace vision and is not this job's")
        assert [each["reason"] for each in events_on(world, "bert")].count("NameTaken") == 1
        assert not made(world, POD)
        world.api.delete(world.api.catalog.of_kind(version, kind), "vision", "bert", {})
        await asyncio.sleep(60.0)
        assert sorted(made(world, POD)) == ["bert-worker-0-0", "bert-worker-1-0"]
        assert condition(world)[0] == "True"
        assert not operator.faults.counts

    in_a_world(story)


def member_of(job, uid, name="bert-worker-0-0", labels=None):
    """A pod as another job's, or, without labels, a user's own."""
    owner = {"apiVersion": names.API_VERSION, "kind": "AIJob", "name": job, "uid": uid, "controller": True}
    metadata = {"name": name, "labels": labels, "ownerReferences": [owner]} if labels else {"name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**TEMPLATE["spec"], "nodeName": "a100-000"}}


def labels_of(job):
    return {names.JOB_LABEL: job, names.ROLE_LABEL: "worker", names.INDEX_LABEL: "0", names.ATTEMPT_LABEL: "0"}


def end(world, name="bert-worker-0-0"):
    """A pod has succeeded by itself."""
    at = world.clock.text(world.clock.now())
    ended = {"terminated": {"exitCode": 0, "startedAt": at, "finishedAt": at}}
    container = {"name": "main", "image": "train:1", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    body = {"status": {"phase": "Succeeded", "containerStatuses": [container]}}
    resource = world.api.catalog.of_kind(*POD)
    world.api.patch(resource, "vision", name, "application/merge-patch+json", body, subresource="status")


def remove(world, kind, name="bert", **options):
    world.api.delete(world.api.catalog.of_kind(*kind), "vision", name, options)


def phase(world, name="bert"):
    return (made(world, JOB)[name].get("status") or {}).get("phase", "Pending")


def test_a_job_that_is_submitted_again_runs_again():
    """What ended was another job, also where it had the same name."""

    async def story(world, operator):
        for _ in range(2):
            submit(world)
            await asyncio.sleep(10.0)
            assert list(made(world, POD)) == ["bert-worker-0-0"]
            assert phase(world) == "Pending"
            end(world)
            await asyncio.sleep(10.0)
            assert phase(world) == "Succeeded"
            remove(world, JOB)
            await asyncio.sleep(10.0)
            assert not made(world, POD)
        assert not operator.jobs._records, "nothing is kept of jobs that are gone"

    in_a_world(story)


@pytest.mark.parametrize("array", [None, {"indexes": "0"}], ids=["job", "array"])
def test_pods_of_a_deleted_job_are_not_the_next_ones(array):
    """They are collected a while after the job; meanwhile its name is free and theirs are not."""
    name, labels = ("bert-0-worker-0-0", {names.ELEMENT_LABEL: "0"}) if array else ("bert-worker-0-0", {})

    async def story(world, operator):
        world.create(member_of("bert", "earlier", name, {**labels_of("bert"), **labels}), "vision")
        end(world, name)
        submit(world, **({"array": array} if array else {}))
        await asyncio.sleep(30.0)
        assert phase(world) == "Pending"
        assert condition(world)[:2] == ("False", "NameTaken")
        assert condition(world)[2].startswith(f"Pod {name} exists in namespace vision and is not this job's")
        remove(world, POD, name, gracePeriodSeconds=0)
        await asyncio.sleep(2.0)
        assert made(world, POD)[name]["metadata"]["ownerReferences"][0]["uid"] == made(world, JOB)["bert"]["metadata"]["uid"]
        await asyncio.sleep(2.0)
        assert condition(world)[0] == "True"
        assert not operator.faults.counts

    in_a_world(story)


def test_an_element_whose_podgroup_is_anothers_keeps_no_other_from_starting():
    async def story(world, _):
        spec = {"minMember": 1}
        world.create(
            {"apiVersion": names.API_VERSION, "kind": "PodGroup", "metadata": {"name": "bert-1"}, "spec": spec}, "vision"
        )
        submit(world, roles=[{"name": "worker", "replicas": 2, "template": TEMPLATE}], array={"indexes": "0-2"})
        await asyncio.sleep(60.0)
        assert sorted(made(world, POD)) == [f"bert-{element}-worker-{index}-0" for element in (0, 2) for index in (0, 1)]
        assert condition(world)[2].startswith("PodGroup bert-1 exists in namespace vision and is not this job's")
        remove(world, GROUP, "bert-1")
        await asyncio.sleep(10.0)
        assert len(made(world, POD)) == 6

    in_a_world(story)


@pytest.mark.parametrize("spec", [{}, {"array": {"indexes": "0-1"}}], ids=["job", "array"])
def test_a_job_that_is_being_deleted_begins_nothing_any_more(spec):
    """`kubectl delete --cascade=foreground` deletes the pods first: that is no interruption."""

    async def story(world, operator):
        submit(world, roles=[{"name": "worker", "replicas": 2, "template": TEMPLATE}], **spec)
        await asyncio.sleep(5.0)
        pods = made(world, POD)
        held = {"metadata": {"finalizers": ["example.com/slow"]}}
        resource = world.api.catalog.of_kind(*POD)
        for name in pods:
            world.api.patch(resource, "vision", name, "application/merge-patch+json", held)
        before = made(world, JOB)["bert"]["status"]
        remove(world, JOB, propagationPolicy="Foreground")
        await asyncio.sleep(60.0)
        assert made(world, POD).keys() == pods.keys()
        assert all(each["metadata"].get("deletionTimestamp") for each in made(world, POD).values())
        assert made(world, JOB)["bert"]["status"] == before
        for name in pods:
            world.api.patch(resource, "vision", name, "application/merge-patch+json", {"metadata": {"finalizers": None}})
        await asyncio.sleep(5.0)
        assert not made(world, POD)
        assert not made(world, JOB)
        assert not operator.faults.counts

    in_a_world(story)


def test_a_podgroup_that_is_deleted_is_made_again_while_its_pods_are_there():
    """Without it none of them would ever be placed. It is of the queue that the job was admitted to."""

    async def story(world, operator):
        two = [{"name": "worker", "replicas": 2, "template": TEMPLATE}]
        submit(world, roles=two, queue="vision")
        submit(world, "sweep", roles=two, array={"indexes": "3-4"})
        submit(world, "over")
        await asyncio.sleep(5.0)
        end(world, "over-worker-0-0")
        await asyncio.sleep(5.0)
        assert sorted(made(world, GROUP)) == ["bert", "over", "sweep-3", "sweep-4"]
        resource = world.api.catalog.of_kind(*JOB)
        world.api.patch(resource, "vision", "bert", "application/merge-patch+json", {"spec": {"queue": "other"}})
        await asyncio.sleep(5.0)
        for name in ("bert", "over", "sweep-4"):
            remove(world, GROUP, name)
        await asyncio.sleep(5.0)
        assert sorted(made(world, GROUP)) == ["bert", "sweep-3", "sweep-4"], "and of none that has ended"
        assert made(world, GROUP)["bert"]["spec"] == {"minMember": 2, "queue": "vision"}
        remove(world, JOB)
        await asyncio.sleep(5.0)
        assert "bert" not in made(world, GROUP)
        assert not operator.faults.counts

    in_a_world(story)


def test_a_service_that_is_deleted_is_there_again_for_the_next_attempt():
    async def story(world, _):
        submit(world, restart={"limit": 1, "backoff": "1s"})
        await asyncio.sleep(5.0)
        remove(world, ("v1", "Service"))
        body = {"status": {"phase": "Failed"}}
        resource = world.api.catalog.of_kind(*POD)
        world.api.patch(resource, "vision", "bert-worker-0-0", "application/merge-patch+json", body, subresource="status")
        await asyncio.sleep(10.0)
        assert sorted(made(world, POD)) == ["bert-worker-0-1"]
        assert list(made(world, ("v1", "Service"))) == ["bert"]

    in_a_world(story)


def test_a_podgroup_that_is_deleted_while_no_operator_runs_is_made_again():
    async def run():
        world = World(nodes=1, seed=1)
        first, second = OperatorProcess(world), OperatorProcess(world)
        first.start()
        await asyncio.sleep(5.0)
        submit(world)
        await asyncio.sleep(5.0)
        await first.kill()
        remove(world, GROUP)
        second.start()
        await asyncio.sleep(5.0)
        assert list(made(world, GROUP)) == ["bert"]
        await second.kill()

    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_members_whose_name_another_pod_has_are_told_of():
    """An array's element has the same names as a job that is called so; and a user's own pod may be called anything."""

    async def story(world, operator):
        submit(world, "bert", array={"indexes": "0-1"})
        submit(world, "bert-0")
        world.create(member_of("", "", "tune-worker-1-0"), "vision")
        submit(world, "tune", roles=[{"name": "worker", "replicas": 3, "template": TEMPLATE}])
        await asyncio.sleep(100.0)
        assert sorted(made(world, POD)) == ["bert-0-worker-0-0", "bert-1-worker-0-0", "tune-worker-1-0"]
        for name, theirs in (("bert-0", "bert-0-worker-0-0"), ("tune", "tune-worker-1-0")):
            assert condition(world, name)[:2] == ("False", "NameTaken")
            assert condition(world, name)[2].startswith(f"Pod {theirs} exists in namespace vision and is not this job's")
            assert [each["reason"] for each in events_on(world, name)] == ["NameTaken"]
        created = operator.jobs.counters.created
        await asyncio.sleep(600.0)
        assert operator.jobs.counters.created - created < 20, "they are not made again and again"
        remove(world, JOB)
        remove(world, POD, "tune-worker-1-0", gracePeriodSeconds=0)
        await asyncio.sleep(200.0)
        assert sorted(made(world, POD)) == ["bert-0-worker-0-0", *(f"tune-worker-{each}-0" for each in range(3))]
        assert condition(world, "bert-0")[0] == condition(world, "tune")[0] == "True"
        assert not operator.faults.counts

    in_a_world(story)


def test_no_pods_are_made_where_no_policy_looks():
    async def story(world, _):
        submit(world, namespace="kube-public")
        await asyncio.sleep(5.0)
        assert condition(world)[:2] == ("False", "NamespaceNotAllowed")
        assert not made(world, POD)

    in_a_world(story)


def test_a_dependency_that_is_not_there_is_told_of():
    async def story(world, _):
        submit(world, dependsOn=[{"job": "nobody"}])
        await asyncio.sleep(60.0)
        assert condition(world) == ("False", "DependencyMissing", "job 'nobody' does not exist in namespace vision")
        assert [each["type"] for each in events_on(world, "bert")] == ["Warning"]
        submit(world, "nobody")
        await asyncio.sleep(5.0)
        assert condition(world)[0] == "True"

    in_a_world(story)


@pytest.mark.parametrize("indexes", ["5-1", "0-99999999999", "0-100000"])
def test_an_array_that_makes_no_sense_is_told_of(indexes):
    async def story(world, operator):
        submit(world, array={"indexes": indexes})
        await asyncio.sleep(60.0)
        assert condition(world)[:2] == ("False", "WrongIndexes")
        assert made(world, JOB)["bert"]["status"]["phase"] == "Pending"
        assert [each["reason"] for each in events_on(world, "bert")] == ["WrongIndexes"]
        assert not operator.faults.counts

    in_a_world(story)


# -- whose it is -------------------------------------------------------------------------------


def test_an_operator_that_the_policies_do_not_trust_says_so(monkeypatch):
    async def story(world, operator):
        before = operator.jobs.client.post

        async def stamped(path, body, **more):
            manifest = msgspec.json.decode(body)
            if manifest["kind"] in ("Pod", "PodGroup") and names.USER_ANNOTATION in manifest["metadata"].get("annotations", {}):
                manifest["metadata"]["annotations"][names.USER_ANNOTATION] = "the-operator"
            return await before(path, msgspec.json.encode(manifest), **more)

        monkeypatch.setattr(operator.jobs.client, "post", stamped)
        submit(world, annotations={names.USER_ANNOTATION: "ann"})
        submit(world, "without")
        await asyncio.sleep(5.0)
        status, reason, message = condition(world, kind="Trusted")
        assert (status, reason) == ("False", "OperatorNotTrusted")
        assert "--trust the-operator" in message
        assert condition(world, "without", "Trusted") == (None, None, "")
        assert b"fairlead_operator_untrusted 1.0" in await operator._render()
        monkeypatch.setattr(operator.jobs.client, "post", before)
        submit(world, "later", annotations={names.USER_ANNOTATION: "ann"})
        await asyncio.sleep(5.0)
        assert condition(world, "later", "Trusted") == (None, None, "")
        assert b"fairlead_operator_untrusted 0.0" in await operator._render()

    in_a_world(story)


def test_pods_that_the_api_server_refuses_are_told_of_with_its_words(monkeypatch):
    async def story(world, operator):
        before = operator.jobs.client.post

        async def refusing(path, body, **more):
            if path.endswith("/pods"):
                raise ApiError(403, "Forbidden", "namespace vision may not use queue anns")
            return await before(path, body, **more)

        monkeypatch.setattr(operator.jobs.client, "post", refusing)
        submit(world)
        await asyncio.sleep(300.0)
        assert condition(world) == (
            "False",
            "PodsRefused",
            "the API server refuses its pods: namespace vision may not use queue anns",
        )
        assert [each["reason"] for each in events_on(world, "bert")].count("PodsRefused") == 1
        monkeypatch.setattr(operator.jobs.client, "post", before)
        await asyncio.sleep(120.0)
        assert condition(world)[0] == "True"
        assert sorted(made(world, POD)) == ["bert-worker-0-0"]

    in_a_world(story)
