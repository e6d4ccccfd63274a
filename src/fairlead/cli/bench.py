"""`fairlead bench`: the numbers of benchmarks/README.md, one command each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.simulate import parse_seeds

app = typer.Typer(help="Measure; every row of benchmarks/README.md is one of these.", no_args_is_help=True)


@app.command()
def placement(
    nodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Nodes of 8 GPUs.")] = 5000,
    pods: Annotated[int, typer.Option(min=1, max=10_000_000, help="One-GPU pods to place.")] = 40_000,
    shapes: Annotated[int, typer.Option(min=1, max=100_000, help="Classes of identical pods.")] = 1,
    gang: Annotated[int, typer.Option(min=1, max=100_000, help="Pods of a gang; 1: no gangs.")] = 1,
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues with quota.")] = 10,
    strategy: Annotated[str, typer.Option(help="ai, binpack, fgd or spread.")] = "ai",
    output: OutputOption = Output.TABLE,
) -> None:
    """How many placements per second the core decides, without any cluster."""
    from fairlead.core.pods.scores import STRATEGIES
    from fairlead.simulation import bench

    if strategy not in STRATEGIES:
        fail(f"--strategy {strategy!r} is unknown: choose one of {', '.join(sorted(STRATEGIES))}", Exit.USAGE)
    with progress("placing") as report:
        result = bench.placement(
            nodes=nodes, pods=pods, shapes=shapes, gang=gang, queues=queues, strategy=strategy, progress=report
        )
    emit(result, output, lambda: print_table("bench placement", msgspec.to_builtins(result)))


@app.command()
def cycle(
    scenario: Annotated[str, typer.Option(help="mixed, verdict, reclaim, hero or consolidate.")] = "mixed",
    nodes: Annotated[int, typer.Option(min=20, max=100_000, help="Full nodes of 8 GPUs.")] = 500,
    output: OutputOption = Output.TABLE,
) -> None:
    """How long the core takes to decide on a full cluster: whole passes, verdicts, reclaim."""
    from fairlead.simulation import cycle as scenarios

    chosen = next((each for each in scenarios.SCENARIOS if each == scenario), None)
    if chosen is None:
        fail(f"--scenario {scenario!r} is unknown: choose one of {', '.join(scenarios.SCENARIOS)}", Exit.USAGE)
    result = scenarios.run(chosen, nodes)
    emit(result, output, lambda: print_table("bench cycle", msgspec.to_builtins(result)))


@app.command()
def fuzz(
    pods: Annotated[int, typer.Option(min=1, max=100_000_000, help="Random pods to write.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the first world; each world has the next.")] = 0,
    worlds: Annotated[int, typer.Option(min=0, help="At most so many worlds; 0: as many as the pods take.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Random pods over the whole schema against running worlds: none may end a pass, or keep an innocent pod from its place."""
    from fairlead.simulation.fuzzing import run

    with progress("writing pods") as report:
        result = run.fuzz(pods, seed, worlds=worlds, progress=report)
    emit(result, output, lambda: print_table("bench fuzz", msgspec.to_builtins(result)))
    if result.failed_passes or result.set_aside or result.starved or result.broken:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def worlds(
    kind: Annotated[
        str,
        typer.Option(help="evictions: pods evicted needlessly. victims: jobs left waiting though victims would do."),
    ],
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-1999 or 1,7,42; each is played in every variety.")] = "0-1999",
    variety: Annotated[
        list[str] | None, typer.Option(help="Only this variety, e.g. 'flat 1/2/4'; may be repeated. Default: all.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Random small clusters, judged without the scheduler's own reckoning: needless evictions, missed victims."""
    from fairlead.simulation import judged

    if kind not in judged.KINDS:
        fail(f"--kind {kind!r} is unknown: choose one of {', '.join(judged.KINDS)}", Exit.USAGE)
    known = judged.KINDS[kind].varieties
    unknown = sorted(set(variety or ()) - set(known))
    if unknown:
        fail(f"--variety {', '.join(map(repr, unknown))} is unknown: choose from {', '.join(map(repr, known))}", Exit.USAGE)
    try:
        chosen = parse_seeds(seeds)
    except ValueError as error:
        fail(f"--seeds {seeds!r}: {error}", Exit.USAGE)
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


@app.command()
def cluster(
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes of at least 8 GPUs.")] = 500,
    pods: Annotated[int, typer.Option(min=2, max=1_000_000, help="One-GPU pods.")] = 4000,
    gang: Annotated[int, typer.Option(min=1, max=10_000, help="Pods of a gang; 1: no gangs.")] = 1,
    arrival_rate: Annotated[
        float | None, typer.Option(min=0.1, max=10_000, help="Pods created per second; absent: all first.")
    ] = None,
    schedulers: Annotated[str, typer.Option(help="Which to compare, comma-separated.")] = "fairlead,kube-scheduler,bare-binder",
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Rounds, the schedulers alternating.")] = 5,
    workload: Annotated[
        str,
        typer.Option(help="pods, queues, relist, spread, anti-affinity, affinity, preferred-affinity, unschedulable or preempt."),
    ] = "pods",
    events: Annotated[bool, typer.Option(help="Have Fairlead write events.")] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Schedulers side by side on a real API server. Needs a checkout with its testbed."""
    _checkout()
    from testbed import bench

    names = [name.strip() for name in schedulers.split(",") if name.strip()]
    unknown = [name for name in names if name not in bench.SCHEDULERS]
    if unknown or not names:
        fail(f"--schedulers {schedulers!r}: choose from {', '.join(bench.SCHEDULERS)}", Exit.USAGE)
    if workload not in bench.WORKLOADS:
        fail(f"--workload {workload!r} is unknown: choose one of {', '.join(bench.WORKLOADS)}", Exit.USAGE)
    given = bench.Workload(nodes=nodes, pods=pods, gang=gang, arrival_rate=arrival_rate, kind=workload, events=events)
    try:
        result = bench.compare(given, names, repeats, lambda step: typer.echo(step, err=True))
    except bench.BenchError as error:
        fail(str(error))

    def table() -> None:
        rows: list[dict[str, object]] = [
            {
                "scheduler": name,
                "pods/s": summary.pods_per_second,
                "with events": summary.pods_per_second_events or "-",
                "p50 ms": summary.latency_ms.p50,
                "p99 ms": summary.latency_ms.p99,
                "CPU s": summary.cpu_seconds,
                "RSS MB": summary.rss_mb,
                "writes/pod": summary.api_writes_per_pod,
                **({} if summary.idle_cpu_percent is None else {"idle CPU %": summary.idle_cpu_percent}),
                "ratio": result.ratios.get(name, "-"),
            }
            for name, summary in result.schedulers.items()
        ]
        print_table(f"{nodes} nodes, {pods} pods, gangs of {gang}", list(rows))
        for note in result.notes:
            typer.echo(note)

    emit(result, output, table)


@app.command()
def answers(
    scenario: Annotated[str, typer.Option(help="verdict or reclaim.")] = "verdict",
    nodes: Annotated[int, typer.Option(min=10, max=10_000, help="Nodes of 8 GPUs, all held.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="How often it is asked.")] = 5,
    output: OutputOption = Output.TABLE,
) -> None:
    """How soon a full cluster says no, or takes back, on a real API server. Needs a checkout with its testbed."""
    _checkout()
    from testbed import answers as measured

    if scenario not in measured.SCENARIOS:
        fail(f"--scenario {scenario!r} is unknown: choose one of {', '.join(measured.SCENARIOS)}", Exit.USAGE)
    try:
        result = measured.run(scenario, nodes, repeats, lambda step: typer.echo(step, err=True))
    except measured.AnswersError as error:
        fail(str(error))
    rows = {"nodes": nodes, "running": result.running, "median ms": result.median_milliseconds}
    emit(result, output, lambda: print_table(f"answers: {scenario}", rows))


@app.command()
def cost(
    days: Annotated[float, typer.Option(min=0.5, max=400, help="Virtual days of 50 nodes and 150 jobs a day.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of jobs and faults.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Whether the ledger balances after a month of faults: jobs and idle together against price x node time."""
    from fairlead.simulation import costs

    result = costs.run(days, seed)
    emit(result, output, lambda: print_table("bench cost", msgspec.to_builtins(result)))
    if not result.clean or abs(result.balance) >= 0.005:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def metrics(
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues with quota and limit of three resources.")] = 1000,
    jobs: Annotated[int, typer.Option(min=1, max=200_000, help="Jobs of one GPU; half of them run.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="How often it is scraped.")] = 10,
    output: OutputOption = Output.TABLE,
) -> None:
    """How many series /metrics has, and what a scrape of it takes over HTTP."""
    from fairlead.simulation import scrape

    result = scrape.run(queues, jobs, repeats)
    emit(result, output, lambda: print_table("bench metrics", msgspec.to_builtins(result)))


@app.command()
def hpa(
    metric: Annotated[str, typer.Option(help="cpu, or queue: what Fairlead serves of it.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, max=50, help="How often it grows and shrinks.")] = 3,
    output: OutputOption = Output.TABLE,
) -> None:
    """How soon a real HorizontalPodAutoscaler goes 2 -> 5 -> 2. Needs a checkout with its testbed."""
    _checkout()
    from fairlead.simulation.lab import quiet
    from testbed import hpa as measured

    quiet()
    if metric not in measured.METRICS:
        fail(f"--metric {metric!r} is unknown: choose one of {', '.join(measured.METRICS)}", Exit.USAGE)
    try:
        result = measured.run(metric, repeats, lambda step: typer.echo(step, err=True))
    except measured.HpaError as error:
        fail(str(error))
    emit(result, output, lambda: print_table(f"hpa: {metric}", msgspec.to_builtins(result)))
    if not result.within:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def platform(
    scenario: Annotated[str, typer.Option(help="defaults, quota or alerts.")] = "defaults",
    output: OutputOption = Output.TABLE,
) -> None:
    """Whether what an administrator stands up is as it is to be, on a real API server. Needs a checkout with its testbed."""
    _checkout()
    from fairlead.simulation.lab import quiet
    from testbed import platform as measured

    quiet()
    if scenario not in measured.SCENARIOS:
        fail(f"--scenario {scenario!r} is unknown: choose one of {', '.join(measured.SCENARIOS)}", Exit.USAGE)
    try:
        result = measured.run(scenario, lambda step: typer.echo(step, err=True))
    except measured.PlatformError as error:
        fail(str(error))
    rows = {"checks": len(result.checks), "hold": sum(check.holds for check in result.checks)}
    emit(result, output, lambda: print_table(f"platform: {scenario}", rows))
    if not result.holds:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def attacks(
    only: Annotated[str, typer.Option(help="Ids or subjects, comma-separated; default: all.")] = "",
    checkout: Annotated[
        Path | None, typer.Option(help="Another checkout of the project whose processes, charts and policies are attacked.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """What an ordinary tenant tries on a real API server, and what comes of it. Needs a checkout with its testbed."""
    root = _checkout()
    from testbed import attacks as tried

    known = tried.catalogue()
    wanted = {each.strip() for each in only.split(",") if each.strip()}
    unknown = wanted - {name for attack in known for name in (attack.id, attack.subject)}
    if unknown:
        fail(f"--only {', '.join(sorted(unknown))}: no attack or subject is called so", Exit.USAGE)
    chosen = [attack for attack in known if not wanted or wanted & {attack.id, attack.subject}]
    try:
        result = tried.run(chosen, lambda step: typer.echo(step, err=True), checkout or root)
    except tried.RangeError as error:
        fail(str(error))
    rows = {"tried": result.tried, "refused": result.refused, "harmless": result.harmless, "works": result.works}
    emit(result, output, lambda: print_table("bench attacks", {**rows, "valid": result.valid}))
    if result.works or not result.valid:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def job(
    scenario: Annotated[str, typer.Option(help="start, array, worker-kill, suspend, elastic or operator-kill.")] = "start",
    workers: Annotated[int, typer.Option(min=2, max=1024, help="start, worker-kill, suspend: members of the job.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="start, worker-kill, suspend: how often.")] = 20,
    tasks: Annotated[int, typer.Option(min=1, max=100_000, help="array: how many.")] = 10_000,
    parallelism: Annotated[int, typer.Option(min=1, max=10_000, help="array: at a time.")] = 500,
    minutes: Annotated[float, typer.Option(min=1, max=1440, help="elastic: how long capacity changes.")] = 20.0,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="operator-kill: how often.")] = 50,
    faults: Annotated[bool, typer.Option(help="operator-kill: the API server fails besides, in all ways.")] = False,
    seed: Annotated[int, typer.Option(help="elastic, operator-kill: seed of changes and moments.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """AIJobs: how soon they run, and what they make of faults. start, worker-kill and suspend need a checkout."""
    from fairlead.simulation import aijobs
    from fairlead.simulation.lab import quiet

    result: msgspec.Struct
    if scenario in ("start", "worker-kill", "suspend"):
        _checkout()
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
        elif scenario == "operator-kill":
            with progress("kills") as report:
                result = aijobs.kills(count, seed, report, faults=faults)
        else:
            known = "start, array, worker-kill, suspend, elastic or operator-kill"
            fail(f"--scenario {scenario!r} is unknown: choose one of {known}", Exit.USAGE)
    emit(result, output, lambda: print_table(f"bench job: {scenario}", msgspec.to_builtins(result)))
    if isinstance(result, aijobs.Kills) and result.differences:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def blame(
    seeds: Annotated[str, typer.Option(help="First and last seed.")] = "0-99",
    nodes: Annotated[int, typer.Option(min=1, max=5000, help="Nodes of 8 GPUs.")] = 50,
    days: Annotated[float, typer.Option(min=0.5, max=400, help="Days of each month.")] = 30.0,
    users: Annotated[int, typer.Option(min=1, max=10_000, help="Users.")] = 20,
    jobs: Annotated[float, typer.Option(min=1, max=100_000, help="Jobs a day, on average 6 for each node.")] = 300.0,
    buggy: Annotated[float, typer.Option(min=0, max=1, help="Share of jobs that fail everywhere.")] = 0.3,
    flaky: Annotated[float, typer.Option(min=0, max=1, help="Share of jobs of which every second attempt fails.")] = 0.0,
    pinned: Annotated[float, typer.Option(min=0, max=1, help="Share of jobs that run on one node only.")] = 0.0,
    bad: Annotated[int, typer.Option(min=0, help="Bad nodes.")] = 1,
    rate: Annotated[float, typer.Option(min=0, max=1, help="With which chance a bad node fails a member.")] = 0.9,
    packed: Annotated[bool, typer.Option(help="Jobs go to the fullest nodes instead of any.")] = False,
    debug: Annotated[bool, typer.Option(help="Buggy and flaky jobs go to two sound nodes only.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Months of buggy jobs and a bad node: whether it is found by its fifth failure, and whether any other is blamed."""
    from fairlead.simulation import blame as months

    try:
        chosen = parse_seeds(seeds)
    except ValueError as error:
        fail(f"--seeds {seeds!r}: {error}", Exit.USAGE)
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
    pods: Annotated[int, typer.Option(min=1, max=1_000_000, help="Pods to live through.")] = 20_000,
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="Nodes of 8 GPUs.")] = 1000,
    output: OutputOption = Output.TABLE,
) -> None:
    """How many pods a second the simulated cluster creates, places, binds, runs, ends and deletes, without HTTP."""
    from fairlead.simulation import lifecycles as bench

    bench.run(200, 10)  # imports, types and caches
    result = bench.run(pods, nodes)
    emit(result, output, lambda: print_table("bench lifecycles", msgspec.to_builtins(result)))


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
    """Record the decisions of a simulated day and replay them: they must be the same, byte for byte."""
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
    record: Annotated[Path | None, typer.Option(metavar="DIR", help="Write all recordings there, as DIR/NAME.jsonl.")] = None,
    replay: Annotated[Path | None, typer.Option(metavar="DIR", help="Replay the logs that are there.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only recordings of this name; may be repeated.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A job list whose first jobs are one recording more.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Record decision logs that between them hold nearly every kind of decision, and replay those of another version.

    With both options what was recorded is replayed at once. Ends with 1 if a log differs, or lacks what it is there for.
    """
    import time

    import structlog

    from fairlead.scheduler.decision_log import LogError
    from fairlead.simulation import decisions as logs
    from fairlead.simulation.traces import read_jobs

    if record is None and replay is None:
        fail("give --record DIR, --replay DIR, or both", Exit.USAGE)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    begun, result = time.perf_counter(), DecisionsResult(0, 0, [], [], [], [], 0.0)
    try:
        if record is not None:
            known = logs.recordings(read_jobs(trace) if trace is not None else ())
            chosen = [each for each in known if only is None or each.name in only]
            if unknown := sorted(set(only or ()) - {each.name for each in known}):
                fail(
                    f"no recording is called {', '.join(unknown)}: choose of {', '.join(each.name for each in known)}", Exit.USAGE
                )
            with progress("recording") as report:
                result.left_out = [] if trace is not None or only is not None else ["trace"]
                summary = logs.record(record, chosen, report, complete=only is None, left_out=result.left_out)
            result.contents = [msgspec.to_builtins(each) for each in summary.logs]
            result.lacking = [*summary.lacking_decisions, *summary.lacking_reasons]
            result.logs = len(chosen)
        if replay is not None:
            if only is None:
                logs.check(replay)
            paths = sorted(path for path in replay.glob("*.jsonl") if only is None or path.stem in only)
            if not paths:
                fail(f"there is no log in {replay}: write some with --record", Exit.NOT_FOUND)
            with progress("replaying") as report:
                found = logs.replay(paths, report)
            result.logs = len(found)
            result.identical = sum(each.identical for each in found.values())
            result.differing = [
                {"log": name, **msgspec.to_builtins(each.difference)}
                for name, each in found.items()
                if each.difference is not None
            ]
    except logs.Refused as error:
        fail(str(error), Exit.FAILED)
    except (LogError, OSError) as error:
        fail(str(error), Exit.USAGE if isinstance(error, LogError) else Exit.NOT_FOUND)
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


@app.command()
def kills(
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How often the scheduler is killed.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the moments.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kill -9 of the scheduler mid-burst on a real control plane. Needs a checkout with its testbed."""
    import tempfile

    _checkout()
    from testbed import kills as bench
    from testbed.controlplane import ControlPlane

    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder, ControlPlane() as plane:
        plane.install(bench.USER)
        result = bench.run(plane, count, seed, Path(folder))
    emit(result, output, lambda: print_table("bench kills", msgspec.to_builtins(result)))
    if not result.clean:
        raise typer.Exit(int(Exit.FAILED))


class ContractResult(msgspec.Struct):
    """Cases passed on each API server."""

    cases: int
    simulated_passed: int
    real_passed: int
    failed: list[str]


@app.command()
def differential(
    seeds: Annotated[str, typer.Option(help="First and last seed.")] = "0-1999",
    output: OutputOption = Output.TABLE,
) -> None:
    """Random clusters through our filters, scores and preemption and through kube-scheduler's real ones: no difference."""
    _checkout()
    from testbed import differential as bench

    try:
        chosen = parse_seeds(seeds)
    except ValueError as error:
        fail(f"--seeds {seeds!r}: {error}", Exit.USAGE)
    with progress("clusters") as report:
        result = bench.run(chosen, report)
    emit(result, output, lambda: print_table("bench differential", msgspec.to_builtins(result)))
    if result.differences:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def contract(output: OutputOption = Output.TABLE) -> None:
    """The contract suite on the simulated and on the real API server. Needs a checkout with its testbed."""
    import subprocess
    import tempfile
    import xml.etree.ElementTree as ET

    root = _checkout()
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "loadgroup",
            f"--junitxml={report}",
            "tests/contract",
        ]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if not report.exists():
            fail(f"the suite did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - written by pytest a moment ago
        passed: dict[str, int] = {}
        failed = []
        for case in cases:
            name = case.get("name", "")
            server = "real" if "[real" in name else "simulated" if "[simulated" in name else ""
            if len(case):
                failed.append(name)
            else:
                passed[server] = passed.get(server, 0) + 1
    result = ContractResult(passed.get("simulated", 0), passed.get("simulated", 0), passed.get("real", 0), failed)
    emit(result, output, lambda: print_table("bench contract", msgspec.to_builtins(result)))
    if failed:
        raise typer.Exit(int(Exit.FAILED))


class FirstPicture(msgspec.Struct):
    """Seconds from the command to the first picture on a terminal."""

    seconds: float


@app.command()
def demo(
    minutes: Annotated[
        float | None,
        typer.Option(
            min=5, max=1440, help="How long to watch its memory; absent: the time to its first picture.", show_default=False
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=10, max=1000, help="With --minutes: nodes of the lab.")] = 24,
    output: OutputOption = Output.TABLE,
) -> None:
    """How long `fairlead demo` takes to its first picture; with --minutes, whether its memory stays as it is."""
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
        result = FirstPicture(time.perf_counter() - start)
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


def _checkout() -> Path:
    """The checkout, where the testbed lies beside src/."""
    root = Path(__file__).parents[3]
    sys.path.append(str(root))
    try:
        import testbed  # noqa: F401
    except ImportError as error:
        fail(f"the testbed is not importable ({error}): run this from a checkout of the project", Exit.NOT_FOUND)
    return root
