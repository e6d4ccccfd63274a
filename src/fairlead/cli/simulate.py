"""`fairlead simulate`: traces and faults through the production scheduler, on clocks of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli import simulate_interference, simulate_mig, simulate_sharing, simulate_starts, simulate_topology
from fairlead.cli.choices import Durations, FaultsWorkload, JobsPolicy, Strategy, Trace
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from fairlead.core.model.queues import Queue
    from fairlead.simulation.chaos import Outcome, Settings
    from fairlead.simulation.report import JobResult, JobsResult
    from fairlead.simulation.traces import TraceJob

app = typer.Typer(help="Traces and faults through the production scheduler.", no_args_is_help=True)
app.command()(simulate_mig.mig)
app.command()(simulate_sharing.sharing)
app.command()(simulate_topology.topology)
app.command()(simulate_interference.interference)
app.command()(simulate_starts.starts)

_SHOWN_RUNS = 4
_PHILLY_DAYS = 61.0  # October and November
_MONTH = 30


@app.command()
def placement(
    nodes: Annotated[Path, typer.Option(help="Node list in openb format (CSV or CSV.xz).")],
    pods: Annotated[Path, typer.Option(help="Pod list in openb format (CSV or CSV.xz).")],
    strategy: Annotated[Strategy, typer.Option(help="Placement strategy.")] = "ai",
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 42-51 or 1,7,42.")] = "42-51",
    inflate: Annotated[float, typer.Option(help="GPU requests as a multiple of capacity.")] = 1.3,
    output: OutputOption = Output.TABLE,
) -> None:
    """Packing quality of a placement strategy: the openb fragmentation experiment."""
    from fairlead.simulation import placement as experiment
    from fairlead.simulation.traces import TraceError, read_nodes, read_pods

    if not math.isfinite(inflate) or not 0 < inflate <= 10:
        fail(f"--inflate {inflate} must be above 0 and at most 10", Exit.USAGE)
    numbers = seeds_of(seeds)
    try:
        trace_nodes, trace_pods = read_nodes(nodes), read_pods(pods)
    except TraceError as error:
        fail(str(error))
    if not any(node.gpus for node in trace_nodes):
        fail(f"{nodes}: no node has GPUs")
    if not trace_pods:
        fail(f"{pods}: no pods")
    with progress(f"{pods.name} with {strategy}") as report:
        done = 0

        def across(arrived: int, of: int) -> None:
            nonlocal done
            done += arrived == 0
            report((done - 1) * of + arrived, of * len(numbers))

        result = experiment.simulate(trace_nodes, trace_pods, strategy=strategy, seeds=numbers, inflate=inflate, progress=across)

    def table() -> None:
        rows: list[dict[str, object]] = [
            {
                "arrived %": column,
                "allocation %": result.allocation[column],
                "deviation": result.allocation_deviation[column],
                "idle GPUs": result.unallocated_gpus[column],
                "fragmented %": result.fragmentation[column],
            }
            for column in result.allocation
            if int(column) % 10 == 0 and int(column) >= 50
        ]
        print_table(f"{strategy} on {pods.name}: {len(numbers)} seeds, {result.pods_per_second:,.0f} pods/s", list(rows))

    emit(result, output, table)


@app.command()
def jobs(
    jobs: Annotated[
        Path | None, typer.Option(help="Job table: submit_time, duration_s, num_gpus, vc (CSV or CSV.xz); not with synthetic.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes in the pool.")] = 65,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="GPUs of each node.")] = 8,
    trace: Annotated[Trace, typer.Option(help="Job trace; synthetic: generated jobs (see --seed).")] = "philly",
    policy: Annotated[JobsPolicy, typer.Option(help="Scheduling policy.")] = "default",
    queues: Annotated[
        Path | None,
        typer.Option(help="CSV with columns vc, nodes: quotas in that proportion of the pool; jobs of other VCs are dropped."),
    ] = None,
    durations: Annotated[Durations, typer.Option(help="Run times known to the scheduler.")] = "exact",
    window: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100_000,
            help="Days over which utilization and shares are measured; 0: all. Default: 61 for philly, 2 for synthetic.",
        ),
    ] = None,
    time_slicing: Annotated[
        bool,
        typer.Option(help="Preempt by attained service (default). Without it, pending jobs get reservations."),
    ] = True,
    max_loss: Annotated[
        float, typer.Option(min=0, help="Seconds of work that a preemption by attained service may lose; 0: any.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of synthetic jobs and of limits.")] = 0,
    resample: Annotated[
        int | None,
        typer.Option(help="Seed of another month: whole days of each queue's jobs, drawn with replacement; not with synthetic."),
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Length of that month in days; default 30.")] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            help="Policies to compare on the same jobs, separated by commas, or none. Default: with --resample all others."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw waits and queues to this file (.png, .svg, .pdf).")] = None,
    starts: Annotated[
        Path | None, typer.Option(help="Write the starts that were foretold there, for `simulate starts`; --policy default only.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Waiting times of jobs: a job trace, event by event, under a textbook policy or the production scheduler."""
    from fairlead.simulation import jobs as replay

    _check_table(jobs, trace, resample, days)
    others = _compared(compare, policy, replay.POLICIES, resampled=resample is not None)
    if not time_slicing and policy != replay.DEFAULT:
        fail(f"--no-time-slicing applies only to --policy default, not to {policy}", Exit.USAGE)
    if plot is not None:
        _check_plot(plot)
    if starts is not None:
        _check_starts(starts, policy)
    workload = _workload(jobs, queues, trace, seed, nodes * gpus_per_node)
    if resample is not None:
        workload = _resampled(workload, resample, days if days is not None else _MONTH)
    simulated = partial(
        replay.simulate,
        workload.jobs,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        queues=workload.queues,
        tree=workload.tree,
        deserved=workload.shares,
        durations=durations,
        window_days=window if window is not None else workload.days,
        time_slicing=time_slicing,
        max_loss=max_loss,
        seed=seed,
        starts=starts,
    )
    results = _replayed(simulated, [policy, *others], jobs.name if jobs is not None else trace)
    result, *result.comparisons = results
    if plot is not None:
        _draw(result, plot)
    emit(result, output, lambda: _show(results, f"{policy} on {nodes} x {gpus_per_node} GPUs"))


class _Workload(msgspec.Struct, frozen=True):
    """The jobs that are replayed, and their queues.

    days: over which utilization and shares are measured by default. queues: queue -> nodes, as a table has them. tree,
    shares: of generated jobs without such a table, the queues, and by their names the deserved parts of all GPU time.
    """

    jobs: list[TraceJob]
    days: float
    queues: dict[str, int] | None = None
    tree: tuple[Queue, ...] = ()
    shares: dict[str, float] | None = None


def _workload(jobs: Path | None, queues: Path | None, trace: str, seed: int, gpus: int) -> _Workload:
    """That of tables of jobs and queues; without a table of jobs, jobs that are generated for so many GPUs."""
    from fairlead.simulation import synthetic
    from fairlead.simulation.traces import TraceError, read_jobs, read_queues

    try:
        found = read_jobs(jobs) if jobs is not None else synthetic.tenants(seed, gpus)
        listed = read_queues(queues) if queues is not None else None
    except TraceError as error:
        fail(str(error))
    days = _PHILLY_DAYS if trace == "philly" else synthetic.HOURS / 24
    if listed is not None:
        if not any(job.queue in listed for job in found):
            fail(f"{queues}: no job belongs to one of its queues")
        return _Workload(found, days, listed)
    if trace == "synthetic":
        return _Workload(found, days, tree=synthetic.tree(), shares=synthetic.shares())
    return _Workload(found, days)


def _resampled(workload: _Workload, seed: int, days: int) -> _Workload:
    """Another month of the same jobs, of so many days."""
    from fairlead.simulation.resample import resample

    found = resample(workload.jobs, seed, days)
    if not found:
        fail(f"--resample {seed}: no jobs on the selected days: choose more --days or another seed")
    return msgspec.structs.replace(workload, jobs=found, days=days)


def _replayed(simulated: Callable[..., JobsResult], policies: list[str], title: str) -> list[JobsResult]:
    """The result of each policy on the same jobs. simulated: takes policy and progress."""
    results = []
    for each in policies:
        with progress(f"{title}, {each}") as report:
            results.append(simulated(policy=each, progress=report))
    return results


def _show(results: list[JobsResult], title: str) -> None:
    """The tables of a result and of those that it is compared with."""
    result = results[0]
    flat = {
        name: "  ".join(f"{key} {part:,.3g}" if key == "above_one" else f"{key} {part:,.0f}" for key, part in value.items())
        if isinstance(value, dict)
        else value
        for name, value in msgspec.to_builtins(result).items()
        if name not in ("queues", "comparisons", "worst_jobs")
    }
    print_table(title, flat)
    rows: list[dict[str, object]] = [
        {
            "queue": each.name,
            "due": "-" if each.due is None else f"{each.due:.1%}",
            "held": f"{each.held:.1%}",
            "quota": "-" if each.quota_gpus is None else f"{each.quota_gpus:.1f}",
            "jobs": each.jobs,
            "GPU hours": f"{each.gpu_hours:,.0f}",
            "mean wait": f"{each.wait_seconds.mean:,.0f}",
            "p99": f"{each.wait_seconds.p99:,.0f}",
            "suspensions": each.suspensions,
            "worst rho": f"{each.rho.worst:,.1f}",
        }
        for each in result.queues
    ]
    print_table("queues", list(rows))
    print_table("jobs with the worst finish-time fairness", [_job_row(each) for each in result.worst_jobs])
    if result.comparisons:
        print_table("policies on the same jobs", [_compared_row(each) for each in results])


def _job_row(each: JobResult) -> dict[str, object]:
    return {
        "job": each.job,
        "queue": each.queue,
        "GPUs": each.gpus,
        "runs": f"{each.duration_seconds:,.0f}",
        "submitted": f"{each.submitted:,.0f}",
        "started": f"{each.started:,.0f}",
        "wait": f"{each.wait_seconds:,.0f}",
        "suspensions": each.suspensions,
        "rho": f"{each.rho:,.1f}",
    }


def _check_table(jobs: Path | None, trace: str, resample: int | None, days: int | None) -> None:
    """End with wrong usage where the options of the job table do not go together."""
    if (jobs is None) != (trace == "synthetic"):
        fail("--trace philly needs --jobs; --trace synthetic takes no job table", Exit.USAGE)
    if resample is not None and jobs is None:
        fail("--resample needs a job table (--jobs); it does not apply to --trace synthetic", Exit.USAGE)
    if days is not None and resample is None:
        fail("--days needs --resample; to limit the evaluated period use --window", Exit.USAGE)


def _check_plot(plot: Path) -> None:
    """End with wrong usage where the name of the file has no ending of a format that can be drawn."""
    if plot.suffix not in (".png", ".svg", ".pdf"):
        fail(f"--plot {plot}: the name must end in .png, .svg or .pdf", Exit.USAGE)


def _check_starts(starts: Path, policy: str) -> None:
    """End with wrong usage where no starts are foretold, or could not be written after hours of work."""
    from fairlead.simulation.jobs import DEFAULT

    if policy != DEFAULT:
        fail(f"--starts applies only to --policy {DEFAULT}: {policy} foretells no starts", Exit.USAGE)
    try:
        with starts.open("ab"):  # what is there stays until there is something new
            pass
    except OSError as error:
        fail(f"--starts {starts}: {error.strerror}", Exit.USAGE)


def _draw(result: JobsResult, plot: Path) -> None:
    from fairlead.simulation.plots import PlotError, draw

    try:
        draw(result, plot)
    except PlotError as error:
        fail(str(error))


def _compared(text: str | None, policy: str, known: tuple[str, ...], *, resampled: bool) -> list[str]:
    """The policies that are replayed beside `policy`, each once; ends with wrong usage where one is unknown."""
    if text is None:
        return [each for each in known if each != policy] if resampled else []
    named = [] if text == "none" else list(dict.fromkeys(each.strip() for each in text.split(",")))
    for each in named:
        if each not in known:
            fail(f"--compare {each!r} is unknown: name policies of {', '.join(known)}, separated by commas, or none", Exit.USAGE)
    return [each for each in named if each != policy]


def _compared_row(result: JobsResult) -> dict[str, object]:
    return {
        "policy": result.policy,
        "mean wait": f"{result.wait_seconds.mean:,.0f}",
        "p50": f"{result.wait_seconds.p50:,.0f}",
        "p99": f"{result.wait_seconds.p99:,.0f}",
        "utilization": f"{result.utilization:.2%}",
        "worst rho": f"{result.rho.worst:,.1f}",
        "suspensions": result.suspensions,
    }


class FaultSeeds(msgspec.Struct):
    """Many seeds together. failed: the commands that repeat the seeds with violations."""

    seeds: int
    clean: int
    fault_kinds: int
    faults: int
    bindings: int
    settled_checks: int
    virtual_hours: float
    wall_seconds: float
    failed: list[str]
    runs: list[object]


@contextmanager
def _ended(pool: ProcessPoolExecutor) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes end with what is done with it, at once where that is interrupted: none holds a lock of another."""
    import multiprocessing

    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@app.command()
def faults(
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 7, 1-100 or 1,7,42.")] = "1-4",
    nodes: Annotated[int, typer.Option(min=10, max=1000, help="Nodes.")] = 50,
    jobs: Annotated[int, typer.Option(min=1, max=20_000, help="Jobs.")] = 300,
    hours: Annotated[float, typer.Option(min=0.5, max=240, help="Virtual hours.")] = 24.0,
    workload: Annotated[
        FaultsWorkload, typer.Option(help="pods: pods and gangs; aijobs: jobs of all classes, and the operator.")
    ] = "pods",
    devices: Annotated[
        int, typer.Option(min=0, max=200, help="Nodes more, with devices that pods need by claims (workload pods only).")
    ] = 0,
    administrators: Annotated[
        bool, typer.Option("--administrators", help="Administrators work during the storms: windows, queues, policies, nodes.")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0: one per core.")] = 0,
    record: Annotated[Path | None, typer.Option(help="With one seed: write the first scheduler's decision log there.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """A cluster, its users, the scheduler and all kinds of faults on one seeded clock. Invariants are checked at every step."""
    import time

    from fairlead.simulation import chaos

    numbers = seeds_of(seeds)
    if record is not None and len(numbers) > 1:
        fail("--record needs a single seed (--seeds)", Exit.USAGE)
    if devices and workload != "pods":
        fail(f"--devices needs --workload pods: jobs of workload {workload} have no claims", Exit.USAGE)
    settings = chaos.Settings(
        nodes=nodes, jobs=jobs, hours=hours, workload=workload, devices=devices, administrators=administrators
    )
    begun = time.perf_counter()
    runs = [chaos.run(numbers[0], settings, record)] if len(numbers) == 1 else _run_all(numbers, settings, workers)
    failed = [each for each in runs if each.violations]
    result = FaultSeeds(
        seeds=len(runs),
        clean=len(runs) - len(failed),
        fault_kinds=min(each.fault_kinds for each in runs),
        faults=sum(sum(each.faults.values()) for each in runs),
        bindings=sum(each.bindings for each in runs),
        settled_checks=sum(each.settled_checks for each in runs),
        virtual_hours=sum(each.virtual_hours for each in runs),
        wall_seconds=time.perf_counter() - begun,
        failed=[chaos.replay_command(each.seed, settings) for each in failed],
        runs=[msgspec.to_builtins(each) for each in (runs if len(runs) <= _SHOWN_RUNS else failed)],
    )
    emit(result, output, lambda: _show_faults(result, failed))
    if failed:
        raise typer.Exit(int(Exit.FAILED))


def _run_all(seeds: list[int], settings: Settings, workers: int) -> list[Outcome]:
    """Many seeds, in as many processes; 0: one for each core."""
    import multiprocessing
    import os
    import sys
    from concurrent.futures import ProcessPoolExecutor

    from fairlead.observability.ending import as_worker
    from fairlead.simulation import chaos

    runs = []
    # Forked before there are threads: what is imported by now need not be imported again.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    count = min(len(seeds), workers or os.cpu_count() or 1)
    with progress("seeds") as report, _ended(ProcessPoolExecutor(count, context, as_worker)) as pool:
        for outcome in pool.map(chaos.run_quietly, [(seed, settings) for seed in seeds]):
            runs.append(outcome)
            report(len(runs), len(seeds))
    return runs


def _show_faults(result: FaultSeeds, failed: list[Outcome]) -> None:
    flat = {name: value for name, value in msgspec.to_builtins(result).items() if name not in ("runs", "failed")}
    print_table("simulate faults", flat)
    for each, again in zip(failed, result.failed, strict=True):
        typer.echo(f"seed {each.seed} violated {len(each.violations)} invariants; reproduce with: {again}")
        for line in each.violations[:5]:
            typer.echo(f"  {line}")
