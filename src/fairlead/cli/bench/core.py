"""The core alone: placements, passes, random clusters, decisions replayed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.bench.common import app, find_checkout
from fairlead.cli.choices import CycleScenario, Strategy, WorldsKind
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of


@app.command()
def placement(
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes of 8 GPUs.")] = 5000,
    pods: Annotated[int, typer.Option(min=1, max=10_000_000, help="One-GPU pods to place.")] = 40_000,
    shapes: Annotated[int, typer.Option(min=1, max=100_000, help="Classes of identical pods.")] = 1,
    gang: Annotated[int, typer.Option(min=1, max=100_000, help="Pods of a gang; 1: no gangs.")] = 1,
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues with quota.")] = 10,
    strategy: Annotated[Strategy, typer.Option(help="Placement strategy.")] = "ai",
    output: OutputOption = Output.TABLE,
) -> None:
    """Placements per second of the core, without a cluster."""
    from fairlead.simulation import bench

    with progress("placing") as report:
        result = bench.placement(
            nodes=nodes, pods=pods, shapes=shapes, gang=gang, queues=queues, strategy=strategy, progress=report
        )
    emit(result, output, lambda: print_table("bench placement", msgspec.to_builtins(result)))


@app.command()
def gpusets(
    seeds: Annotated[str, typer.Option(help="Seeds of arrivals and departures, e.g. 1-20 or 1,7,42.")] = "1-20",
    events: Annotated[int, typer.Option(min=10, max=1_000_000, help="Arrivals and departures of each seed and machine.")] = 400,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sets of GPUs inside a node, by several rules on the same free GPUs of eleven published interconnects."""
    from fairlead.simulation.gpusets import run

    chosen = seeds_of(seeds)
    with progress("machines") as report:
        result = run.run(chosen, events, report)
    emit(result, output, lambda: print_table("bench gpusets", run.as_rows(result)))
    if result.below_best_effort:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def cycle(
    scenario: Annotated[CycleScenario, typer.Option(help="What happens on the full cluster.")] = "mixed",
    nodes: Annotated[int, typer.Option(min=20, max=100_000, help="Full nodes of 8 GPUs.")] = 500,
    output: OutputOption = Output.TABLE,
) -> None:
    """Duration of decisions on a full cluster: whole passes, refusals, reclaim."""
    from fairlead.simulation import cycle as scenarios

    result = scenarios.run(scenario, nodes)
    emit(result, output, lambda: print_table("bench cycle", msgspec.to_builtins(result)))


@app.command()
def growth(
    dimension: Annotated[list[str] | None, typer.Option(help="Only this dimension; may be repeated. Default: all.")] = None,
    small: Annotated[bool, typer.Option("--small", help="The sizes at which `make test` counts calls.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """How the cost of one placement, event or pass grows with the size of a cluster."""
    from fairlead.simulation.growth import dimensions

    unknown = sorted(set(dimension or ()) - set(dimensions.BY_NAME))
    if unknown:
        known = ", ".join(dimensions.BY_NAME)
        fail(f"--dimension {', '.join(map(repr, unknown))} is unknown: choose from {known}", Exit.USAGE)
    with progress("measuring") as report:
        result = dimensions.run(dimension or list(dimensions.BY_NAME), small=small, progress=report)

    def table() -> None:
        rows: list[Mapping[str, object]] = [
            {"dimension": name, **msgspec.to_builtins(each)} for name, each in result.dimensions.items()
        ]
        print_table("bench growth", rows)

    emit(result, output, table)


@app.command()
def steady(
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes of 8 GPUs.")] = 5000,
    pods: Annotated[int, typer.Option(min=1, max=1_000_000, help="Pods of one GPU, running and pending.")] = 50_000,
    classes: Annotated[int, typer.Option(min=1, max=100_000, help="Classes of identical pods.")] = 2000,
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues in a tree of depth 3.")] = 500,
    users: Annotated[int, typer.Option(min=1, max=100_000, help="Users.")] = 1000,
    rate: Annotated[float, typer.Option(min=0, max=10_000, help="Arrivals per second, and as many ends.")] = 200.0,
    settling: Annotated[float, typer.Option(min=0, max=86_400, help="Seconds of virtual time before what is measured.")] = 60.0,
    seconds: Annotated[float, typer.Option(min=1, max=86_400, help="Measured seconds of virtual time.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of classes, queues, users and ends.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """CPU time of passes, and memory, on a large full cluster where jobs arrive and end all the time."""
    from fairlead.simulation import steady as course

    sizes = course.Sizes(nodes, pods, classes, queues, users, rate, settling, seconds, seed)
    with progress("ticks") as report:
        result = course.run(sizes, report)
    emit(result, output, lambda: print_table("bench steady", msgspec.to_builtins(result)))


@app.command()
def fuzz(
    pods: Annotated[int, typer.Option(min=1, max=100_000_000, help="Number of random pods.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first world; each further world uses the next.")] = 0,
    worlds: Annotated[int, typer.Option(min=0, help="Maximum number of worlds; 0: as many as the pods need.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Random pods over the whole schema: none may abort a pass, or keep another pod from being placed."""
    from fairlead.simulation.fuzzing import run

    with progress("writing pods") as report:
        result = run.fuzz(pods, seed, worlds=worlds, progress=report)
    emit(result, output, lambda: print_table("bench fuzz", msgspec.to_builtins(result)))
    if result.failed_passes or result.set_aside or result.starved or result.broken:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def worlds(
    kind: Annotated[
        WorldsKind,
        typer.Option(help="evictions: pods evicted needlessly. victims: jobs left pending although victims exist."),
    ],
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-1999 or 1,7,42; each runs in every variety.")] = "0-1999",
    variety: Annotated[
        list[str] | None, typer.Option(help="Only this variety, e.g. 'flat 1/2/4'; may be repeated. Default: all.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Random small clusters, checked independently of the scheduler: needless evictions, missed victims."""
    from fairlead.simulation import judged

    known = judged.KINDS[kind].varieties
    unknown = sorted(set(variety or ()) - set(known))
    if unknown:
        fail(f"--variety {', '.join(map(repr, unknown))} is unknown: choose from {', '.join(map(repr, known))}", Exit.USAGE)
    chosen = seeds_of(seeds)
    with progress("worlds") as report:
        result = judged.run(kind, chosen, variety, report)

    def table() -> None:
        rows: list[dict[str, object]] = [
            {"variety": name, **msgspec.to_builtins(each)} for name, each in result.varieties.items()
        ]
        print_table(f"bench worlds: {kind}", list(rows))
        for line in result.examples:
            typer.echo(line)

    emit(result, output, table)


class ReplayResult(msgspec.Struct):
    """A recorded run and its replay."""

    seed: int
    virtual_hours: float
    passes: int
    events: int
    decisions: int
    bytes: int
    identical: bool
    replay_seconds: float


@app.command()
def replay(
    seed: Annotated[int, typer.Option(help="Seed of the recorded day.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, max=20_000, help="Jobs of the day.")] = 1500,
    nodes: Annotated[int, typer.Option(min=10, max=1000, help="Nodes.")] = 64,
    hours: Annotated[float, typer.Option(min=0.1, max=240, help="Virtual hours.")] = 24.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Record the decisions of a simulated day and replay them: both must be identical, byte for byte."""
    import tempfile
    import time

    from fairlead.scheduler.decision_log import Player
    from fairlead.simulation.lab import record

    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        log = Path(folder) / "decisions.jsonl"
        record(log, nodes=nodes, jobs=jobs, seed=seed, hours=hours)
        start = time.perf_counter()
        found = Player(log).play()
        result = ReplayResult(
            seed,
            (found.last - found.first) / 3600,
            found.passes,
            found.events,
            found.outputs,
            log.stat().st_size,
            found.identical,
            time.perf_counter() - start,
        )
    emit(result, output, lambda: print_table("bench replay", msgspec.to_builtins(result)))
    if not result.identical:
        raise typer.Exit(int(Exit.FAILED))


class DecisionsResult(msgspec.Struct):
    """Logs recorded, or replayed. identical: of those replayed; differing: the first pass of each that differs.

    left_out: recordings that need what was not given; lacking: kinds of decision and reason codes that no recording holds.
    """

    logs: int
    identical: int
    differing: list[dict[str, object]]
    contents: list[dict[str, object]]
    left_out: list[str]
    lacking: list[str]
    seconds: float


@app.command()
def decisions(
    record: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all recordings to this directory, as NAME.jsonl.")
    ] = None,
    replay: Annotated[Path | None, typer.Option(metavar="DIR", help="Replay the logs of this directory.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only recordings of this name; may be repeated.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A job list whose first jobs make one more recording.")] = None,
    ignore_texts: Annotated[
        bool, typer.Option("--ignore-texts", help="Compare decisions and their numbers, not messages: for a change of messages.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Record decision logs with nearly every kind of decision, and replay those of another version.

    Names that have changed since a recording are translated before the comparison. With both options the recordings are
    replayed at once. Ends with 1 if a log differs, or lacks the decisions that it is for.
    """
    import time

    import structlog

    from fairlead.scheduler.decision_log import LogError
    from fairlead.simulation.decisions import logs

    if record is None and replay is None:
        fail("give --record DIR, --replay DIR, or both", Exit.USAGE)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    begun, result = time.perf_counter(), DecisionsResult(0, 0, [], [], [], [], 0.0)
    try:
        if record is not None:
            _record(record, only, trace, result)
        if replay is not None:
            _replay(replay, only, result, texts=not ignore_texts)
    except logs.Refused as error:
        fail(str(error), Exit.FAILED)
    except LogError as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        fail(f"cannot read or write {error.filename}: {error.strerror}", Exit.NOT_FOUND)
    result.seconds = time.perf_counter() - begun

    def table() -> None:
        rows: dict[str, object] = {"logs": result.logs, "seconds": result.seconds}
        if replay is not None:
            rows["identical"] = result.identical
        if record is not None:
            rows["lacking"] = ", ".join(result.lacking)
            rows["left out"] = ", ".join(result.left_out)
        print_table("bench decisions", rows)
        for each in result.differing:
            typer.echo(f"{each['log']}, pass {each['number']} recorded: {each['recorded']}")
            typer.echo(f"{each['log']}, pass {each['number']} replayed: {each['replayed']}")

    emit(result, output, table)
    if result.differing:
        raise typer.Exit(int(Exit.FAILED))


def _record(folder: Path, only: list[str] | None, trace: Path | None, result: DecisionsResult) -> None:
    from fairlead.simulation.decisions import logs, recordings
    from fairlead.simulation.traces import read_jobs

    known = recordings.recordings(read_jobs(trace) if trace is not None else ())
    chosen = [each for each in known if only is None or each.name in only]
    if unknown := sorted(set(only or ()) - {each.name for each in known}):
        fail(f"unknown recording {', '.join(unknown)}: choose from {', '.join(each.name for each in known)}", Exit.USAGE)
    with progress("recording") as report:
        result.left_out = [] if trace is not None or only is not None else ["trace"]
        summary = logs.record(folder, chosen, report, complete=only is None, left_out=result.left_out)
    result.contents = [msgspec.to_builtins(each) for each in summary.logs]
    result.lacking = [*summary.lacking_decisions, *summary.lacking_reasons]
    result.logs = len(chosen)


def _replay(folder: Path, only: list[str] | None, result: DecisionsResult, *, texts: bool) -> None:
    from fairlead.simulation.decisions import logs

    if only is None:
        logs.check(folder)
    paths = sorted(path for path in folder.glob("*.jsonl") if only is None or path.stem in only)
    if not paths:
        fail(f"no log in {folder}: write logs with --record", Exit.NOT_FOUND)
    with progress("replaying") as report:
        found = logs.replay(paths, report, texts=texts)
    result.logs = len(found)
    result.identical = sum(each.identical for each in found.values())
    result.differing = [
        {"log": name, **msgspec.to_builtins(each.difference)} for name, each in found.items() if each.difference is not None
    ]


@app.command()
def cel(
    differential: Annotated[
        bool, typer.Option("--differential", help="Compare with Kubernetes' evaluation of selectors.")
    ] = False,
    seeds: Annotated[str, typer.Option(help="First and last seed: ten expressions each, over one device.")] = "0-1999",
    output: OutputOption = Output.TABLE,
) -> None:
    """Device selectors: what one takes; with --differential, Kubernetes' verdicts on random ones: no unlisted difference."""
    find_checkout()
    chosen = seeds_of(seeds)
    if not differential:
        from testbed.selectors import speed

        taken = speed.run(chosen)
        emit(taken, output, lambda: print_table("bench cel", msgspec.to_builtins(taken)))
        return
    from testbed.selectors import differential as bench

    with progress("selectors") as report:
        result = bench.run(chosen, report)
    emit(result, output, lambda: print_table("bench cel --differential", msgspec.to_builtins(result)))
    if result.different:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def differential(
    seeds: Annotated[str, typer.Option(help="First and last seed.")] = "0-1999",
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare filters, scores and preemption with the real kube-scheduler on random clusters: no difference."""
    find_checkout()
    from testbed import differential as bench

    chosen = seeds_of(seeds)
    with progress("clusters") as report:
        result = bench.run(chosen, report)
    emit(result, output, lambda: print_table("bench differential", msgspec.to_builtins(result)))
    if result.differences:
        raise typer.Exit(int(Exit.FAILED))
