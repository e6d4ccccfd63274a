"""What if, asked by a user of one namespace: of others the answer has counts only, and for the own jobs it is an administrator's."""

import json
import random
from collections import Counter
from functools import cache

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Unreachable
from fairlead.cluster.translate import Objects
from fairlead.core.model.policy import Policy
from fairlead.scheduler.others import without_others
from fairlead.scheduler.player import Asked
from fairlead.simulation import answering, asked, whatif
from fairlead.simulation.asked import NotYours, Question
from testbed import objects as made
from tests.simulation.asked_worlds import MARK, NOW, OWN, USER, Worlds, stamped

POLICY = Policy()
WORLDS = 100


def changed_by_an_administrator(objects, question):
    found = msgspec.structs.replace(objects, nodes=list(objects.nodes))
    for manifest in question.manifests:
        whatif.apply(found, stamped(manifest), OWN)
    for field in ("quota", "limit"):
        for text in getattr(question, field):
            whatif.set_amount(found, *whatif.amount_of(field, text))
    if question.add_nodes:
        whatif.add_nodes(found, *whatif.count_of(question.add_nodes))
    for node in question.drain:
        whatif.drain(found, node)
    return found


def of_own(jobs):
    return [each for each in jobs if each.job.startswith(f"{OWN}/")]


@cache
def both(seed):
    """What an administrator is answered, and what the user is."""
    worlds = Worlds(seed)
    objects = worlds.objects()
    question = worlds.question(objects)
    as_it_was = msgspec.json.encode(objects)
    everything = whatif.what_if(objects, changed_by_an_administrator(objects, question), POLICY)
    shown = asked.answer(everything.before, asked.changed(objects, question, OWN, USER), OWN, POLICY)
    assert msgspec.json.encode(objects) == as_it_was, "nothing is touched"
    return everything, shown


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, WORLDS, 20)], ids=str)
def test_no_text_of_another_namespace_is_shown_and_the_own_jobs_are_answered_as_an_administrators(seeds):
    for seed in seeds:
        everything, shown = both(seed)
        assert MARK not in msgspec.json.encode(shown).decode(), seed
        for full, part in ((everything.before, shown.before), (everything.after, shown.after)):
            for theirs, own in zip(of_own(full.jobs), part.jobs, strict=True):
                assert own == theirs or (MARK in theirs.reason and own == msgspec.structs.replace(theirs, reason=own.reason))
            known = [each for each in full.evicted if each.pod.startswith(f"{OWN}/")]
            assert [(each.pod, each.queue, each.node) for each in known] == [
                (each.pod, each.queue, each.node) for each in part.evicted
            ]
            assert [(each.name, each.gpus, each.waiting) for each in full.queues] == [
                (each.name, each.gpus, each.waiting) for each in part.queues
            ]
            assert part.utilization == full.utilization
        for field in ("starts", "delayed", "evicted"):
            own = [each for each in getattr(everything, field) if each.startswith(f"{OWN}/")]
            assert getattr(shown, field) == own
            counted = sum(getattr(each, field) for each in shown.others)
            assert counted == len(getattr(everything, field)) - len(own)


def test_the_worlds_have_what_could_leak():
    """Else the test above would prove nothing."""
    seen = Counter()
    for seed in range(WORLDS):
        everything, shown = both(seed)
        seen["marked"] += MARK in msgspec.json.encode(everything).decode()
        seen["reasons"] += any(MARK in each.reason for each in of_own(everything.after.jobs))
        seen["for others"] += any("another" in each.by for each in shown.after.evicted)
        for field in ("starts", "delayed", "evicted"):
            seen[f"own {field}"] += bool(getattr(shown, field))
            seen[f"others {field}"] += any(getattr(each, field) for each in shown.others)
    assert seen["marked"] > WORLDS / 2
    assert all(count >= 3 for count in seen.values()), seen
    assert len(seen) == 9


def view(kind, manifest, namespace=""):
    return Worlds(0).view(kind, manifest, namespace)


def running(name, namespace, queue, gpus, user=""):
    pod = made.pod(name, gpus=gpus, queue=queue, nodeName="n", annotations={"fairlead.dev/user": user or namespace})
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]
    return view(views.Pod, pod | {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}, namespace)


def cluster(*pods, **more):
    queues = [view(views.Queue, made.queue("owner", quota=4)), view(views.Queue, made.queue("guest", quota=0))]
    priorities = [
        view(views.PriorityClass, made.priority_class(name, value)) for name, value in (("high", 9), ("system", 2**31 - 1))
    ]
    nodes = [view(views.Node, made.node("n", gpus=4))]
    return Objects(now=NOW, nodes=nodes, queues=queues, pods=list(pods), priorities=priorities, **more)


def ask(objects, question, user=USER):
    return asked.answer(whatif.play(objects, POLICY), asked.changed(objects, question, OWN, user), OWN, POLICY)


def test_others_are_counted_by_queue():
    objects = cluster(*(running(f"r{number}", "others", "guest", 1) for number in range(4)))
    found = ask(objects, Question([made.pod("mine", queue="owner", gpus=2)]))
    assert (found.starts, found.evicted) == (["vision/mine"], [])
    assert [(each.queue, each.starts, each.delayed, each.evicted) for each in found.others] == [("guest", 0, 0, 2)]
    assert found.after.evicted == []
    guest = next(each for each in found.after.queues if each.name == "guest")
    assert (guest.gpus, guest.waiting, guest.mean_wait_seconds) == (2.0, 2, None)


def test_a_question_is_stamped_with_who_asks_whatever_it_says():
    objects = cluster()
    objects.queues[0].spec.users = ["ann"]
    pod = made.pod("mine", queue="owner", annotations={"fairlead.dev/user": "ann"})
    job = made.ai_job("job", queue="owner") | {"metadata": {"name": "job", "annotations": {"fairlead.dev/user": "ann"}}}
    assert ask(objects, Question([pod, job])).starts == ["vision/job", "vision/mine"]
    refused = ask(objects, Question([pod, job]), user="bob")
    assert refused.starts == []
    assert all("NotAllowed" in each.reason for each in refused.after.jobs)


AFFINITY = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "secret"}}}
REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def affine(kind, where, **more):
    term = {**AFFINITY, **more}
    return made.pod("p", affinity={kind: {where: [term if where == REQUIRED else {"weight": 1, "podAffinityTerm": term}]}})


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (made.queue("owner", quota=100), "a manifest of kind 'Queue'"),
        (made.node("m"), "a manifest of kind 'Node'"),
        (made.priority_class("top", 10**9), "a manifest of kind 'PriorityClass'"),
        ({"kind": "Namespace", "metadata": {"name": OWN}}, "a manifest of kind 'Namespace'"),
        (made.pod("p") | {"metadata": {"name": "p", "namespace": "others"}}, "is of namespace 'others'"),
        (made.ai_job("j") | {"metadata": {"name": "j", "namespace": "others"}}, "is of namespace 'others'"),
        (made.pod("p", priority=12345), "which no PriorityClass gives"),
        (made.pod("p", priorityClassName="system"), "PriorityClass of the system"),
        (affine("podAffinity", REQUIRED, namespaces=["others"]), "affinity to pods of other namespaces"),
        (affine("podAntiAffinity", REQUIRED, namespaceSelector={}), "affinity to pods of other namespaces"),
        (affine("podAffinity", PREFERRED, namespaces=[OWN, "others"]), "affinity to pods of other namespaces"),
        (affine("podAntiAffinity", PREFERRED, namespaceSelector={}), "affinity to pods of other namespaces"),
    ],
)
def test_what_is_not_the_users_is_refused_with_what_to_do(manifest, told):
    with pytest.raises(NotYours) as refused:
        ask(cluster(), Question([manifest]))
    assert told in str(refused.value)


def test_a_node_is_not_chosen_by_a_template():
    job = made.ai_job("j", workers=1)
    job["spec"]["roles"][0]["template"]["spec"]["nodeName"] = "n"
    with pytest.raises(NotYours, match=r"names its node in spec\.nodeName"):
        ask(cluster(), Question([job]))


def test_the_namespaces_own_affinity_is_played():
    manifest = affine("podAffinity", REQUIRED, namespaces=[OWN])
    assert ask(cluster(), Question([manifest])).after.jobs[0].starts == "never"


def test_a_status_that_a_user_could_not_write_does_not_count():
    group = made.pod_group("g", 1, "owner") | {"status": {"target": {"state": "Suspended", "replicas": 1, "epoch": 1}}}
    found = ask(cluster(), Question([group, made.pod("p", group="g")]))
    assert found.starts == ["vision/g"]


# -- bad input ---------------------------------------------------------------------------------


class Listed(answering.Cluster):
    """A cluster that needs no listing."""

    def __init__(self, objects):
        self.policy = POLICY
        self._objects = objects
        self._outcome = None

    policy = None

    def objects(self):
        return self._objects


def played(body, objects=None):
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answering.answer(Listed(objects or cluster()), Asked(OWN, USER, encoded))


def spec(*manifests, **more):
    return {"spec": {"manifests": list(manifests), **more}}


def pod_with(**more):
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": more}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
        (b'{"spec": {"manifests": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}}", "cannot be read"),
        ({"spec": []}, "cannot be read"),
        ({"spec": {"weather": "fine"}}, "unknown field"),
        (b'{"spec": {"quota": [NaN]}}', "cannot be read"),
        (spec("pod"), "cannot be read"),
        (spec({}), "needs `kind`"),
        (spec({"kind": "Pod", "metadata": []}), "needs `kind`"),
        (spec({"kind": ["Pod"], "metadata": {"name": "p"}}), "needs `kind`"),
        (spec({"kind": "Pod", "metadata": {"name": "a/b"}}), "metadata.name"),
        (spec({"kind": "Pod", "metadata": {"name": "\x1b[2J"}}), "metadata.name"),
        (spec({"kind": "Pod", "metadata": {"name": "p" * 300}}), "metadata.name"),
        (spec({"kind": "Pod", "metadata": {"name": "p"}, "spec": "none"}), "spec is no object"),
        (spec({"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": "many"}}), "no whole number"),
        (spec({"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 1.5}}), "no whole number"),
        (spec({"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 10**12}}), "at most 10000"),
        (spec({"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": 7}}), "template is no object"),
        (spec(made.job("a", pods=6000), made.job("b", pods=6000)), "at most 4000"),
        (spec(made.ai_job("j", array={"indexes": "0-99999"})), "at most"),
        (spec(made.ai_job("j", array={"indexes": "²"})), "matching regex"),
        (spec(made.ai_job("j", array={"indexes": "1" * 5000})), "array"),
        (spec(*[made.pod(f"p{number}") for number in range(501)]), "at most 500"),
        (spec(drain=["n"] * 101), "at most 100"),
        (spec(quota=["owner"]), "is not QUEUE:RESOURCE=AMOUNT"),
        (spec(quota=["owner:nvidia.com/gpu=NaN"]), "queue 'owner'"),
        (spec(limit=["owner:nvidia.com/gpu=1e99"]), "queue 'owner'"),
        (spec(quota=["nobody:nvidia.com/gpu=1"]), "does not exist"),
        (spec(addNodes="9" * 6000), "--add-nodes"),
        (spec(addNodes="1001"), "1 to 1000"),
        (spec(addNodes="1:nowhere"), "does not exist"),
        (spec(drain=["nowhere"]), "does not exist"),
        (spec(pod_with(containers=7)), "cannot be read"),
        (spec(pod_with(nodeSelector={"a": 1})), "cannot be read"),
        (spec(pod_with(priority="high")), "cannot be read"),
        (spec(made.pod("p") | {"metadata": {"name": "p", "labels": {"a": []}}}), "cannot be read"),
    ],
)
def test_what_is_no_question_is_refused(body, told):
    found = played(body)
    assert found.code in (403, 422), found
    assert told in found.message
    assert not found.outcome
    assert len(found.message) < 2000


def test_a_large_template_is_not_multiplied():
    """A megabyte times ten thousand pods would be all memory."""
    big = made.job("j", pods=9000)
    big["spec"]["template"]["metadata"]["annotations"] = {"a": "x" * 900_000}
    found = played(spec(big))
    assert (found.code, "at most 149 like these" in found.message) == (422, True), found.message


@pytest.mark.parametrize("amount", ["NaN", "inf", "-1", "1e99", "", "x" * 1000, "0x10", "१"])
def test_a_pod_whose_amounts_cannot_be_read_never_starts(amount):
    found = played(spec(made.pod("p", queue="owner", gpus=0, cpu=amount)))
    assert found.code == 200
    [job] = json.loads(found.outcome)["after"]["jobs"]
    assert (job["starts"], "InvalidSpec" in job["reason"] or "TooLarge" in job["reason"]) == ("never", True), job


JUNK = (None, True, -1, 10**30, 1.5, "", "\x00", "a" * 5000, "²", [], {}, [[]], [None], {"": None}, {"name": []}, [{"key": {}}])


def spoiled(draw, value, depth=0):
    """A copy of a manifest in which one place, chosen at random, holds something else."""
    if not isinstance(value, dict | list) or not value or (depth > 3 and draw.random() < 0.15):
        return draw.choice(JUNK)
    if isinstance(value, dict):
        key = draw.choice([*value])
        if draw.random() < 0.1:
            return {**value, draw.choice(["", "nodeName", "affinity", "resourceClaims", "\u0000"]): draw.choice(JUNK)}
        return {**value, key: spoiled(draw, value[key], depth + 1)}
    place = draw.randrange(len(value))
    return [*value[:place], spoiled(draw, value[place], depth + 1), *value[place + 1 :]]


@pytest.mark.parametrize("seed", range(5))
def test_spoiled_questions_are_answered_or_refused_and_never_fail(seed):
    draw = random.Random(seed)
    worlds = Worlds(seed)
    objects = worlds.objects()
    codes = Counter()
    for _ in range(80):
        body = json.loads(msgspec.json.encode({"spec": worlds.question(objects)}))
        body = spoiled(draw, body)
        found = played(body, objects)
        codes[found.code] += 1
        assert found.code in (200, 403, 422), (body, found)
        assert MARK not in found.message + found.outcome.decode()
    assert min(codes[422], codes[200]) > 5, codes


class Unlisted(Listed):
    """A cluster that cannot be listed."""

    def __init__(self, error):
        super().__init__(cluster())
        self.error = error

    def objects(self):
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (ApiError(403, "Forbidden", "no list of pods"), 503, "cannot list the cluster: 403 Forbidden: no list of pods"),
        (Unreachable("refused"), 503, "cannot list the cluster: refused"),
        (MemoryError(), 503, "too large for the memory"),
        (RuntimeError("zq"), 500, "the scheduler's log has the traceback"),
    ],
)
def test_what_fails_on_our_side_is_an_answer(error, code, told):
    found = answering.answer(Unlisted(error), Asked(OWN, USER, b'{"spec": {}}'))
    assert (found.code, found.outcome) == (code, b"")
    assert told in found.message
    assert MARK not in found.message


# -- sentences ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("reserved for red/bert, which starts", "reserved for another namespace's, which starts"),
        ("2 pod(s) are evicted: red/a-0, vision/b and 3 more", "2 pod(s) are evicted: another namespace's, vision/b and 3 more"),
        ("0/3 nodes: 3 Insufficient nvidia.com/gpu.", "0/3 nodes: 3 Insufficient nvidia.com/gpu."),
        ("ends with red/bert.", "ends with another namespace's."),
        ("label fairlead.dev/gpu-sharing and red/x.y-z", "label fairlead.dev/gpu-sharing and another namespace's"),
        ("unknown/x stays, 'red/q' does not", "unknown/x stays, 'another namespace's' does not"),
    ],
)
def test_keys_of_other_namespaces_are_left_out_of_sentences(sentence, shown):
    assert without_others(sentence, OWN, {"red", OWN, "3"}) == shown
