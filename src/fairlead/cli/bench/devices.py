"""Devices: the allocator against upstream's, on hard instances, for gangs, beside kube-scheduler; and mig-manager."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from fairlead.cli.bench.common import app, find_checkout
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail, print_table, progress
from fairlead.cli.seeds import seeds_of


@app.command()
def dra(
    differential: Annotated[
        bool, typer.Option("--differential", help="Compare with upstream's allocators on random clusters.")
    ] = False,
    seeds: Annotated[str, typer.Option(help="First and last seed of --differential.")] = "0-1999",
    hard: Annotated[bool, typer.Option("--hard", help="Hard instances, compared with an integer program.")] = False,
    instances: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many of --hard.")] = 1000,
    irregular: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="So many pods with constraints on irregular partitions, compared likewise.")
    ] = 0,
    gangs: Annotated[int, typer.Option(min=0, max=1_000_000, help="So many gangs that can be placed only as a whole.")] = 0,
    slices: Annotated[int, typer.Option(min=0, max=1_000_000, help="What so many slices cost: pools, changes, questions.")] = 0,
    api: Annotated[bool, typer.Option("--api", help="Side by side with kube-scheduler on a real API server.")] = False,
    one_pass: Annotated[
        bool, typer.Option("--pass", help="What a pod costs the core in a pass, by what claims differ in.")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, max=10_000, help="Nodes of --api and --pass.")] = 500,
    pods: Annotated[int, typer.Option(min=2, max=100_000, help="Pods of --api and --pass; each has a claim.")] = 2500,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds of --api, the schedulers alternating.")] = 3,
    output: OutputOption = Output.TABLE,
) -> None:
    """Allocation of devices (DRA): one of --differential, --hard, --irregular, --gangs, --slices, --pass and --api."""
    if differential + hard + bool(irregular) + bool(gangs) + bool(slices) + one_pass + api != 1:
        fail("name one of --differential, --hard, --irregular N, --gangs N, --slices N, --pass and --api", Exit.USAGE)
    find_checkout()
    if api:
        _on_api_server(nodes, pods, rounds, output)
        return
    if differential:
        from testbed.dra import differential as bench

        chosen = seeds_of(seeds)
        with progress("clusters") as report:
            compared = bench.run(chosen, report)
        emit(compared, output, lambda: print_table("bench dra --differential", msgspec.to_builtins(compared)))
        failed = compared.different or compared.refused_allocations
    elif hard or irregular:
        from testbed.dra import hard as instances_
        from testbed.dra import irregular as partitions

        with progress("instances") as report:
            judged = instances_.run(irregular or instances, report, kinds=(partitions.irregular,) if irregular else None)
        title = "bench dra --irregular" if irregular else "bench dra --hard"
        emit(judged, output, lambda: print_table(title, msgspec.to_builtins(judged)))
        failed = judged.wrong_verdicts or judged.gave_up
    elif one_pass:
        from testbed.dra import passes

        with progress("kinds of claims") as report:
            costs = passes.run(nodes, pods, report)
        emit(costs, output, lambda: print_table("bench dra --pass", msgspec.to_builtins(costs)))
        failed = costs.placed < len(costs.ms_per_pod) * min(pods, nodes * passes.GPUS)
    elif slices:
        from testbed.dra import slices as many

        with progress("kinds of slices") as report:
            measured = many.run(slices, report)
        emit(measured, output, lambda: print_table("bench dra --slices", msgspec.to_builtins(measured)))
        failed = 0
    else:
        from testbed.dra import gangs as groups

        with progress("gangs") as report:
            placed = groups.run(gangs, report)
        emit(placed, output, lambda: print_table("bench dra --gangs", msgspec.to_builtins(placed)))
        failed = placed.placed < placed.gangs
    if failed:
        raise typer.Exit(int(Exit.FAILED))


@app.command()
def mig(
    simulated: Annotated[
        bool, typer.Option("--simulated", help="On the simulated API server, on virtual time; else on a real one of the testbed.")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, max=1000, help="Nodes of 8 GPUs.")] = 16,
    pods: Annotated[int, typer.Option(min=1, max=100_000, help="Pods of one partition, in phases of 250.")] = 1000,
    load: Annotated[float, typer.Option(min=0.05, max=5.0, help="Requested share of the compute slices.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Seed of the pods, and of what fails.")] = 1,
    static: Annotated[bool, typer.Option("--static", help="Without reconfigurations, for comparison.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Idle nodes reconfigured through a played mig-manager, for pods that wait for MIG partitions.

    A real API server needs a checkout with its testbed; its spans of time are a twentieth, but for settle (5 s).
    """
    from fairlead.simulation.mig import reconfigured

    stream = reconfigured.Stream(nodes=nodes, pods=pods, load=load, seed=seed, static=static)
    if simulated:
        found = reconfigured.simulate(stream, lambda step: typer.echo(step, err=True))
    else:
        find_checkout()
        from testbed import mig as real

        found = real.run(reconfigured.faster(stream, 20.0), lambda step: typer.echo(step, err=True))
    emit(found, output, lambda: print_table("bench mig", msgspec.to_builtins(found)))
    if found.running_pods_hit or found.reconfigurations_per_pod > reconfigured.MOST_PER_POD:
        raise typer.Exit(int(Exit.FAILED))


def _on_api_server(nodes: int, pods: int, rounds: int, output: Output) -> None:
    from testbed import claims
    from testbed.bench import BenchError

    with progress("runs") as report:
        try:
            result = claims.run(nodes, pods, rounds, report)
        except BenchError as error:
            fail(str(error))

    def table() -> None:
        rows: list[dict[str, object]] = [
            {
                "workload": kind,
                "scheduler": name,
                "pods/s": each.pods_per_second,
                "p50 ms": each.p50_ms,
                "p99 ms": each.p99_ms,
                "CPU s": each.cpu_seconds,
                "writes/pod": each.writes_per_pod,
                "ratio": result.ratios[kind] if name == "fairlead" else "-",
            }
            for kind, of_kind in result.measured.items()
            for name, each in of_kind.items()
        ]
        print_table(f"bench dra --api: {nodes} nodes, {pods} pods with claims", list(rows))
        costs = (f"{name} {100 * cost:.0f} %" for name, cost in result.match_attribute_cost.items())
        typer.echo(f"one matchAttribute costs: {', '.join(costs)}")

    emit(result, output, table)
