"""A whole Fairlead in one process: the simulated API server in real time, scheduler, operator, and an agent for this host.

The API server keeps nothing: when it ends, jobs are gone, and what ran has ended. What they used is in the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import msgspec
import structlog

from fairlead.agent.node import Agent
from fairlead.agent.node import Options as AgentOptions
from fairlead.agent.process import Container
from fairlead.agent.terminal import Terminal
from fairlead.api import crds, names
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.attach import Wanted
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.controllers import Controllers
from fairlead.cluster.simulated.errors import bad_request
from fairlead.cluster.simulated.http import Server
from fairlead.cluster.simulated.kubelet import NOT_READY
from fairlead.cluster.simulated.resources import NODES
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.operator.app import Operator
from fairlead.operator.app import Options as OperatorOptions
from fairlead.scheduler.app import Scheduler
from fairlead.scheduler.options import Options

log = structlog.get_logger("local")

PRIORITIES = {"high-priority": 1_000_000, "medium-priority": 100_000, "low-priority": 10_000}


class Attached:
    """A client at a terminal of the agent's. beside: a container begun for it; running: the container's life."""

    def __init__(self, terminal: Terminal, beside: Container | None = None, running: asyncio.Future[int] | None = None) -> None:
        self._terminal = terminal
        self._beside = beside
        self._running = running

    async def output(self) -> AsyncIterator[bytes]:
        """What it prints, until its end."""
        with self._terminal.listening() as queue:
            while data := await queue.get():
                yield data

    async def write(self, data: bytes) -> None:
        """What is typed."""
        await self._terminal.write(data)

    def end_input(self) -> None:
        """Nothing more is typed."""
        self._terminal.end_input()

    def resize(self, rows: int, columns: int) -> None:
        """The size of the window."""
        self._terminal.resize(rows, columns)

    async def ended(self) -> int:
        """The exit code of what was begun for this session."""
        return await self._running if self._running is not None else 0

    def leave(self) -> None:
        """The client has left: what was begun for it ends."""
        if self._beside is not None:
            self._beside.kill()


class Local:
    """Use as a context. directory: where jobs without one of their own work; history: URL of the database for what they used."""

    def __init__(self, agent: AgentOptions, *, port: int = 0, directory: Path | None = None, history: str = "") -> None:
        loop = asyncio.get_running_loop()
        names.share_by({*names.SHARING_AGENTS, names.OWN_AGENT})  # whatever the configuration lists, its agent shares
        # The history distinguishes jobs of different lives by their UIDs.
        self.api = ApiServer(Clock(start=time.time(), loop=loop), seed=secrets.randbits(64), history=10_000)
        self.wire = Wire(self.api)
        self.server = Server(self.wire, port=port)
        self._controllers = Controllers(self.api)
        self._agent_options = agent
        self._directory = directory
        self._history = history
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for definition in crds.definitions():
            self.api.create(self.api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", definition)
        for name, value in PRIORITIES.items():
            self.api.create(
                self.api.served("scheduling.k8s.io/v1", "priorityclasses"), "", {"metadata": {"name": name}, "value": value}
            )
        if self._directory is not None:
            profile = {"image": "none", "workingDir": str(self._directory)}
            made = {"metadata": {"name": "fairlead-submit"}, "data": profile}
            self.api.create(self.api.served("v1", "configmaps"), "default", made)
        await self._stack.enter_async_context(self.server)
        self.agent = Agent(await self._client(), self._agent_options)
        self.scheduler = Scheduler(await self._client(), Options(leader_elect=False, address=""))
        self.operator = Operator(await self._client(), OperatorOptions(leader_elect=False, address="", history=self._history))
        self.api.logs = self._log
        self.api.attach = self._attach
        self.api.store.listen(NODES, self._node_changed)
        self._tasks = [asyncio.create_task(each.run()) for each in (self.agent, self.scheduler, self.operator)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.scheduler.stop()
        self.operator.stop()
        self._tasks[0].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def failed(self) -> None:
        """Return when one of its parts has ended by itself."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _client(self) -> Client:
        client = Client(Config("http://local"), transport=SimulatedTransport(self.wire), clock=time.time)
        return await self._stack.enter_async_context(client)

    def _node_changed(self, change: Change) -> None:
        """The node lifecycle controller's part: a node that is Ready is open, one that is not is closed."""
        node = change.record.object
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions") or ())
        others = [each for each in node["spec"].get("taints") or () if each["key"] != NOT_READY]
        wanted = others if ready else [*others, {"key": NOT_READY, "effect": "NoSchedule"}]
        if change.kind != "DELETED" and (node["spec"].get("taints") or []) != wanted:
            spec = {**node["spec"], "taints": wanted}
            self.api.clock.call_later(0.0, lambda: self._close_or_open(change.key, spec))

    def _close_or_open(self, key: Key, spec: Object) -> None:
        record = self.api.store.get(NODES, key)
        if record is not None:
            node = record.object
            self.api.store.put(NODES, key, {**node, "metadata": dict(node["metadata"]), "spec": spec})

    async def _attach(self, wanted: Wanted) -> Attached:
        container = self.agent.container_of(wanted.pod["metadata"]["uid"], wanted.container)
        if container is None:
            raise bad_request(f"container {wanted.container} does not run")
        if wanted.command is not None:
            recipe = msgspec.structs.replace(container.recipe, command=wanted.command, tty=wanted.tty, stdin=True)
            terminal = Terminal(None, tty=wanted.tty)
            beside = Container(recipe, None, terminal)
            return Attached(terminal, beside, asyncio.ensure_future(beside.run()))
        if container.terminal is None:
            raise bad_request(f"container {wanted.container} has neither stdin nor tty: its output is in its logs")
        return Attached(container.terminal)

    def _log(self, pod: dict[str, Any], container: str) -> str:
        metadata = pod["metadata"]
        try:
            return self.agent.log_of(metadata["namespace"], metadata["uid"], container).read_text(errors="replace")
        except OSError:
            return ""
