"""Faults that a real API server does not show on demand, from a small HTTP server in their place."""

import asyncio
import json

import msgspec
import pytest
from aiohttp import web

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster import views
from fairlead.cluster.kubernetes import cluster as cluster_module
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, retry_after
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.port import Outcome, QueueReport
from fairlead.core.model.queues import UsageRecord
from fairlead.core.model.transactions import Binding, PodRef

POD = PodRef("u", "ns", "p")


class Server:
    """Answers each request with the next of its answers; remembers what was asked."""

    def __init__(self):
        self.answers = []
        self.asked = []

    async def handle(self, request):
        self.asked.append((request.method, request.path, await request.text()))
        answer = self.answers.pop(0) if self.answers else (200, {})
        if callable(answer):
            return await answer(request)
        code, body, *headers = answer
        return web.json_response(body, status=code, headers=headers[0] if headers else None)


@pytest.fixture
async def server():
    server = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def client(server):
    async with Client(Config(server.url), timeout=1.0) as client:
        yield client


def status(code, reason="", message=""):
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


def stored(node="", uid="u"):
    return 200, {"metadata": {"name": "p", "uid": uid, "resourceVersion": "7"}, "spec": {"nodeName": node}}


async def hang(request):
    await asyncio.sleep(5)
    return web.Response()


async def test_retry_after_is_honoured(server, client):
    server.answers = [(429, {}, {"Retry-After": "0.05"}), (201, {})]
    assert await KubernetesCluster(client).bind(Binding(POD, "n"), 3) == (Outcome.DONE, "")
    assert len(server.asked) == 2


def test_retry_after_is_bounded():
    assert retry_after("999999") == 30.0
    assert retry_after("soon") == 1.0
    assert retry_after(None) == 1.0


async def test_a_binding_carries_uid_version_and_epoch(server, client):
    cluster = KubernetesCluster(client)
    cluster.translator.versions["u"] = "42"
    await cluster.bind(Binding(POD, "n"), 3)
    metadata = json.loads(server.asked[0][2])["metadata"]
    assert metadata == {"name": "p", "uid": "u", "resourceVersion": "42", "annotations": {"fairlead.dev/epoch": "3"}}


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([status(409), stored("n")], Outcome.DONE),
        ([status(409), stored("other")], Outcome.REFUSED),
        ([status(409), stored("", uid="another")], Outcome.GONE),
        ([status(500), stored("")], Outcome.REFUSED),
        ([status(503), status(503), stored("n")], Outcome.DONE),
        ([status(504), status(404)], Outcome.GONE),
        ([status(404)], Outcome.GONE),
        ([status(403, "Forbidden", "stale")], Outcome.REFUSED),
        ([hang, stored("n")], Outcome.DONE),
        ([hang, stored("")], Outcome.REFUSED),
    ],
)
async def test_an_uncertain_binding_is_read_before_it_is_judged(server, client, answers, outcome):
    server.answers = list(answers)
    assert (await KubernetesCluster(client).bind(Binding(POD, "n"), None))[0] is outcome
    assert not server.answers


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([status(429)], Outcome.REFUSED),
        ([status(404)], Outcome.GONE),
        ([status(500), (200, {"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}})], Outcome.DONE),
        ([status(500), stored("n")], Outcome.REFUSED),
    ],
)
async def test_evictions_likewise(server, client, answers, outcome):
    server.answers = list(answers)
    assert (await KubernetesCluster(client).evict(POD, dry_run=False))[0] is outcome


@pytest.mark.parametrize("last", [(200, {}), status(404), status(429)], ids=["done", "gone", "refused"])
@pytest.mark.parametrize("how", ["evict", "preempt"])
async def test_an_eviction_without_an_answer_is_repeated_until_its_outcome_is_known(server, client, monkeypatch, how, last):
    monkeypatch.setattr(cluster_module, "_REPEATS", 0.01)
    known = {200: Outcome.DONE, 404: Outcome.GONE, 429: Outcome.REFUSED}[last[0]]
    if how == "preempt" and known is Outcome.REFUSED:
        last = status(403)  # a client waits out a 429 where it is patient
    condition = [(200, {})] if how == "preempt" else []
    server.answers = [*condition, hang, stored("n"), hang, stored("n"), last]
    cluster = KubernetesCluster(client)
    outcome = await (cluster.evict(POD, dry_run=False) if how == "evict" else cluster.preempt(POD))
    assert outcome[0] is known
    assert not server.answers


async def test_an_eviction_that_took_effect_without_an_answer_is_not_repeated(server, client):
    server.answers = [hang, (200, {"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}})]
    assert (await KubernetesCluster(client).evict(POD, dry_run=False))[0] is Outcome.DONE
    assert len(server.asked) == 2


async def test_a_status_that_is_refused_is_no_failure(server, client):
    server.answers = [status(422)]
    await KubernetesCluster(client).refuse(POD, Reason(ReasonCode.RESOURCES, "full"))
    body = json.loads(server.asked[0][2])
    assert body["status"]["conditions"][0]["reason"] == "Unschedulable"


async def test_a_status_that_was_not_taken_for_now_is_told_of(server, client):
    cluster, why = KubernetesCluster(client), Reason(ReasonCode.RESOURCES, "full")
    for answer in (status(500), status(503), status(401), status(403), hang):
        server.answers = [answer] * (2 if answer == status(401) else 1)  # a client asks again with a new token
        with pytest.raises(Unreachable):
            await cluster.refuse(POD, why)
    server.answers = [status(503), (200, {})]
    assert (await cluster.preempt(POD))[0] is Outcome.DONE  # here it is worth no failure


async def test_a_queue_status_that_was_not_written_forgets_nothing_that_may_stand_there(server, client):
    """A merge keeps what it does not name: what the last written status named is named until a later one is written."""

    def report(resource, user):
        return QueueReport({resource: 1000}, 0, {}, UsageRecord(1.0, 0.0, ((user, 1.0),)))

    cluster = KubernetesCluster(client)
    await cluster.queue_status("q", report("a", "ann"))
    server.answers = [status(503)]
    with pytest.raises(Unreachable):
        await cluster.queue_status("q", report("b", "bob"))
    for _ in range(2):
        await cluster.queue_status("q", report("c", "eve"))
    *_, first, second = (json.loads(body)["status"] for _, _, body in server.asked)
    assert first["allocated"] == {"a": None, "b": None, "c": "1000"}
    assert first["usage"]["users"] == {"ann": None, "bob": None, "eve": 1}
    assert second["allocated"] == {"c": "1000"}
    assert second["usage"]["users"] == {"eve": 1}


async def test_a_status_that_lost_against_other_writers_is_written_later_and_another_pods_is_not(server, client):
    cluster, why = KubernetesCluster(client), Reason(ReasonCode.RESOURCES, "full")
    server.answers = [status(409, "Conflict", "the object has been modified; please apply your changes to the latest version")]
    with pytest.raises(Unreachable):
        await cluster.refuse(POD, why)
    server.answers = [status(422, "Invalid", 'Pod "p" is invalid: metadata.uid: Invalid value: "u": field is immutable')]
    await cluster.refuse(POD, why)
    assert not server.answers


async def test_a_token_file_that_is_gone_for_a_moment_is_no_configuration_error(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    async with Client(Config(server.url, token_file=str(token))) as client:
        client.auth.reject()
        token.unlink()
        with pytest.raises(Unreachable, match="cannot be read"):
            await client.get("/x")
        token.write_text("new")
        await client.get("/x")
        assert client.auth.token == "new"


async def test_an_expired_token_is_fetched_again(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    async with Client(Config(server.url, token_file=str(token))) as client:
        token.write_text("new")
        server.answers = [status(401), (200, {"ok": 1})]
        assert json.loads(await client.get("/x")) == {"ok": 1}
        assert client.auth.token == "new"


async def test_errors_say_what_the_server_said(server, client):
    server.answers = [status(403, "Forbidden", "no way")]
    with pytest.raises(ApiError, match="403 Forbidden: no way"):
        await client.get("/x")
    server.answers = [hang]
    with pytest.raises(Unreachable):
        await client.get("/x")


def item(name, version):
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version}}


def page(items, version, token=""):
    return 200, {"metadata": {"resourceVersion": version, "continue": token}, "items": items}


def stream(*events, then=0.0):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for kind, each in events:
            await response.write(json.dumps({"type": kind, "object": each}).encode() + b"\n")
        await asyncio.sleep(then)
        return response

    return answer


async def follow(client, server, until, silence=60.0):
    """Run an informer until it has reported `until` changes; returns (key, version or None) in order."""
    seen = []
    done = asyncio.Event()

    def report(changes):
        seen.extend((change.key, change.view and change.view.metadata.resource_version, change.error) for change in changes)
        if len(seen) >= until:
            done.set()

    informer = Informer(client, "/pods", views.Pod, report, lambda: None, key=lambda metadata: metadata.uid, silence=silence)
    task = asyncio.ensure_future(informer.run())
    await asyncio.wait_for(done.wait(), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return seen, informer


async def test_pages_bookmarks_and_a_restart_where_it_ended(server, client):
    server.answers = [
        page([item("a", "1")], "5", "more"),
        page([item("b", "2")], "5"),
        stream(("ADDED", item("c", "6")), ("BOOKMARK", {"metadata": {"resourceVersion": "9"}})),
        stream(("DELETED", item("a", "10")), then=5),
    ]
    seen, informer = await follow(client, server, 4)
    assert [each[:2] for each in seen] == [("uid-a", "1"), ("uid-b", "2"), ("uid-c", "6"), ("uid-a", None)]
    assert informer.restarts == 1


async def test_410_lists_again_and_reports_the_difference(server, client):
    gone = {"kind": "Status", "code": 410, "reason": "Expired"}
    server.answers = [
        page([item("a", "1"), item("b", "2"), item("c", "3")], "5"),
        stream(("ERROR", gone)),
        page([item("b", "2"), item("c", "8"), item("d", "9")], "10"),
        stream(then=5),
    ]
    seen, informer = await follow(client, server, 6)
    assert [each[:2] for each in seen[3:]] == [("uid-c", "8"), ("uid-d", "9"), ("uid-a", None)]
    assert informer.relists == 1


async def test_a_list_that_expires_midway_begins_again(server, client):
    server.answers = [
        page([item("a", "1")], "5", "more"),
        status(410),
        page([item("a", "1"), item("b", "2")], "6"),
        stream(then=5),
    ]
    seen, _ = await follow(client, server, 2)
    assert [each[0] for each in seen] == ["uid-a", "uid-b"]


async def test_what_went_while_a_list_began_again_is_reported_as_gone(server, client):
    server.answers = [
        page([item("a", "1")], "5", "more"),
        status(410),
        page([item("b", "2")], "6"),
        stream(then=5),
    ]
    seen, informer = await follow(client, server, 3)
    assert [each[:2] for each in seen] == [("uid-a", "1"), ("uid-b", "2"), ("uid-a", None)]
    assert set(informer.known) == {"uid-b"}


async def test_a_silent_watch_is_opened_anew(server, client):
    server.answers = [page([item("a", "1")], "5"), stream(then=5), stream(("ADDED", item("b", "6")), then=5)]
    seen, _ = await follow(client, server, 2, silence=0.3)
    assert seen[-1][0] == "uid-b"


async def test_duplicated_events_are_reported_once(server, client):
    server.answers = [
        page([], "1"),
        stream(("ADDED", item("a", "2")), ("ADDED", item("a", "2")), ("ADDED", item("b", "3")), then=5),
    ]
    seen, _ = await follow(client, server, 2)
    assert [each[0] for each in seen] == ["uid-a", "uid-b"]


async def test_one_unreadable_object_spoils_nothing_else(server, client):
    bad = {**item("bad", "2"), "spec": {"priority": "high"}}
    server.answers = [
        page([bad, item("a", "1")], "5"),
        stream(("MODIFIED", {**bad, "metadata": {**bad["metadata"], "resourceVersion": "6"}}), then=5),
    ]
    seen, _ = await follow(client, server, 3)
    assert [(key, bool(error)) for key, _, error in seen] == [("uid-bad", True), ("uid-a", False), ("uid-bad", True)]


async def test_a_server_that_is_down_is_waited_for(server, client):
    server.answers = [status(503), page([item("a", "1")], "5"), stream(then=5)]
    seen, _ = await follow(client, server, 1)
    assert seen


def test_views_skip_what_they_do_not_know():
    assert msgspec.json.decode(b'{"metadata": {"managedFields": [1]}, "spec": {"x": {}}}', type=views.Pod).spec.node_name == ""


async def test_a_relist_between_two_watches_does_not_swallow_the_end(server, client):
    """Asked to list again while no watch is open, and then to stop: it stops."""
    server.answers = [status(500)] * 50
    informer = Informer(client, "/api/v1/pods", views.Pod, lambda _: None, lambda: None, key=lambda metadata: metadata.uid)
    task = asyncio.ensure_future(informer.run())
    while not server.asked:
        await asyncio.sleep(0)
    informer.relist()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
