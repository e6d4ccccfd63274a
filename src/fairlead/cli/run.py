"""`fairlead run`: a command as a job of its own, with its output here; with -it, a session at its terminal, as `srun --pty`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.api import names
from fairlead.cli import connection
from fairlead.cli.connection import KubeconfigOption
from fairlead.cli.logs import exit_codes, print_log
from fairlead.cli.output import Exit, fail
from fairlead.cli.submit import (
    ClassOption,
    CpusOption,
    EnvOption,
    GpusOption,
    ImageOption,
    MemOption,
    NodesOption,
    QueueOption,
    as_given,
    ended,
    profile_of,
)

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.attach import Attached
    from fairlead.cluster.kubernetes.client import Client

_POLL_INTERVAL = 0.3  # seconds between two reads of the pods
_ASK = 2.0  # seconds between two questions why it waits
_ACTIVE = 60.0  # seconds between two notes that the user is active
_KEPT = "1h"  # how long the job's object stays after its end
_MERGE = "application/merge-patch+json"


def run(
    command: Annotated[list[str], typer.Argument(metavar="[--] COMMAND...", help="The command.")],
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Forward standard input to the command.")] = False,
    terminal: Annotated[
        bool, typer.Option("--tty", "-t", help="Allocate a terminal; with -i (-it) an interactive session.")
    ] = False,
    pty: Annotated[bool, typer.Option("--pty", help="As in srun; same as -it.")] = False,
    name: Annotated[str, typer.Option("--name", "-J", help="Name of the job.", show_default="run- and random letters")] = "",
    queue: QueueOption = "",
    service_class: ClassOption = "",
    nodes: NodesOption = "",
    gpus: GpusOption = "",
    cpus: CpusOption = "",
    mem: MemOption = "",
    limit: Annotated[str, typer.Option("--time", help="Time limit: 90, 1:30:00, 2-12:00:00 or 36h.")] = "",
    idle: Annotated[str, typer.Option(help="Shut the job down after this time without activity, such as 1h.")] = "",
    image: ImageOption = "",
    env: EnvOption = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Default: the kubeconfig's.")] = "",
    kubeconfig: KubeconfigOption = "",
) -> None:
    """Run a command as an Interactive job, show its output, and exit with its exit code. Ctrl-C ends the job."""
    from fairlead.cluster.kubernetes.config import ConfigError, load
    from fairlead.submission import directives, jobs

    stdin, terminal = stdin or pty, terminal or pty
    options = {
        "queue": queue,
        "class": service_class,
        "nodes": nodes,
        "gpus": gpus,
        "cpus-per-task": cpus,
        "mem": mem,
        "time": limit,
        "image": image,
    }
    try:
        namespace = namespace or load(kubeconfig or None).namespace
        asked = directives.asked(as_given(env, options))
        name = name or f"run-{secrets.token_hex(3)}"
        manifest = jobs.ai_job(name, namespace, asked, profile_of(namespace, kubeconfig), command, scripted=False)
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except directives.DirectiveError as error:
        fail(str(error), Exit.USAGE)
    if stdin and asked.nodes > 1:
        fail("-i needs a single member: omit --nodes", Exit.USAGE)
    _as_session(manifest, stdin=stdin, terminal=terminal, idle=idle)
    try:
        code = connection.run(kubeconfig, lambda client: _Run(client, manifest, attached=stdin or terminal).live(), writes=True)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT  # of SIGTERM and SIGHUP: `ending.exit_code`
    raise typer.Exit(code)


def _as_session(manifest: dict[str, Any], *, stdin: bool, terminal: bool, idle: str) -> None:
    spec = manifest["spec"]
    spec["workloadType"] = "Interactive"
    spec.setdefault("ttlAfterFinished", _KEPT)
    if idle:
        spec["idleDuration"] = idle
    container = spec["roles"][0]["template"]["spec"]["containers"][0]
    container |= {"stdin": True} if stdin else {}
    container |= {"tty": True} if terminal else {}


class _Run:
    """One job from its submission to its end."""

    def __init__(self, client: Client, manifest: dict[str, Any], *, attached: bool) -> None:
        self.client = client
        self.manifest = manifest
        self.attached = attached
        self.namespace, self.name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        self.path = f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/aijobs/{self.name}"
        self._goes_on = False  # without us
        self._active_at = 0.0

    async def live(self) -> int:
        """The exit code. However this ends, the job does, too, unless it was left to go on."""
        await self.client.post(self.path.rpartition("/")[0], msgspec.json.encode(self.manifest))
        over = False
        try:
            pods = await self._started()
            if pods and self.attached:
                await self._attach(pods[0]["metadata"]["name"])
                if self._goes_on:
                    return int(Exit.FAILED)
            elif pods:
                await self._print(pods)
            phase = await ended(self.client, f"{self.namespace}/{self.name}")
            over = True
            return await self._code(phase)
        finally:
            if not over and not self._goes_on:
                await self._remove()

    # -- waiting -------------------------------------------------------------------------------

    async def _started(self) -> list[dict[str, Any]]:
        """The members once they run; none where it ended before."""
        asked = 0.0
        with _progress() as show:
            show(f"{self.name} is submitted")
            while True:
                found = await self._pods()
                if found and all((pod.get("status") or {}).get("phase", "Pending") != "Pending" for pod in found):
                    return found
                job = await self._job()
                if job is None or (job.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                    return found
                now = time.monotonic()
                if now - asked >= _ASK:
                    asked = now
                    show(await self._why(job, found))
                await asyncio.sleep(_POLL_INTERVAL)

    async def _pods(self) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        answer = await self.client.get(path, labelSelector=f"{names.JOB_LABEL}={self.name}")
        found: list[dict[str, Any]] = msgspec.json.decode(answer)["items"]
        latest = max((pod["metadata"]["labels"].get(names.ATTEMPT_LABEL, "0") for pod in found), key=int, default="0")
        return sorted(
            (pod for pod in found if pod["metadata"]["labels"].get(names.ATTEMPT_LABEL) == latest),
            key=lambda pod: int(pod["metadata"]["labels"].get(names.INDEX_LABEL, "0")),
        )

    async def _job(self) -> dict[str, Any] | None:
        from fairlead.cluster.kubernetes.client import ApiError

        try:
            found: dict[str, Any] = msgspec.json.decode(await self.client.get(self.path))
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found

    async def _why(self, job: dict[str, Any], pods: list[dict[str, Any]]) -> str:
        """What it waits for, in a line."""
        from fairlead.cli.explanations import by_leader_or_status
        from fairlead.cluster.kubernetes.client import ApiError

        refused = [each for each in (job.get("status") or {}).get("conditions") or () if each["type"] == "Accepted"]
        if refused and refused[0]["status"] == "False":
            return f"{self.name} waits: {refused[0].get('message', '')}"
        try:
            explanation = await by_leader_or_status(self.client, "podgroup", self.namespace, self.name)
        except ApiError:
            return f"{self.name} waits"
        conditions = [each for pod in pods for each in (pod.get("status") or {}).get("conditions") or ()]
        refusals = [each.get("message", "") for each in conditions if (each["type"], each["status"]) == ("PodScheduled", "False")]
        message = explanation.message or next((each for each in refusals if each), "")
        return f"{self.name} waits: {message}" if message else f"{self.name} is starting"

    # -- what it prints ------------------------------------------------------------------------

    async def _print(self, pods: list[dict[str, Any]]) -> None:
        width = max(len(pod["metadata"]["name"]) for pod in pods)
        many = len(pods) > 1
        await asyncio.gather(
            *(
                print_log(self.client, pod, "", None, f"{pod['metadata']['name']:<{width}} | " if many else "", follow=True)
                for pod in pods
            )
        )

    async def _attach(self, pod: str) -> None:
        from fairlead.cluster.kubernetes.attach import STDERR
        from fairlead.cluster.kubernetes.client import ApiError

        container = self.manifest["spec"]["roles"][0]["template"]["spec"]["containers"][0]
        wanted = {
            "stdin": bool(container.get("stdin")),
            "stdout": True,
            "stderr": not container.get("tty"),
            "tty": bool(container.get("tty")),
        }
        query = [("container", container["name"]), *((key, "true") for key, value in wanted.items() if value)]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/attach"
        try:
            async with self.client.attached(path, query) as session:
                with _raw(wanted["tty"] and wanted["stdin"]):
                    typing = asyncio.ensure_future(self._type(session, wanted["stdin"], tty=wanted["tty"]))
                    async for channel, data in session.output():
                        out = sys.stderr if channel == STDERR else sys.stdout
                        out.buffer.write(data)
                        out.flush()
                    typing.cancel()
        except ApiError:
            await self._print([{"metadata": {"name": pod, "namespace": self.namespace}, "spec": {"containers": [container]}}])
            return  # it ended before the attach
        phase = (msgspec.json.decode(await self.client.get(f"/api/v1/namespaces/{self.namespace}/pods/{pod}"))["status"]).get(
            "phase"
        )
        if session.code is None and not session.error and phase == "Running":
            self._goes_on = True
            typer.echo(f"fairlead: connection lost; the session continues: kubectl attach -it {pod}", err=True)

    async def _type(self, session: Attached, wanted: bool, *, tty: bool) -> None:
        if tty:
            with _resized() as sizes:
                resizing = asyncio.ensure_future(_pass_sizes(session, sizes))
                try:
                    await self._pass_input(session, wanted)
                finally:
                    resizing.cancel()
        else:
            await self._pass_input(session, wanted)

    async def _pass_input(self, session: Attached, wanted: bool) -> None:
        await self._note_activity()
        if not wanted:
            await asyncio.get_running_loop().create_future()
        async for data in _typed():
            await session.write(data)
            await self._note_activity()
        await session.end_input()
        await asyncio.get_running_loop().create_future()

    async def _note_activity(self) -> None:
        """So that it is not shut down for idleness."""
        from fairlead.cluster.kubernetes.client import ApiError, Unreachable
        from fairlead.cluster.times import timestamp

        if time.monotonic() - self._active_at < _ACTIVE and self._active_at:
            return
        self._active_at = time.monotonic()
        patch = {"metadata": {"annotations": {names.LAST_ACTIVITY_ANNOTATION: timestamp(time.time())}}}
        with contextlib.suppress(ApiError, Unreachable):
            await self.client.patch(self.path, msgspec.json.encode(patch), _MERGE)

    # -- the end -------------------------------------------------------------------------------

    async def _code(self, phase: str) -> int:
        if phase == "Succeeded":
            return int(Exit.DONE)
        job, pods = await self._job(), await self._pods()
        message = ((job or {}).get("status") or {}).get("message", "") if job is not None else "it was deleted"
        if job is None or not failed_by_itself(job, pods):
            typer.echo(f"fairlead: {self.name}: {message}", err=True)
        return int(next((code for pod in pods for code in exit_codes(pod)), Exit.FAILED))

    async def _remove(self) -> None:
        from fairlead.cluster.kubernetes.client import ApiError

        typer.echo(f"fairlead: ending {self.name}", err=True)
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        with contextlib.suppress(ApiError):
            await self.client.delete(self.path, msgspec.json.encode(body))


def failed_by_itself(job: dict[str, Any], pods: list[dict[str, Any]]) -> bool:
    """Whether a job ended for the exit code of a member, which its output explains; not where one was evicted or deleted."""
    if any(each["type"] == "Started" and each["status"] == "False" for each in _conditions(job)):
        return False
    return any(
        any(exit_codes(pod))
        and pod["status"].get("phase") == "Failed"
        and not pod["metadata"].get("deletionTimestamp")
        and not any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in _conditions(pod))
        for pod in pods
    )


def _conditions(found: dict[str, Any]) -> list[dict[str, Any]]:
    return (found.get("status") or {}).get("conditions") or []


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """Show why the job waits: in place on a terminal, else a line for each change."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("") as status:
            yield status.update
        return
    last = ""

    def show(text: str) -> None:
        nonlocal last
        if text != last:
            typer.echo(f"fairlead: {text}", err=True)
            last = text

    yield show


@contextlib.contextmanager
def _raw(wanted: bool) -> Iterator[None]:
    """Each key goes to the other side as it is typed, Ctrl-C too."""
    if not wanted or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _resized() -> Iterator[asyncio.Event]:
    """Set whenever the window's size is another, and at first."""
    event = asyncio.Event()
    event.set()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, event.set)
    try:
        yield event
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def _pass_sizes(session: Attached, changed: asyncio.Event) -> None:
    while True:
        await changed.wait()
        changed.clear()
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(1)
            await session.resize(rows, columns)


async def _typed() -> AsyncIterator[bytes]:
    """The input until its end. It is read in a thread that this does not wait for: a read cannot be cancelled."""
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        while True:
            try:
                data = os.read(0, 1 << 16)
            except OSError:
                data = b""
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(queue.put_nowait, data)
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()
    while data := await queue.get():
        yield data
