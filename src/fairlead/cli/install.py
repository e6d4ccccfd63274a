"""`fairlead install`, `fairlead uninstall`: Fairlead in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connection import KubeconfigOption, run
from fairlead.cli.output import Exit, Output, OutputOption, emit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.install.preflight import Preflight

TimeoutOption = Annotated[float, typer.Option(min=0, max=3600, help="Seconds to wait for the pods of both processes.")]


def install(
    image: Annotated[
        str, typer.Option(help="Image of Fairlead that the cluster can pull.", show_default="that of --values")
    ] = "",
    values: Annotated[
        Path | None, typer.Option("--values", "-f", help="YAML file of choices (docs/install.md).", show_default="none")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only ask whether the cluster has what is needed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the objects for kubectl apply -f - instead.")] = False,
    timeout: TimeoutOption = 120.0,
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Install scheduler and operator, or bring an installation to this version and these values."""
    from fairlead.api import crds
    from fairlead.install import ValuesError, installed
    from fairlead.install.values import read

    if check and dry_run:
        raise typer.BadParameter("--check and --dry-run exclude each other")
    try:
        manifests = installed(read(values, image))
    except ValuesError as error:
        fail(str(error), Exit.USAGE)
    if dry_run:
        listing = {"apiVersion": "v1", "kind": "List", "items": manifests}
        emit(
            listing, Output.JSON if output is Output.JSON else Output.TABLE, lambda: typer.echo(crds.render(manifests), nl=False)
        )
    elif check:
        _check(manifests, kubeconfig, output)
    else:
        _apply(manifests, kubeconfig, timeout, output)


def uninstall(
    name: Annotated[str, typer.Option(help="Release to remove, as `name` in its values.")] = "fairlead",
    crds: Annotated[
        bool,
        typer.Option("--crds", help="Remove the CustomResourceDefinitions, too, and with them all AIJobs, Queues and others."),
    ] = False,
    timeout: TimeoutOption = 120.0,
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove what `fairlead install` made. Workloads, custom resources and the volume of the history stay."""
    from fairlead.api.names import FIRST_RELEASE
    from fairlead.install.apply import InstallError, Removal, remove

    if crds and name != FIRST_RELEASE:
        fail(f"--crds: the definitions are those of the release {FIRST_RELEASE}, not of {name}", Exit.USAGE)

    async def work(client: Client) -> Removal:
        return await remove(client, definitions=crds, limit=timeout, release=name)

    try:
        found: Removal = run(kubeconfig, work, writes=True)
    except InstallError as error:
        fail(str(error))
    emit(found, output, lambda: typer.echo(_count("removed", found.removed)))
    for namespace in found.kept:
        typer.echo(f"namespace {namespace} stays: it contains objects of others, or the volume of the history", err=True)


def _apply(manifests: list[dict[str, Any]], kubeconfig: str, timeout: float, output: Output) -> None:
    from fairlead.cli.output import progress
    from fairlead.install.apply import InstallError, apply, name, running
    from fairlead.install.preflight import preflight

    async def work(client: Client) -> tuple[list[str], list[str]]:
        failed = [each for each in (await preflight(client, manifests)).checks if each.result == "failed"]
        if failed:
            raise InstallError("\n".join(["nothing is applied", *(f"{each.name}: {each.message}" for each in failed)]))
        with progress("applying") as report:
            removed = await apply(client, manifests, report)
        typer.echo(f"{len(manifests)} objects are applied; waiting for scheduler and operator", err=True)
        return removed, await running(client, manifests, timeout)

    try:
        removed, why = run(kubeconfig, work, writes=True)
    except InstallError as error:
        fail(str(error))
    result = {"applied": [name(each) for each in manifests], "removed": removed, "obstacles": why}
    emit(result, output, lambda: typer.echo(f"{_count('applied', result['applied'])}; {_count('removed', removed)}"))
    if why:
        fail("\n".join([f"scheduler and operator do not run after {timeout:g} s", *why]))


def _check(manifests: list[dict[str, Any]], kubeconfig: str, output: Output) -> None:
    from fairlead.install.preflight import preflight

    async def work(client: Client) -> Preflight:
        return await preflight(client, manifests)

    found: Preflight = run(kubeconfig, work, writes=True)
    emit(found, output, lambda: typer.echo("\n".join(f"{each.result:<7} {each.name}: {each.message}" for each in found.checks)))
    if not found.ready:
        raise typer.Exit(int(Exit.FAILED))


def _count(what: str, names: list[str]) -> str:
    return f"{what}: {len(names)} {'object' if len(names) == 1 else 'objects'}"
