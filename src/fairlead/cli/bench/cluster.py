"""A cluster: schedulers side by side, metrics and APIs under load, attacks, kills, the contract of two servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.cli.bench.common import app, find_checkout
from fairlead.cli.choices import AnswersScenario, HpaMetric, PlatformScenario, Workload
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table


@app.command()
def cluster(
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes of at least 8 GPUs.")] = 500,
    pods: Annotated[int, typer.Option(min=2, max=1_000_000, help="One-GPU pods.")] = 4000,
    gang: Annotated[int, typer.Option(min=1, max=10_000, help="Pods of a gang; 1: no gangs.")] = 1,
    arrival_rate: Annotated[
        float | None, typer.Option(min=0.1, max=10_000, help="Pods created per second; default: all before the start.")
    ] = None,
    schedulers: Annotated[
        str, typer.Option(help="Schedulers to compare, comma-separated.")
    ] = "fairlead,kube-scheduler,bare-binder",
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Rounds, the schedulers alternating.")] = 5,
    workload: Annotated[Workload, typer.Option(help="The workload to submit.")] = "pods",
    events: Annotated[bool, typer.Option(help="Have Fairlead write events.")] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Schedulers side by side on a real API server. Needs a checkout with its testbed."""
    find_checkout()
    from testbed import bench

    names = [name.strip() for name in schedulers.split(",") if name.strip()]
    unknown = [name for name in names if name not in bench.SCHEDULERS]
    if unknown or not names:
        fail(f"--schedulers {schedulers!r}: choose from {', '.join(bench.SCHEDULERS)}", Exit.USAGE)
    if workload == "racks" and gang == 1:
        fail("--workload racks: gangs in racks have at least 2 pods, see --gang", Exit.USAGE)
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


@app.command("look")
def overviews(
    nodes: Annotated[int, typer.Option(min=10, max=100_000, help="Nodes of 8 GPUs.")] = 5000,
    pods: Annotated[int, typer.Option(min=20, max=1_000_000, help="Pods; one in ten is pending.")] = 50_000,
    lists: Annotated[bool, typer.Option(help="Measure also without a leader that answers.")] = True,
    output: OutputOption = Output.TABLE,
) -> None:
    """Duration of `queue`, `nodes`, `share`, `top` and `explain` on a large cluster. Needs a checkout with its testbed."""
    find_checkout()
    from testbed import overviews as measured

    try:
        result = measured.run(nodes, pods, lists=lists, progress=lambda step: typer.echo(step, err=True))
    except measured.MeasuringError as error:
        fail(str(error))

    def table() -> None:
        rows: list[dict[str, object]] = [{"command": name, **msgspec.to_builtins(each)} for name, each in result.commands.items()]
        print_table(f"{nodes} nodes, {pods} pods", list(rows))

    emit(result, output, table)


@app.command()
def answers(
    scenario: Annotated[AnswersScenario, typer.Option(help="The request to measure.")] = "verdict",
    nodes: Annotated[int, typer.Option(min=10, max=10_000, help="Nodes of 8 GPUs, all allocated.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Number of requests.")] = 5,
    output: OutputOption = Output.TABLE,
) -> None:
    """Latency of a refusal or a reclaim on a full cluster, on a real API server. Needs a checkout with its testbed."""
    find_checkout()
    from testbed import answers as measured

    try:
        result = measured.run(scenario, nodes, repeats, lambda step: typer.echo(step, err=True))
    except measured.AnswersError as error:
        fail(str(error))
    rows = {"nodes": nodes, "running": result.running, "median ms": result.median_milliseconds}
    emit(result, output, lambda: print_table(f"answers: {scenario}", rows))


@app.command()
def metrics(
    queues: Annotated[int, typer.Option(min=1, max=10_000, help="Queues with quota and limit of three resources.")] = 1000,
    jobs: Annotated[int, typer.Option(min=1, max=200_000, help="Jobs of one GPU; half of them run.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Number of scrapes.")] = 10,
    output: OutputOption = Output.TABLE,
) -> None:
    """Number of series at /metrics, and the duration of a scrape over HTTP."""
    from fairlead.simulation import scrape

    result = scrape.run(queues, jobs, repeats)
    emit(result, output, lambda: print_table("bench metrics", msgspec.to_builtins(result)))


@app.command()
def hpa(
    metric: Annotated[HpaMetric, typer.Option(help="cpu, or queue (served by Fairlead).")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, max=50, help="Number of scale-ups and scale-downs.")] = 3,
    output: OutputOption = Output.TABLE,
) -> None:
    """Time of a real HorizontalPodAutoscaler to scale 2 -> 5 -> 2. Needs a checkout with its testbed."""
    find_checkout()
    from fairlead.simulation.lab import quiet
    from testbed import hpa as measured

    quiet()
    try:
        result = measured.run(metric, repeats, lambda step: typer.echo(step, err=True))
    except measured.HpaError as error:
        fail(str(error))
    emit(result, output, lambda: print_table(f"hpa: {metric}", msgspec.to_builtins(result)))
    if not result.within:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def platform(
    scenario: Annotated[PlatformScenario, typer.Option(help="The scenario to check.")] = "defaults",
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a default installation (components, quotas, alerts) on a real API server. Needs a checkout with its testbed."""
    find_checkout()
    from fairlead.simulation.lab import quiet
    from testbed import platform as measured

    quiet()
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
    """Attacks of an ordinary tenant on a real API server, and their outcome. Needs a checkout with its testbed."""
    root = find_checkout()
    from testbed import attacks as tried

    known = tried.catalogue()
    wanted = {each.strip() for each in only.split(",") if each.strip()}
    unknown = wanted - {name for attack in known for name in (attack.id, attack.subject)}
    if unknown:
        fail(f"--only {', '.join(sorted(unknown))}: unknown attack or subject", Exit.USAGE)
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
def probes(
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Number of questions.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the questions and of the tenants' names.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Questions of a user of one namespace: leaks, and what is wrongly refused or allowed. Needs a checkout with its testbed."""
    find_checkout()
    from fairlead.cli.output import progress
    from testbed import probes as asked

    try:
        with progress("asking") as report:
            result = asked.run(count, seed, report)
    except asked.ProbesError as error:
        fail(str(error))
    rows = {"count": result.count, "allowed": result.allowed, "leaks": len(result.leaks)}
    rows |= {"wrongly refused": len(result.wrongly_refused), "wrongly allowed": len(result.wrongly_allowed)}
    emit(result, output, lambda: print_table("bench probes", rows))
    if not result.clean:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def kills(
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Number of kills.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the times of the kills.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kill -9 of the scheduler mid-burst on a real control plane. Needs a checkout with its testbed."""
    import tempfile

    find_checkout()
    from testbed import kills as bench
    from testbed.controlplane import ControlPlane

    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder, ControlPlane() as plane:
        plane.install(bench.USER)
        result = bench.run(plane, count, seed, Path(folder))
    emit(result, output, lambda: print_table("bench kills", msgspec.to_builtins(result)))
    if not result.clean:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def takeover(
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Number of kills.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the times of the kills.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kill -9 of leaders with a standby, on a real control plane, while work arrives. Needs a checkout with its testbed."""
    find_checkout()
    from testbed import takeover as measured
    from testbed.replicas import ReplicasError

    try:
        result = measured.run(count, seed, lambda step: typer.echo(step, err=True))
    except ReplicasError as error:
        fail(str(error))
    emit(result, output, lambda: print_table("bench takeover", msgspec.to_builtins(result)))
    if not result.holds:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def upgrade(
    rate: Annotated[float, typer.Option(min=1.0, max=2000.0, help="Pods created per second.")] = 200.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """A rolling upgrade of both processes while pods arrive, on a real control plane. Needs a checkout with its testbed."""
    find_checkout()
    from testbed import upgrade as measured
    from testbed.replicas import ReplicasError

    try:
        result = measured.run(rate, lambda step: typer.echo(step, err=True))
    except ReplicasError as error:
        fail(str(error))
    emit(result, output, lambda: print_table("bench upgrade", msgspec.to_builtins(result)))
    if not result.holds:
        raise typer.Exit(int(Exit.FAILED))


@app.command("first-job")
def first_job(output: OutputOption = Output.TABLE) -> None:
    """From an empty real control plane to a first AIJob that runs, by the README. Needs root and a checkout with its testbed."""
    find_checkout()
    from testbed import first_job as measured

    try:
        result = measured.run(lambda step: typer.echo(step, err=True))
    except measured.FirstJobError as error:
        fail(str(error))
    rows = {"commands": result.commands, "seconds": result.seconds}
    emit(result, output, lambda: print_table("bench first-job", rows))
    if not result.holds:
        raise typer.Exit(int(Exit.FAILED))


class ContractResult(msgspec.Struct):
    """Cases passed on each API server."""

    cases: int
    simulated_passed: int
    real_passed: int
    failed: list[str]


@app.command()
def contract(output: OutputOption = Output.TABLE) -> None:
    """The contract suite on the simulated and on the real API server. Needs a checkout with its testbed."""
    import subprocess
    import tempfile
    import xml.etree.ElementTree as ET

    root = find_checkout()
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
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603 - our own tests
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
