"""The leader's overview: rows of jobs, nodes and queues; a client that follows it knows the same as one that asks for all."""

import asyncio
import random

import msgspec
import pytest

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cli.leader import Leader
from fairlead.cluster.kubernetes.client import ApiError
from fairlead.cluster.port import Bound, Gone, Synced, Upsert
from fairlead.core.model.charges import units_of
from fairlead.core.model.groups import Group, Member, Target
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import Closeness
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.overview import jobs, nodes, queues
from fairlead.scheduler.overview.quotas import quotas
from fairlead.scheduler.overview.rows import State
from fairlead.scheduler.overview.served import Answer, Overview
from fairlead.scheduler.visibility import _list
from tests.builders import GPU, node, pod

NOW = 1000.0


def core(*objects):
    loop = CoreLoop(Policy(), lambda outputs: None)
    loop.apply([*(Upsert(each) for each in objects), Synced()], NOW)
    loop.decide(NOW)
    return loop


def rows(loop, namespace="", queue=""):
    found = jobs.Rows(loop.state, loop.reports.starts.interval).of(jobs.keys(loop.state, namespace, queue))
    return {each.name: each for each in found}


def test_jobs_where_they_stand():
    loop = core(
        Queue("q"),
        node("n", gpus=4),
        Group("ns", "gang", min_member=2, queue="q"),
        pod("a", gpus=1, queue="q", group="gang", at="n", started=900.0),
        pod("b", gpus=1, queue="q", group="gang", at="n"),
        pod("runs", gpus=1, queue="q", at="n", started=950.0, user="ann"),
        pod("ends", gpus=1, queue="q", at="n", started=950.0, terminating=True),
        pod("waits", gpus=4, queue="q"),
        pod("foreign", gpus=0, at="n", ours=False),
        pod("over", queue="q", finished=True),
    )
    found = rows(loop)
    assert {name: each.state for name, each in found.items()} == {
        "gang": State.STARTING,
        "runs": State.RUNNING,
        "ends": State.ENDING,
        "waits": State.PENDING,
    }
    gang = found["gang"]
    assert (gang.kind, gang.pods, gang.running, gang.gpus, gang.nodes, gang.started_at) == ("PodGroup", 2, 1, 2.0, ["n"], 900.0)
    assert (found["runs"].user, found["runs"].reason) == ("ann", None)
    assert found["waits"].reason.code == "Resources"
    assert "0/1 nodes" in found["waits"].reason.message


def test_a_suspended_job_is_listed_before_and_after_its_placeholders_come():
    member = Member(2, pod("m", gpus=2, queue="q", group="job", owner="o", root="batch/v1/Job/j"))
    loop = core(Queue("q"), node("n", gpus=2), pod("runs", gpus=2, queue="q", at="n"))
    loop.apply([Upsert(Group("ns", "job", min_member=2, queue="q", target=Target("Suspended", 1, ("o",), (member,))))], NOW)
    before = rows(loop)["job"]
    loop.decide(NOW)
    after = rows(loop)["job"]
    for found in (before, after):
        assert (found.state, found.pods, found.running, found.gpus, found.queue) == (State.SUSPENDED, 2, 0, 4.0, "q")
    assert after.reason is not None


def test_jobs_of_a_namespace_and_of_a_queue():
    loop = core(
        Queue("q"),
        Queue("other"),
        pod("a", queue="q"),
        pod("b", queue="other"),
        msgspec.structs.replace(pod("c", queue="q"), namespace="other"),
    )
    assert sorted(rows(loop, namespace="other")) == ["c"]
    assert sorted(rows(loop, queue="q")) == ["a", "c"]


def test_nodes_and_queues():
    loop = core(Queue("q"), node("n", gpus=2), node("m", gpus=1, unschedulable=True), pod("a", gpus=1, queue="q", at="n"))
    assert [(each.name, each.state, each.gpu_free_milli) for each in nodes.lines(loop.state)] == [
        ("m", "drained", [1000]),
        ("n", "mixed", [0, 1000]),
    ]
    assert [each.state for each in nodes.lines(loop.state, down={"n"})] == ["drained", "down"]
    found = queues.shares(loop.state)
    assert [(each.name, each.running, each.pending) for each in found.queues if each.name == "q"] == [("q", 1, 0)]
    assert found.resource == "nvidia.com/gpu"


def test_places_that_are_kept_are_shown_where_they_are_and_are_no_pods():
    """A gang of two with one spare, on a node with a pod beside it."""
    group = Group("ns", "g", 2, closeness=Closeness(("rack",), spares=1), spares=("n",))
    loop = core(
        NodePool("p", levels=(NetworkLevel("rack", "net/rack"),)),
        node("n", gpus=4, labels={"net/rack": "r"}),
        node("m", gpus=2, labels={"net/rack": "r"}),
        group,
        *(pod(name, gpus=2, group="g", at=where, started=900.0) for name, where in (("a", "n"), ("b", "m"))),
    )
    (job,) = rows(loop).values()
    assert (job.pods, job.gpus, job.spares) == (2, 4.0, ["n"])
    found = {each.name: (each.pods, each.gpus_used, each.kept_gpus) for each in nodes.lines(loop.state)}
    assert found == {"n": (1, 4.0, 2.0), "m": (1, 2.0, 0.0)}
    (others,) = jobs.others(loop.state, "another")
    assert (others.running, others.gpus) == (1, 4.0)


class Asked:
    """The API server as a command sees it: the overview of a core. only: the namespace that `user` may ask in; empty: all."""

    def __init__(self, loop, only="", user=""):
        self.loop, self.only, self.user = loop, only, user
        self.sent, self.answers = 0, []
        self.refusal = None
        self._overview = Overview(self._answer)

    async def _answer(self, question):
        return question(self.loop)

    async def get_packed(self, path, **query):
        namespace = path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else ""
        if self.refusal is not None or (self.only and namespace != self.only):
            raise ApiError(self.refusal or 403, "Refused", "no")
        more = {}
        if path.endswith("/nodes"):
            answer, named = await self._overview.nodes(namespace, query.get("since", "")), lambda row: ("", row.name)
            kind = "Node"
        elif path.endswith("/quotas"):
            kind, named = "Quota", lambda row: ("", row.queue)
            answer = Answer("", await self._overview.quotas(lambda name: not namespace or name == self.user))
        elif path.endswith("/queues"):
            found = await self._overview.queues()
            kind, named, answer = "Queue", lambda row: ("", row.name), Answer("", found.queues)
        else:
            answer = await self._overview.jobs(namespace, query.get("queue", ""), query.get("since", ""))
            kind, named = "Job", lambda row: (row.namespace, row.name)
            more = {"others": await self._overview.others(namespace)} if namespace else {}
        self.sent += len(answer.rows)
        self.answers.append(_list(kind, answer, named, more))
        return self.answers[-1]


@pytest.mark.parametrize("seed", range(20))
def test_a_client_that_follows_knows_what_one_knows_that_asks_for_all(seed):
    draw = random.Random(seed)
    loop = core(Queue("q"), Queue("other"), *(node(f"n{number}", gpus=4) for number in range(3)))
    api = Asked(loop)
    follows, known = Leader(api), []
    for step in range(40):
        for _ in range(draw.randint(0, 3)):
            kind = draw.random()
            if kind < 0.5 or not known:
                name = f"p{step}-{draw.randrange(10**6)}"
                group = f"g{draw.randrange(4)}" if draw.random() < 0.4 else ""
                where = {"at": f"n{draw.randrange(3)}"} if draw.random() < 0.3 else {}
                loop.apply(
                    [Upsert(pod(name, gpus=draw.randint(0, 3), queue=draw.choice(["q", "other"]), group=group, **where))], NOW
                )
                known.append(name)
            elif kind < 0.8:
                loop.apply([Gone("pod", f"uid-{known.pop(draw.randrange(len(known)))}")], NOW)
            else:
                loop.apply([Bound(f"uid-{draw.choice(known)}")], NOW)
        if draw.random() < 0.7:
            loop.decide(NOW + step)
        if draw.random() < 0.6:
            namespace, queue = draw.choice([("", ""), ("", "q"), ("ns", "")])
            assert asyncio.run(follows.jobs(namespace, queue)) == asyncio.run(Leader(api).jobs(namespace, queue))
            assert asyncio.run(follows.nodes()) == asyncio.run(Leader(api).nodes()) == nodes.lines(loop.state)


def test_what_did_not_change_is_not_sent_again():
    loop = core(Queue("q"), node("n", gpus=8), *(pod(f"p{number}", gpus=1, queue="q") for number in range(8)))
    api = Asked(loop)
    leader = Leader(api)
    assert len(asyncio.run(leader.jobs())) == 8
    assert len(asyncio.run(leader.jobs())) == 8
    assert api.sent == 8
    loop.apply([Gone("pod", "uid-p3"), Upsert(pod("new", queue="q"))], NOW)
    assert len(asyncio.run(leader.jobs())) == 8
    assert api.sent == 9


@pytest.mark.parametrize("code", [403, 404, 503])
def test_where_no_leader_answers_there_is_no_overview(code):
    api = Asked(core())
    api.refusal = code
    assert asyncio.run(Leader(api).jobs()) is None
    assert asyncio.run(Leader(api).nodes()) is None


def test_other_errors_are_errors():
    api = Asked(core())
    api.refusal = 401
    with pytest.raises(ApiError):
        asyncio.run(Leader(api).jobs())


# -- as of one namespace -------------------------------------------------------------------------

SPACES = ("ours", "secret-one", "secret-two")
USERS = ("ann", "secret-bob", "secret-cyd")


def in_namespace(made, namespace):
    return msgspec.structs.replace(made, namespace=namespace)


def crowded(seed):
    """Jobs of three namespaces and users, in a tree of queues: what runs, waits, leaves, cannot be counted, is in no queue."""
    draw = random.Random(seed)
    quotas = (QueueResource(GPU, quota=draw.choice([0, 4000]), limit=draw.choice([None, 9000])),)
    each_may = UserLimits(running=draw.choice([None, 2]), resources=((GPU, 3000),))
    tree = [Queue("top", "", 0, quotas), Queue("a", "top", 0, quotas, per_user=each_may), Queue("b", "top"), Queue("c")]
    made = []
    for number in range(draw.randint(0, 25)):
        space, user = draw.choice(list(zip(SPACES, USERS, strict=True)))
        name = f"{'our' if space == 'ours' else 'secret'}-{number}"
        group = f"{name[:3]}-gang-{draw.randrange(3)}" if draw.random() < 0.4 else ""
        fields = {"at": f"n{draw.randrange(3)}", "started": 900.0} if draw.random() < 0.5 else {}
        if fields and draw.random() < 0.1:
            fields["error"] = Reason(ReasonCode.INVALID_SPEC, f"pod {name} cannot be counted")
        fields |= {
            "user": user,
            "group": group,
            "ours": draw.random() < 0.9,
            "finished": draw.random() < 0.1,
            "terminating": bool(fields) and draw.random() < 0.2,
        }
        queue = draw.choice(["a", "b", "c", "nowhere"])
        made.append(in_namespace(pod(name, queue=queue, gpus=draw.randint(0, 2), **fields), space))
    return core(*tree, *(node(f"n{number}", gpus=8) for number in range(3)), *made)


@pytest.mark.parametrize("seed", range(60))
def test_as_of_a_namespace_others_are_counts(seed):
    loop = crowded(seed)
    everyone = asyncio.run(Leader(Asked(loop)).jobs())
    api = Asked(loop, only="ours", user="ann")
    leader = Leader(api, "ours")
    mine = asyncio.run(leader.jobs())
    assert leader.seen_from == "ours"
    assert mine == [each for each in everyone if each.namespace == "ours"]
    counts = {}
    for each in everyone:
        if each.namespace != "ours":
            found = counts.setdefault(each.queue, [0, 0, 0.0, 0.0])
            found[0 if each.nodes else 1] += 1
            found[2 if each.nodes else 3] += each.gpus
    assert {each.queue: [each.running, each.pending, each.gpus, each.gpus_wanted] for each in leader.others} == counts
    assert len(asyncio.run(leader.nodes())) == 3
    assert {each.queue for each in asyncio.run(leader.quotas())} <= {each.name for each in asyncio.run(leader.queues()).queues}
    assert b"secret" not in b"".join(api.answers)


@pytest.mark.parametrize("seed", range(60))
def test_quotas_are_counted_once_for_all_queues(seed):
    """Against the plain rule: for each queue, all that is charged in it and below it."""
    state = crowded(seed).state
    for each in quotas(state):
        inside = [task for task in state.tasks.values() if task.charged and state.queues.tree.above(each.queue, task.queue)]
        jobs_of, held = {}, {}
        for task in inside:
            mine = jobs_of.setdefault(task.user, {})
            if task.pod.ours:
                mine[task.job] = mine.get(task.job, False) or task.row >= 0
            for resource, amount in task.shape.charge if task.row >= 0 else ():
                amounts = held.setdefault(task.user, {})
                amounts[resource] = amounts.get(resource, 0) + amount
        assert {user.user: (user.submitted, user.running) for user in each.users} == {
            name: (len(found), sum(found.values())) for name, found in jobs_of.items()
        }
        assert {user.user: user.used for user in each.users if user.used} == {
            name: {resource: amount / units_of(resource) for resource, amount in amounts.items()}
            for name, amounts in held.items()
        }
        assert each.submitted == sum(user.submitted for user in each.users)


def test_only_the_user_who_asks_is_listed_in_quotas():
    loop = core(Queue("q"), pod("a", queue="q", user="ann"), pod("b", queue="q", user="bob"), pod("c", queue="q", user="cyd"))
    (ours,) = asyncio.run(Leader(Asked(loop, "ns", "ann"), "ns").quotas())
    assert ([each.user for each in ours.users], ours.other_users, ours.submitted) == (["ann"], 2, 3)
    (all_of_it,) = asyncio.run(Leader(Asked(loop)).quotas())
    assert ([each.user for each in all_of_it.users], all_of_it.other_users) == (["ann", "bob", "cyd"], 0)


def test_a_user_of_no_namespace_is_not_answered():
    loop = core(Queue("q"), pod("a", queue="q"))
    assert asyncio.run(Leader(Asked(loop, "ns"), "elsewhere").jobs()) is None


def test_who_sees_the_whole_cluster_gets_no_counts():
    loop = core(Queue("q"), pod("a", queue="q"), in_namespace(pod("b", queue="q"), "other"))
    leader = Leader(Asked(loop), "ns")
    assert [each.name for each in asyncio.run(leader.jobs("ns"))] == ["a"]
    assert (leader.others, leader.seen_from) == ([], "")
