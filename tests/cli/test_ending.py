"""Processes of ours end with their terminal, on SIGHUP, SIGTERM and SIGINT, and leave nothing behind."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.waiting import until

LIMIT = 60.0
FAIRLEAD = [sys.executable, "-m", "fairlead"]
# As `make` and tmux do: the leader of the session gets the kernel's SIGHUP, and waits for a child that got none.
LEADER = "import signal, subprocess, sys; signal.signal(1, lambda *_: None); sys.exit(subprocess.call(sys.argv[1:]))"
ENV = {**os.environ, "TERM": "xterm-256color", "LINES": "40", "COLUMNS": "120"}


def asked(kind, out):
    return {
        "demo": [*FAIRLEAD, "demo", "--nodes", "12", "--jobs", "400", "--kubeconfig-out", str(out)],
        "local": [*FAIRLEAD, "local", "--gpus", "1", "--kubeconfig", str(out), "--history", f"sqlite:///{out}.db"],
    }[kind]


@contextlib.contextmanager
def started(kind, out, stdout):
    """Signals do what they do by default, also where the tests run in the background or under nohup."""
    command = ["env", "--default-signal=INT,HUP", *asked(kind, out)]
    with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=ENV) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process):
    """The output of a process that ended well."""
    status = process.wait(LIMIT)
    told = process.stderr.read().decode()
    assert status == 0, told
    return told


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize("kind", ["demo", "local"])
def test_a_terminal_that_closes_ends_what_ran_in_it_though_no_signal_comes(kind, tmp_path):
    out = tmp_path / "kubeconfig"
    leader, terminal = pty.fork()
    if leader == 0:
        os.execve(sys.executable, [sys.executable, "-c", LEADER, *asked(kind, out)], ENV)
    try:
        seen = b""
        while (b"export KUBECONFIG" if kind == "local" else "█".encode()) not in seen:
            seen += os.read(terminal, 65_536)
        [child] = children(leader)
        os.close(terminal)
        until(lambda: gone(child))
        assert os.waitstatus_to_exitcode(os.waitpid(leader, 0)[1]) == 0
    except BaseException:
        for each in [*children(leader), leader]:
            os.kill(each, signal.SIGKILL)
        raise
    assert not out.exists(), "the kubeconfig leads nowhere once it has ended"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["demo", "local"])
def test_signals_end_it_in_good_order(kind, number, tmp_path):
    out = tmp_path / "kubeconfig"
    with started(kind, out, subprocess.DEVNULL) as process:
        until(out.exists)
        process.send_signal(number)
        told = ended(process)
    assert "Traceback" not in told
    assert not out.exists()


@pytest.mark.parametrize("kind", ["demo", "local"])
def test_a_reader_that_goes_ends_it(kind, tmp_path):
    out = tmp_path / "kubeconfig"
    with started(kind, out, subprocess.PIPE) as process:
        until(out.exists)
        process.stdout.close()
        told = ended(process)
    assert "Traceback" not in told
    assert not out.exists()


def test_what_was_started_with_nohup_does_not_end_with_its_terminal(tmp_path):
    out = tmp_path / "kubeconfig"
    with subprocess.Popen(["env", "--ignore-signal=HUP", *asked("local", out)], stdout=subprocess.DEVNULL, env=ENV) as process:
        until(out.exists)
        ignored = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("SigIgn"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert int(ignored.split()[1], 16) & 1


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_command_that_calculates_cleans_up_and_says_which_signal_ended_it(number, tmp_path):
    """`bench replay` keeps its log in a folder of its own, which must not outlive it."""
    command = ["env", "--default-signal=HUP", *FAIRLEAD, "bench", "replay", "--hours", "240"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env={**ENV, "TMPDIR": str(tmp_path)}) as process:
        until(lambda: list(tmp_path.glob("fairlead-*/*")))
        process.send_signal(number)
        told = threading.Thread(target=process.stderr.read)
        told.start()
        assert process.wait(LIMIT) == 128 + number
        told.join()
    assert not list(tmp_path.iterdir())


def ignores_interrupts(pid):
    (mask,) = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn")]
    return bool(int(mask, 16) & 1 << signal.SIGINT - 1)


def test_several_processes_end_without_a_traceback():
    """Those that share out the seeds are ended once all are done; Ctrl-C reaches all of them."""
    command = [*FAIRLEAD, "simulate", "faults", "--seeds", "1-2", "--workers", "2", "--nodes", "10", "--jobs", "3", "--hours"]
    done = subprocess.run([*command, "0.5", "-o", "json"], capture_output=True, text=True, timeout=2 * LIMIT, check=True)
    assert json.loads(done.stdout)["clean"] == 2
    assert "Traceback" not in done.stderr
    command = ["env", "--default-signal=INT", *command]
    with subprocess.Popen(
        [*command, "240"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            until(lambda: len(children(process.pid)) == 2 and all(map(ignores_interrupts, children(process.pid))))
            os.killpg(process.pid, signal.SIGINT)
            told = process.communicate(timeout=LIMIT)[1].decode()
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in told
