"""Jobs as users meet them: costs, lives, blamed nodes, the demo."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from fairlead.cli.bench.common import app, find_checkout
from fairlead.cli.choices import JobScenario
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of


@app.command()
def cost(
    days: Annotated[float, typer.Option(min=0.5, max=400, help="Virtual days of 50 nodes and 150 jobs a day.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of jobs and faults.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check that costs balance after a month of faults: jobs and idle time against price x node time."""
    from fairlead.simulation import costs

    result = costs.run(days, seed)
    emit(result, output, lambda: print_table("bench cost", msgspec.to_builtins(result)))
    if not result.clean or abs(result.balance) >= 0.005:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def job(
    scenario: Annotated[JobScenario, typer.Option(help="The scenario.")] = "start",
    workers: Annotated[int, typer.Option(min=2, max=1024, help="start, worker-kill, suspend: members of the job.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="start, worker-kill, suspend: number of repetitions.")] = 20,
    tasks: Annotated[int, typer.Option(min=1, max=100_000, help="array: number of elements.")] = 10_000,
    parallelism: Annotated[int, typer.Option(min=1, max=10_000, help="array: elements at a time.")] = 500,
    minutes: Annotated[float, typer.Option(min=1, max=1440, help="elastic: minutes of changing capacity.")] = 20.0,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="operator-kill: number of kills.")] = 50,
    faults: Annotated[bool, typer.Option(help="operator-kill: with faults of the API server.")] = False,
    seed: Annotated[int, typer.Option(help="elastic, operator-kill: seed of changes and times.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """AIJobs: time to start, and recovery from faults. start, worker-kill and suspend need a checkout."""
    from fairlead.simulation import aijobs
    from fairlead.simulation.lab import quiet

    result: msgspec.Struct
    if scenario in ("start", "worker-kill", "suspend"):
        find_checkout()
        from testbed import jobs as real

        try:
            result = real.run(scenario, workers, repeats, lambda step: typer.echo(step, err=True))
        except real.JobsError as error:
            fail(str(error))
    else:
        quiet()
        if scenario == "array":
            result = aijobs.array(tasks, parallelism)
        elif scenario == "elastic":
            result = aijobs.elastic(minutes=minutes, seed=seed)
        else:
            with progress("kills") as report:
                result = aijobs.kills(count, seed, report, faults=faults)
    emit(result, output, lambda: print_table(f"bench job: {scenario}", msgspec.to_builtins(result)))
    if isinstance(result, aijobs.Kills) and result.differences:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def history(
    jobs: Annotated[int, typer.Option(min=100, max=10_000_000, help="Jobs of one run each, evenly in 400 days.")] = 1_000_000,
    output: OutputOption = Output.TABLE,
) -> None:
    """A long history: time to list jobs, and to add up what 30 days cost."""
    from fairlead.simulation import long_history

    result = long_history.measure(jobs)
    emit(result, output, lambda: print_table("bench history", msgspec.to_builtins(result)))


@app.command()
def operator(
    jobs: Annotated[int, typer.Option(min=2, max=100_000, help="AIJobs of one member; half of them run at a time.")] = 20_000,
    dependent: Annotated[bool, typer.Option("--dependent", help="Every second job waits for the one before it.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """What many AIJobs cost the operator: CPU time per change of a pod, and while nothing happens."""
    from fairlead.simulation import operating
    from fairlead.simulation.lab import quiet

    quiet()
    with progress("changes") as report:
        result = operating.operator(jobs, dependent=dependent, progress=report)
    emit(result, output, lambda: print_table("bench operator", msgspec.to_builtins(result)))


@app.command()
def blame(
    seeds: Annotated[str, typer.Option(help="First and last seed.")] = "0-99",
    nodes: Annotated[int, typer.Option(min=1, max=5000, help="Nodes of 8 GPUs.")] = 50,
    days: Annotated[float, typer.Option(min=0.5, max=400, help="Days of each month.")] = 30.0,
    users: Annotated[int, typer.Option(min=1, max=10_000, help="Users.")] = 20,
    jobs: Annotated[float, typer.Option(min=1, max=100_000, help="Jobs per day, on average 6 per node.")] = 300.0,
    buggy: Annotated[float, typer.Option(min=0, max=1, help="Share of jobs that fail everywhere.")] = 0.3,
    flaky: Annotated[float, typer.Option(min=0, max=1, help="Share of jobs of which every second attempt fails.")] = 0.0,
    pinned: Annotated[float, typer.Option(min=0, max=1, help="Share of jobs that run on one node only.")] = 0.0,
    bad: Annotated[int, typer.Option(min=0, help="Bad nodes.")] = 1,
    rate: Annotated[float, typer.Option(min=0, max=1, help="Probability with which a bad node fails a member.")] = 0.9,
    packed: Annotated[bool, typer.Option(help="Place jobs on the fullest nodes instead of any.")] = False,
    debug: Annotated[bool, typer.Option(help="Run buggy and flaky jobs on two sound nodes only.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Months with buggy jobs and a bad node: the node must be found by its fifth failure, no sound node blamed."""
    from fairlead.simulation import blame as months

    chosen = seeds_of(seeds)
    if buggy + flaky > 1:
        fail(f"--buggy {buggy:g} and --flaky {flaky:g} are more than all jobs", Exit.USAGE)
    if bad > nodes:
        fail(f"--bad {bad} are more than --nodes {nodes}", Exit.USAGE)
    month = months.Month(
        nodes=nodes,
        days=days,
        users=users,
        jobs=jobs,
        buggy=buggy,
        flaky=flaky,
        pinned=pinned,
        bad=bad,
        rate=rate,
        packed=packed,
        debug=debug,
    )
    with progress("months") as report:
        result = months.run(chosen, month, report)
    rows = {key: value for key, value in msgspec.to_builtins(result).items() if key != "month"}
    emit(result, output, lambda: print_table("bench blame", rows))
    if result.falsely_blamed:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def lifecycles(
    pods: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of pods.")] = 20_000,
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="Nodes of 8 GPUs.")] = 1000,
    output: OutputOption = Output.TABLE,
) -> None:
    """Pod lifecycles per second on the simulated cluster, from creation to deletion, without HTTP."""
    from fairlead.simulation import lifecycles as bench

    bench.run(200, 10)  # imports, types and caches
    result = bench.run(pods, nodes)
    emit(result, output, lambda: print_table("bench lifecycles", msgspec.to_builtins(result)))


class FirstFrame(msgspec.Struct):
    """Seconds from the command to the first frame on a terminal."""

    seconds: float


@app.command()
def demo(
    minutes: Annotated[
        float | None,
        typer.Option(
            min=5,
            max=1440,
            help="Minutes to watch its memory; default: measure the time to its first screen.",
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=10, max=1000, help="With --minutes: nodes of the cluster.")] = 24,
    output: OutputOption = Output.TABLE,
) -> None:
    """Time of `fairlead demo` to its first screen; with --minutes, whether its memory use is stable."""
    import os
    import pty
    import time

    if minutes is not None:
        from fairlead.simulation import endurance

        try:
            with progress("simulated hours, in twos") as report:
                watched = endurance.run(minutes, nodes, report)
        except endurance.EnduranceError as error:
            fail(str(error))
        emit(watched, output, lambda: print_table("bench demo", msgspec.to_builtins(watched)))
        return
    start = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "fairlead", "demo"])  # noqa: S606 - ourselves
    try:
        seen = b""
        while "█".encode() not in seen and time.perf_counter() - start < 120:
            seen += os.read(terminal, 65_536)
        result = FirstFrame(time.perf_counter() - start)
    finally:
        os.kill(pid, 2)
        while True:
            try:
                if not os.read(terminal, 65_536):
                    break
            except OSError:
                break
        os.waitpid(pid, 0)
    emit(result, output, lambda: print_table("bench demo", msgspec.to_builtins(result)))
