"""`fairlead whatif` for a user who may not list the cluster: the leader answers, and every refusal says what to do."""

import asyncio
import json
import sys
import threading
import time

import pytest
import yaml
from aiohttp import web
from typer.testing import CliRunner

from fairlead.api import names
from fairlead.cli.main import app
from fairlead.cluster.kubernetes.config import load
from fairlead.core.model.policy import Policy
from fairlead.scheduler.player import MEMORY, Asked, Player, Setting
from testbed import objects
from tests.cli.test_cluster_commands import Box

LIMIT = 30.0


class Gate(threading.Thread):
    """An API server for a user of one namespace: no list is answered, what-if questions are the leader's.

    refusal: (code, message) of all questions instead; behind: the kubeconfig of the cluster that is played, in so much memory.
    """

    def __init__(self, folder, behind=None, memory=MEMORY):
        super().__init__(daemon=True)
        self._memory = memory
        self.kubeconfig = folder / "user.yaml"
        self.refusal = None
        self.asked = []
        self._behind = behind
        self._ready = threading.Event()

    def run(self):
        asyncio.run(self._main())

    async def _main(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._player = None
        if self._behind is not None:
            setting = Setting(
                config=load(str(self._behind)),
                policy=Policy(),
                schedulers=dict(names.DEFAULT_SCHEDULERS),
                sharing_agents=[],
                memory=self._memory,
            )
            self._player = Player((sys.executable, "-m", "fairlead.simulation.answering"), setting, time.monotonic)
        application = web.Application()
        application.router.add_post(f"{names.VISIBILITY}/namespaces/{{namespace}}/whatifs", self._what_if)
        application.router.add_route("*", "/{path:.*}", self._refuse)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        context = {"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "vision"}}
        config = {
            "current-context": "x",
            "contexts": [context],
            "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self._ready.set()
        await self._over.wait()
        if self._player is not None:
            await self._player.close()
        await runner.cleanup()

    @staticmethod
    async def _refuse(_):
        return status(403, "pods is forbidden: you may not list them")

    async def _what_if(self, request):
        namespace = request.match_info["namespace"]
        body = await request.read()
        self.asked.append((namespace, json.loads(body)["spec"]))
        if self.refusal is not None:
            return status(*self.refusal)
        played = await self._player.play(Asked(namespace, "ann", body))
        if played.outcome:
            return web.json_response({"status": json.loads(played.outcome)})
        return status(played.code, played.message)

    def __enter__(self):
        self.start()
        assert self._ready.wait(LIMIT)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(LIMIT)

    def what_if(self, *arguments):
        return CliRunner().invoke(app, ["whatif", "--kubeconfig", str(self.kubeconfig), *map(str, arguments)])


def status(code, message):
    return web.json_response({"kind": "Status", "code": code, "reason": "Because", "message": message}, status=code)


@pytest.fixture
def gate(tmp_path):
    with Gate(tmp_path) as made:
        yield made


def manifest(folder, *manifests):
    path = folder / f"{len([*folder.iterdir()])}.yaml"
    path.write_text("---\n".join(json.dumps(each) + "\n" for each in manifests))
    return path


def test_the_leader_answers_as_the_lists_would(tmp_path):
    with Box(tmp_path, scheduler=False, nodes=2) as box, Gate(tmp_path, box.kubeconfig) as gate:
        box.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "secret"}})
        box.create(objects.pod("theirs", gpus=1, nodeName="node-0000"), namespace="secret")
        box.create(objects.pod("mine", gpus=1))
        train = manifest(tmp_path, objects.ai_job("train", workers=2, gpus=1), objects.job("sweep", pods=2))
        arguments = ["-f", train, "-n", "vision", "--add-nodes", "1", "-o", "json"]
        by_lists = CliRunner().invoke(app, ["whatif", "--kubeconfig", str(box.kubeconfig), *map(str, arguments)])
        answered = gate.what_if(*arguments)
        assert by_lists.exit_code == answered.exit_code == 0, answered.output
        expected, found = json.loads(by_lists.output), json.loads(answered.output)
        assert found == expected
        assert found["starts"] == ["vision/sweep-0", "vision/sweep-1", "vision/train"]
        assert set(found) == {"before", "after", "starts", "delayed", "evicted", "others"}
        assert "secret" not in answered.output
        table = gate.what_if("-f", train)
        assert (table.exit_code, "vision/train" in table.output) == (0, True), table.output
        refused = gate.what_if("-f", manifest(tmp_path, objects.queue("mine", quota=9)))
        assert (refused.exit_code, "--quota" in refused.output) == (3, True), refused.output
        wrong = gate.what_if("--drain", "nowhere")
        assert (wrong.exit_code, "node 'nowhere' does not exist" in wrong.output) == (2, True), wrong.output


def test_without_memory_there_is_no_answer_but_a_reason(tmp_path):
    with Box(tmp_path, scheduler=False, nodes=2) as box, Gate(tmp_path, box.kubeconfig, memory=16 << 20) as gate:
        done = gate.what_if("-f", manifest(tmp_path, objects.job("large", pods=2000)))
        assert (done.exit_code, "the leader does not answer" in done.output) == (5, True), done.output


def test_a_question_is_asked_in_the_namespace_of_its_manifests(gate, tmp_path):
    gate.refusal = (422, "not now")
    there = {**objects.pod("p"), "metadata": {"name": "p", "namespace": "there"}}
    elsewhere = {**objects.pod("q"), "metadata": {"name": "q", "namespace": "elsewhere"}}
    for given, expected in (
        ([], "vision"),
        (["-f", manifest(tmp_path, objects.pod("p"))], "vision"),
        (["-f", manifest(tmp_path, there)], "there"),
        (["-f", manifest(tmp_path, there), "-n", "mine"], "mine"),
        (["-f", manifest(tmp_path, there, elsewhere)], "vision"),
        (["-f", manifest(tmp_path, there, objects.pod("p"))], "vision"),
    ):
        assert gate.what_if(*given).exit_code == 2
        assert gate.asked.pop()[0] == expected
    gate.what_if("--quota", "vision:cpu=4", "--limit", "a:cpu=5", "--drain", "n1", "--drain", "n2", "--add-nodes", "3")
    assert gate.asked.pop()[1] == {
        "manifests": [],
        "quota": ["vision:cpu=4"],
        "limit": ["a:cpu=5"],
        "addNodes": "3",
        "drain": ["n1", "n2"],
    }


@pytest.mark.parametrize(
    ("refusal", "code", "told"),
    [
        ((404, "the server could not find the requested resource"), 3, "visibility.fairlead.dev is not installed"),
        ((405, "this API can only be read"), 3, "of an earlier version"),
        ((503, "service unavailable"), 5, "the leader does not answer: service unavailable"),
        ((403, 'User "ann" cannot create resource "whatifs"'), 3, "as of a namespace in which you may `view`, with --namespace"),
        ((403, "a manifest of kind 'Queue' is not answered"), 3, "a manifest of kind 'Queue' is not answered"),
        ((413, "the request is larger than 1 MiB: ask about less at a time"), 2, "ask about less"),
        ((422, "the question cannot be read"), 2, "cannot be read"),
        ((429, "as many as each may; ask again in 5 s"), 1, "ask again in 5 s"),
        ((504, "not played to its end in time"), 1, "in time"),
        ((500, "the scheduler's log has the traceback"), 1, "traceback"),
    ],
)
def test_what_is_not_answered_says_why_and_what_to_do(gate, refusal, code, told):
    gate.refusal = refusal
    done = gate.what_if("--add-nodes", "1")
    assert (done.exit_code, told in " ".join(done.output.split())) == (code, True), done.output
    assert len(gate.asked) == 1, "asked once"


@pytest.mark.parametrize("flag", ["--save", "--new-config"])
def test_what_needs_the_whole_cluster_says_so(gate, tmp_path, flag):
    path = tmp_path / "file"
    path.write_text("apiVersion: config.fairlead.dev/v1alpha1\nkind: SchedulerConfiguration\n")
    done = gate.what_if(flag, path)
    assert (done.exit_code, f"{flag} needs the right to list the cluster" in done.output) == (3, True), done.output
    assert not gate.asked


def test_what_is_no_question_is_refused_before_anything_is_asked(gate, tmp_path):
    deep = tmp_path / "deep.yaml"
    deep.write_text("[" * 50_000)
    for wrong in (["--quota", "vision"], ["--limit", "a=b"], ["--add-nodes", "many"], ["-f", tmp_path], ["-f", deep]):
        done = gate.what_if(*wrong)
        assert done.exit_code == 2, done.output
    assert not gate.asked
    itself = tmp_path / "itself.yaml"
    itself.write_text("kind: Pod\nmetadata: &a {name: p, labels: *a}\n")
    assert gate.what_if("-f", itself).exit_code == 2
