"""Scheduler, operator and agent behind a real TCP connection that goes silent, is cut, or ends in the midst of an answer."""

import asyncio
import contextlib
import logging
import random
import sys
import time

import pytest
import structlog
import uvloop

from fairlead.agent import node
from fairlead.agent.node import Agent
from fairlead.agent.node import Options as AgentOptions
from fairlead.api import crds
from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.kubernetes.config import Config, load
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.controllers import Controllers
from fairlead.cluster.simulated.faults import Fault, FaultPlan
from fairlead.cluster.simulated.http import Server
from fairlead.cluster.simulated.resources import NODES
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.operator.app import Operator
from fairlead.operator.app import Options as OperatorOptions
from fairlead.scheduler.app import Scheduler
from fairlead.scheduler.options import Options
from fairlead.simulation.local import Local

ANSWER = 0.5  # seconds that a client waits
TROUBLE = 2.0
MODES = ("silent", "cut", "half")


class Proxy:
    """Forwards bytes to a port. silent: holds them back; cut: no connection lasts; half: ends each within its next answer."""

    def __init__(self, port):
        self.port = port
        self.mode = "pass"
        self._passing = asyncio.Event()
        self._passing.set()
        self._open = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.at = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.turn("cut")
        self._server.close()

    def turn(self, mode):
        self.mode = mode
        (self._passing.clear if mode == "silent" else self._passing.set)()
        if mode == "cut":
            for each in list(self._open):
                each.transport.abort()

    async def _accept(self, reader, writer):
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self.mode == "cut":
                writer.transport.abort()
                return
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            self._open.add(back)
            await asyncio.gather(self._forward(reader, back, answers=False), self._forward(there, writer, answers=True))
        self._open.discard(writer)

    async def _forward(self, source, target, *, answers):
        try:
            while data := await source.read(1 << 16):
                await self._passing.wait()
                if answers and self.mode == "half":
                    target.write(data[: len(data) // 2])
                    await target.drain()
                    target.transport.abort()
                    return
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.transport.abort()


class Story:
    """An API server, the proxy before it, and the three behind."""

    _node_changed, _close_or_open = Local._node_changed, Local._close_or_open

    def __init__(self, folder, stack, **lease):
        self.folder, self.stack, self.lease = folder, stack, lease
        self.errors = []
        self.running = {}

    async def start(self, mode="pass"):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.api = ApiServer(Clock(start=time.time(), loop=loop), seed=1, history=10_000)
        self.controllers = Controllers(self.api)
        self.api.store.listen(NODES, self._node_changed)
        for definition in crds.definitions():
            self.api.create(self.api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", definition)
        server = await self.stack.enter_async_context(Server(Wire(self.api)))
        self.proxy = await self.stack.enter_async_context(Proxy(server.port))
        self.proxy.turn(mode)
        server.port = self.proxy.at
        path = server.write_kubeconfig(self.folder / "kubeconfig")
        elect = bool(self.lease)
        self.scheduler = Scheduler(await self.client(path), Options(address="", leader_elect=elect, **self.lease))
        self.operator = Operator(await self.client(path), OperatorOptions(address="", leader_elect=elect, **self.lease))
        options = AgentOptions(name="here", gpus=8, cpus=64, memory=64 << 30, folder=self.folder / "agent")
        self.agent = Agent(await self.client(path), options)
        for part in (self.scheduler, self.operator, self.agent):
            self.running[part] = asyncio.create_task(part.run())

    async def client(self, path):
        return await self.stack.enter_async_context(Client(load(str(path)), timeout=ANSWER))

    def job(self, name):
        gpu = {"nvidia.com/gpu": "1"}
        container = {"name": "main", "image": "none", "command": [sys.executable, "-c", "0"], "resources": {"limits": gpu}}
        container["resources"]["requests"] = gpu
        container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
        spec = {"roles": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}]}
        settings = {"metadata": {"name": "settings"}, "data": {"A": "1"}}
        with contextlib.suppress(Exception):
            self.api.create(self.api.served("v1", "configmaps"), "default", settings)
        made = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "metadata": {"name": name}, "spec": spec}
        self.api.create(self.api.served("fairlead.dev/v1alpha1", "aijobs"), "default", made)

    def phases(self):
        records = self.api.store.records("fairlead.dev/aijobs")
        return {key[1]: (record.object.get("status") or {}).get("phase") for key, record in records}

    async def caught_up(self):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(40.0):
                while set(self.phases().values()) != {"Succeeded"}:
                    await asyncio.sleep(0.05)
        assert set(self.phases().values()) == {"Succeeded"}, self.phases()

    async def end(self):
        self.scheduler.stop()
        self.operator.stop()
        self.running[self.agent].cancel()
        async with asyncio.timeout(30.0):
            ended = await asyncio.gather(*self.running.values(), return_exceptions=True)
        assert ended[:2] == [None, None]
        assert isinstance(ended[2], asyncio.CancelledError)


def tell(tmp_path, story, *, seed, **lease):
    async def run():
        async with contextlib.AsyncExitStack() as stack:
            each = Story(tmp_path, stack, **lease)
            each.random = random.Random(seed)
            await story(each)
        assert each.errors == []
        assert each.operator.faults.counts == {}

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))  # other tests silence it
    with structlog.testing.capture_logs() as logs, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run())
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert [line for line in logs if line.get("exc_info")] == []
    return logs


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_that_fails_at_any_time_ends_nothing(tmp_path, mode):
    async def story(each):
        await each.start(each.random.choice(["pass", mode]))
        each.job("early")
        await asyncio.sleep(each.random.uniform(0.0, 1.5))
        each.proxy.turn(mode)
        each.job("during")
        await asyncio.sleep(TROUBLE)
        assert not any(task.done() for task in each.running.values())
        each.proxy.turn("pass")
        each.job("after")
        await each.caught_up()
        each.job("last")
        await asyncio.sleep(each.random.uniform(0.0, 1.0))
        each.proxy.turn(mode)
        await asyncio.sleep(each.random.uniform(0.0, 1.0))
        await each.end()

    tell(tmp_path, story, seed=mode)


@pytest.mark.parametrize("mode", MODES)
def test_leaders_behind_it_lose_their_leases_and_end(tmp_path, mode):
    async def story(each):
        await each.start()
        each.job("early")
        await each.caught_up()
        each.proxy.turn(mode)
        async with asyncio.timeout(20.0):
            await asyncio.gather(each.running[each.scheduler], each.running[each.operator])
        assert each.scheduler.failed
        assert each.operator.failed
        assert not each.running[each.agent].done()
        await each.end()

    logs = tell(tmp_path, story, seed=mode, lease_duration=3.0, lease_renew=1.5, lease_retry=0.3)
    assert len([line for line in logs if line["event"] == "the lease was lost"]) == 2


def refused(fault, monkeypatch, grace):
    """What an agent ends with that is refused from its start on."""
    monkeypatch.setattr(node, "REFUSAL_GRACE", grace)

    async def run():
        plan = FaultPlan(1)
        plan.starting = fault
        api = ApiServer(Clock(start=1e9, loop=asyncio.get_running_loop()), seed=1)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(Wire(api), plan)) as client:
            agent = asyncio.create_task(Agent(client, AgentOptions(name="here", gpus=0)).run())
            await asyncio.sleep(0.3)
            assert not agent.done()
            await asyncio.wait({agent}, timeout=grace + 0.5)
            if agent.done():
                return agent.exception()
            plan.starting = None
            async with asyncio.timeout(20.0):
                while api.store.get("nodes", ("", "here")) is None:
                    await asyncio.sleep(0.05)
            agent.cancel()
            await asyncio.gather(agent, return_exceptions=True)
            return None

    return asyncio.run(run())


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.UNAUTHORIZED])
def test_an_agent_that_is_refused_for_good_ends_and_says_why(fault, monkeypatch):
    error = refused(fault, monkeypatch, 0.6)
    assert isinstance(error, ApiError)
    assert error.code in (401, 403)


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.INTERNAL, Fault.REFUSED])
def test_an_agent_registers_when_it_can(fault, monkeypatch):
    assert refused(fault, monkeypatch, 0.6) is None
