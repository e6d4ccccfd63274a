"""The screens in README.md: `python -m testbed.screens` makes a cluster, runs the commands on it, and writes what they print.

Some hours of a cluster of ten nodes pass on virtual time, with the production scheduler and operator; then it is served over
HTTP as it is, and the commands are run as a user runs them. So the same code makes the same screens.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fairlead.api import names
from fairlead.cli.main import app
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.http import Server
from fairlead.scheduler.options import Options
from fairlead.simulation.lab import quiet
from fairlead.simulation.world import OperatorProcess, Process, World
from testbed.objects import ai_job

README = Path(__file__).parents[1] / "README.md"
SCREENS = ("queue", "explain aijob/tune -n language")
"""The commands whose screens are made."""

_WIDTH = 118
_HOUR = 3600.0
_MARKED = re.compile(r"<!-- screen: (.+?) -->\n```text\n(.*?)```\n", re.DOTALL)
# (minute, namespace, name, members, GPUs of each, hours that it runs, hours that are declared)
_JOBS = (
    (0, "vision", "train", 2, 8, 9.0, 10),
    (1, "language", "bert", 2, 8, 5.0, 6),
    (2, "robotics", "grasp", 3, 4, 14.0, 15),
    (4, "vision", "segment", 1, 8, 3.5, 4),
    (120, "robotics", "sim2real", 1, 8, 5.0, 6),
    (150, "language", "llama", 3, 8, 8.0, 8),
    (173, "language", "eval", 1, 2, 0.5, 1),
    (175, "language", "tune", 1, 8, 6.0, 6),
    (178, "vision", "notebook", 1, 1, 2.0, 4),
)


async def _hours(world: World) -> None:
    """Three hours of work."""
    options = Options(address="", lease_duration=_HOUR, lease_renew=_HOUR / 2, lease_retry=_HOUR / 4)
    scheduler, operator = Process(world, 0, options=options), OperatorProcess(world)
    scheduler.start()
    operator.start()
    for minute, namespace, name, members, gpus, runs, declared in _JOBS:
        await asyncio.sleep(max(0.0, 60.0 * minute - (world.clock.now() - world.clock.start)))
        world.create(_job(name, members, gpus, runs, declared), namespace)
    await asyncio.sleep(300)
    await operator.kill()
    await scheduler.kill()


def _job(name: str, members: int, gpus: int, runs: float, declared: int) -> dict[str, Any]:
    job = ai_job(name, workers=members, gpus=gpus, expectedDuration=f"{declared}h")
    annotations = {names.SIMULATED_DURATION_ANNOTATION: f"{int(runs * 60)}m"}
    job["spec"]["roles"][0]["template"]["metadata"] = {"annotations": annotations}
    return job


def screens(commands: Sequence[str] = SCREENS) -> dict[str, str]:
    """Each command, and what it prints. Raises `RuntimeError` for one that fails."""
    quiet()

    async def main() -> World:
        world = World(nodes=10, seed=1)
        await _hours(world)
        return world

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        world = runner.run(main())
        return asyncio.run(_printed(world, commands))


async def _printed(world: World, commands: Sequence[str]) -> dict[str, str]:
    """The world's time stands still from now on: no process of it runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        async with Server(world.wire) as server:
            server.write_kubeconfig(path)
            return {command: await asyncio.to_thread(_run, command, path) for command in commands}


def _run(command: str, kubeconfig: Path) -> str:
    environment = {"KUBECONFIG": str(kubeconfig), "COLUMNS": str(_WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    done = CliRunner().invoke(app, command.split(), env=environment)
    if done.exit_code:
        raise RuntimeError(f"fairlead {command}: {done.output}")
    return "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines()) + "\n"


def shown() -> dict[str, str]:
    """The screens as README.md has them."""
    return {each[1]: each[2] for each in _MARKED.finditer(README.read_text())}


def main() -> None:
    """Write the screens into README.md."""
    made = screens()
    text = _MARKED.sub(lambda each: f"<!-- screen: {each[1]} -->\n```text\n{made[each[1]]}```\n", README.read_text())
    README.write_text(text)
    print("\n".join(made.values()))


if __name__ == "__main__":
    main()
