"""`fairlead run` against a whole Fairlead with real processes: output, exit codes, sessions at a terminal, and kubectl's attach and exec."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest

from fairlead.agent.node import Options
from fairlead.agent.process import Container
from fairlead.agent.recipe import Recipe
from fairlead.agent.terminal import Terminal
from fairlead.simulation.local import Local

LIMIT = 60.0


@pytest.fixture
async def local(tmp_path):
    options = Options(gpus=2, cpus=16, memory=16 << 30, folder=tmp_path / "agent", name="here")
    async with Local(options) as running:
        yield User(running, running.server.write_kubeconfig(tmp_path / "kubeconfig"))


class User:
    """A user at a shell."""

    def __init__(self, running, kubeconfig):
        self.api = running.api
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "200"}

    def jobs(self):
        return {record.object["metadata"]["name"]: record.object for _, record in self.api.store.records("fairlead.dev/aijobs")}

    def phase(self, name):
        return (self.jobs().get(name, {}).get("status") or {}).get("phase")

    async def run(self, *arguments, typed=b"", program=(sys.executable, "-m", "fairlead", "run", "--image", "none")):
        """Exit code, stdout, stderr."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*program, *arguments, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate(typed)
        return process.returncode, out.decode(), err.decode()

    async def until(self, what):
        async with asyncio.timeout(LIMIT):
            while not (found := what()):
                await asyncio.sleep(0.02)
            return found


class Window:
    """A terminal with `fairlead run` in it."""

    def __init__(self, user, *arguments, rows=33, columns=77):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        command = [sys.executable, "-m", "fairlead", "run", "--image", "none", *arguments]
        self.process = subprocess.Popen(
            command, env=user.env, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text):
        os.write(self.ours, text.encode())

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def shows(self, text):
        os.set_blocking(self.ours, False)
        with contextlib.suppress(OSError):
            self.seen += os.read(self.ours, 1 << 16).decode(errors="replace")
        return text in self.seen

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def window(local):
    made = []

    def opened(*arguments, **more):
        made.append(Window(local, *arguments, **more))
        return made[-1]

    yield opened
    for each in made:
        each.close()


async def test_a_command_prints_here_and_its_exit_code_is_ours(local):
    code, out, err = await local.run("--", "sh", "-c", "echo hello; exit 3")
    assert (code, out) == (3, "hello\n")
    assert "is submitted" in err
    (job,) = local.jobs().values()
    assert (job["spec"]["workloadType"], job["spec"]["ttlAfterFinished"]) == ("Interactive", "1h")
    code, out, _ = await local.run("-N", "2", "--name", "two", "--", "sh", "-c", "echo member $RANK")
    assert (code, out) == (0, "two-worker-0-0 | member 0\ntwo-worker-1-0 | member 1\n")


async def test_what_is_piped_in_goes_on_to_it(local):
    code, out, _ = await local.run("-i", "--", "sh", typed=b"echo $((6*7))\nexit 4\n")
    assert (code, out) == (4, "42\n")
    code, out, _ = await local.run("-i", "--", "cat", typed=b"to the end")
    assert (code, out) == (0, "to the end"), "its input ends, too"


async def test_a_session_at_a_terminal(local, window):
    shown = window("--pty", "--name", "session", "--", "sh")
    await local.until(lambda: shown.shows("$ ") or shown.shows("# "))
    shown.type("stty size; tty; echo job $FAIRLEAD_JOB\n")
    await local.until(lambda: shown.shows("33 77") and shown.shows("/dev/pts/") and shown.shows("job session"))
    shown.resize(20, 60)
    await asyncio.sleep(0.2)
    shown.type("stty size\n")
    await local.until(lambda: shown.shows("20 60"))
    shown.type("sleep 1000\n")
    await asyncio.sleep(0.2)
    shown.type("\x03")  # Ctrl-C ends what runs in it, not the session
    shown.type("echo alive\n")
    await local.until(lambda: shown.seen.count("alive") == 2 or (shown.shows("") and shown.seen.count("alive") == 2))
    assert local.jobs()["session"]["metadata"]["annotations"]["fairlead.dev/last-activity"]
    shown.type("exit 5\n")
    assert await asyncio.to_thread(shown.process.wait, LIMIT) == 5
    await local.until(lambda: local.phase("session") == "Failed")


async def test_ctrl_c_ends_the_job(local, window):
    shown = window("--name", "long", "--", "sh", "-c", "echo begun; sleep 1000")
    await local.until(lambda: shown.shows("begun"))
    shown.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(shown.process.wait, LIMIT) == 130
    await local.until(lambda: "long" not in local.jobs())


async def test_a_job_that_waits_says_why_and_goes_when_its_user_does(local):
    command = [sys.executable, "-m", "fairlead", "run", "--image", "none", "--name", "big", "--gpus", "9", "--", "true"]
    process = await asyncio.create_subprocess_exec(*command, env=local.env, stderr=asyncio.subprocess.PIPE)
    told = ""
    async with asyncio.timeout(LIMIT):
        while "Insufficient nvidia.com/gpu" not in told:
            told += (await process.stderr.readline()).decode()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(LIMIT):
        told = (await process.stderr.read()).decode()
        assert await process.wait() == 143
    assert "ending big" in told
    assert "Traceback" not in told
    assert "big" not in local.jobs()
    command[-4:-2] = ["--queue", "nowhere"]
    process = await asyncio.create_subprocess_exec(*command, env=local.env, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(LIMIT):
        while "nowhere" not in (await process.stderr.readline()).decode():
            pass
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(LIMIT):
        assert await process.wait() == 130


async def test_kubectl_attaches_and_executes(local, window):
    shown = window("--pty", "--name", "s", "--", "sh", "-c", "read line; echo got $line; sleep 1000")
    await local.until(lambda: local.phase("s") == "Running")
    kubectl = ("kubectl",)
    code, out, err = await local.run("exec", "s-worker-0-0", "--", "sh", "-c", "echo in $FAIRLEAD_JOB; exit 6", program=kubectl)
    assert (code, out) == (6, "in s\n"), err
    code, out, _ = await local.run("exec", "-i", "s-worker-0-0", "--", "cat", typed=b"through", program=kubectl)
    assert (code, out) == (0, "through")
    attached = await asyncio.create_subprocess_exec(
        *kubectl, "attach", "-i", "s-worker-0-0", env=local.env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    attached.stdin.write(b"words\n")
    async with asyncio.timeout(LIMIT):
        while b"got words" not in await attached.stdout.readline():
            pass
    attached.kill()
    await attached.wait()
    await local.until(lambda: shown.shows("got words"))


async def test_what_cannot_be_attached_to(local):
    code, _, _ = await local.run("--name", "plain", "--", "true")
    assert code == 0
    for arguments, said in (
        (("exec", "plain-worker-0-0", "--", "true"), "completed pod"),
        (("exec", "nobody", "--", "true"), "not found"),
        (("attach", "plain-worker-0-0"), ""),
    ):
        code, _, err = await local.run(*arguments, program=("kubectl",))
        assert code != 0
        assert said in err
    code, _, err = await local.run("-i", "-N", "2", "--", "true")
    assert (code, "a single member" in err) == (2, True)
    code, _, err = await local.run("--name", "No Name", "--", "true")
    assert (code, "is not a job name" in err) == (2, True)


async def test_a_client_that_does_not_read_is_disconnected_and_delays_no_other(tmp_path):
    recipe = Recipe(["sh", "-c", "yes | head -c 40000000; echo end"], {"PATH": os.environ["PATH"]}, tmp_path, stdin=True)
    terminal = Terminal(tmp_path / "log", tty=False)
    container = Container(recipe, tmp_path / "log", terminal)
    with terminal.listening() as queue:
        async with asyncio.timeout(LIMIT):
            assert await container.run() == 0
        pieces = [queue.get_nowait() for _ in range(queue.qsize())]
    assert pieces[-1] == b""
    assert sum(map(len, pieces)) < 40_000_000
    assert (tmp_path / "log").stat().st_size == 40_000_004
    with terminal.listening() as late:
        assert late.get_nowait().endswith(b"end\n")
        assert late.get_nowait() == b""
