"""What a loop reports outside of any task is one JSON line, and what the end of a connection makes is none."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio
import sys
import uvloop
from fairlead.observability.logs import configure, log_loop_errors

async def process():
    log_loop_errors()
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    if sys.argv[1] == "closed":
        writer.close()
    transport = None if sys.argv[1] == "lost" else writer.transport
    told = " on <TCPTransport closed=True reading=False 0x0>" if sys.argv[1] == "ended" else ""
    error = RuntimeError(f"unable to perform operation{told}; the handler is closed")
    loop.call_exception_handler({"message": "Fatal error", "exception": error, "transport": transport})
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

configure("info")
(uvloop.run if sys.argv[2] == "uvloop" else asyncio.run)(process())
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("state", ["open", "closed", "lost", "ended"])
def test_errors_outside_of_tasks_are_logged_unless_the_connection_had_ended(loop, state):
    done = subprocess.run([sys.executable, "-c", SCRIPT, state, loop], capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["event"] for line in found} == {"error outside of a task"}
    assert {line["level"] for line in found} == {"error"}
    causes = [line["exception"].splitlines()[-1] for line in found]
    assert causes[-1] == "ZeroDivisionError: division by zero"
    assert causes[:-1] == (["RuntimeError: unable to perform operation; the handler is closed"] if state == "open" else [])
