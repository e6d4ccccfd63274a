"""What a process answers to probes."""

import socket

import aiohttp
import pytest

from fairlead.observability.endpoints import CannotServeError, served
from testbed.controlplane import free_port


def free():
    return f"127.0.0.1:{free_port()}"


async def metrics():
    return b"# none"


async def test_a_standby_is_not_ready_to_decide_but_to_take_over():
    address, wrong = free(), {"health": "", "ready": "another leads", "standby": ""}
    probes = [lambda name=name: wrong[name] for name in wrong]
    async with served(address, metrics, *probes), aiohttp.ClientSession() as session:

        async def ask(path):
            async with session.get(f"http://{address}{path}") as reply:
                return reply.status, await reply.text()

        assert await ask("/metrics") == (200, "# none")
        assert await ask("/healthz") == (200, "ok")
        assert await ask("/readyz") == (503, "another leads")
        assert await ask("/standbyz") == (200, "ok")
        wrong["standby"] = "no answer"
        assert await ask("/standbyz") == (503, "no answer")


async def test_an_address_in_use_is_reported():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotServeError, match="cannot serve on"):
            async with served(f"127.0.0.1:{taken.getsockname()[1]}", metrics, str, str, str):
                pass
