"""`fairlead devices`: the devices of Dynamic Resource Allocation, who holds them, and why a claim does not fit."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.cli.connection import KubeconfigOption, default_namespace, run
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead.cluster import device_views, views
    from fairlead.cluster.device_overview import DeviceLine, Devices, Fit, Holder
    from fairlead.cluster.kubernetes.client import Client

_GROUP = "/apis/resource.k8s.io/v1"
_STYLES = {"free": "green", "shared": "cyan", "allocated": "blue", "blocked": "yellow", "tainted": "red", "withdrawn": "red"}


class ClaimFit(msgspec.Struct, frozen=True):
    """A claim, what a template makes, or an extended resource. held: devices of a claim that is allocated; then it has no nodes.

    device_class: of an extended resource, whose devices serve it; empty: none does.
    """

    name: str
    kind: str
    allocated: bool
    held: list[str] = []
    pods: list[str] = []
    nodes: list[Fit] = []
    device_class: str = ""


class Shown(msgspec.Struct, frozen=True):
    """The result of the command. mistakes: objects that cannot be read, and pools that give no devices, each with why."""

    devices: list[DeviceLine]
    mistakes: list[str]
    claim: ClaimFit | None = None


class _Read(msgspec.Struct):
    """What the command reads."""

    nodes: list[views.Node]
    slices: list[device_views.ResourceSlice]
    classes: list[device_views.DeviceClass]
    claims: list[device_views.ResourceClaim]
    templates: list[device_views.ResourceClaimTemplate]
    unread: list[str]


def devices(
    kubeconfig: KubeconfigOption = "",
    node: Annotated[str, typer.Option("--node", help="Only devices that this node can use.")] = "",
    driver: Annotated[str, typer.Option("--driver", help="Only devices of this driver.")] = "",
    claim: Annotated[
        str, typer.Option("--claim", help="A ResourceClaim, or a ResourceClaimTemplate: where it fits, and why not elsewhere.")
    ] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of the claim.", show_default="of the kubeconfig")] = "",
    resource: Annotated[
        str,
        typer.Option("--resource", help="An extended resource: where it is had, from device plugins or devices of a class."),
    ] = "",
    count: Annotated[int, typer.Option("--count", min=1, help="How much of the resource.")] = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Devices of Dynamic Resource Allocation: nodes, partitions and holders; with --claim why a claim does not fit."""
    if claim and resource:
        fail("--claim and --resource exclude each other: ask for one of them", Exit.USAGE)
    if claim and not namespace:
        namespace = default_namespace(kubeconfig)

    async def read(client: Client) -> _Read:
        with progress("listing devices") as report:
            return await _read(client, namespace if claim else "", report)

    found: _Read = run(kubeconfig, read)
    if node and not any(each.metadata.name == node for each in found.nodes):
        fail(f"node {node!r} does not exist (`fairlead nodes` lists them)", Exit.NOT_FOUND)
    from fairlead.cluster.convert import node as node_of
    from fairlead.cluster.device_overview import Devices

    nodes = [node_of(each) for each in found.nodes if node in ("", each.metadata.name)]
    known = Devices(nodes, found.slices, found.classes, found.claims, everywhere=not node)
    fit = _claim(known, found, namespace, claim) if claim else None
    if resource:
        nodes_with_it, device_class = known.serves(resource, count), known.class_of(resource)
        fit = ClaimFit(resource, "Resource", allocated=False, nodes=nodes_with_it, device_class=device_class)
    lines = [each for each in known.lines() if driver in ("", each.driver)]
    shown = Shown(lines, sorted(found.unread) + known.mistakes, fit)
    emit(shown, output, lambda: _print(shown))


async def _read(client: Client, namespace: str, report: Callable[[int, int], None]) -> _Read:
    """Everything that is about devices; templates only of a namespace, where one is given."""
    from fairlead.cluster import device_views, views
    from fairlead.cluster.kinds import NODE
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.listing import list_all

    unread: list[str] = []
    try:
        slices = await list_all(client, f"{_GROUP}/resourceslices", device_views.ResourceSlice, report, unread=unread)
    except ApiError as error:
        if error.code != 404:
            raise
        fail("the API server does not serve resource.k8s.io/v1: Kubernetes 1.34 and later does", Exit.NOT_FOUND)
    nodes, classes, claims = await asyncio.gather(
        list_all(client, NODE.path, views.Node),
        list_all(client, f"{_GROUP}/deviceclasses", device_views.DeviceClass, unread=unread),
        list_all(client, f"{_GROUP}/resourceclaims", device_views.ResourceClaim, unread=unread),
    )
    templates = []
    if namespace:
        path = f"{_GROUP}/namespaces/{namespace}/resourceclaimtemplates"
        templates = await list_all(client, path, device_views.ResourceClaimTemplate, unread=unread)
    return _Read(nodes, slices, classes, claims, templates, unread)


def _claim(known: Devices, found: _Read, namespace: str, name: str) -> ClaimFit:
    """What becomes of a claim, or of a template of that name where there is no such claim."""
    from fairlead.cluster.device_overview import reserved_for
    from fairlead.cluster.device_views import device_claim

    wanted = namespace, name
    claim = next((each for each in found.claims if (each.metadata.namespace, each.metadata.name) == wanted), None)
    template = next((each for each in found.templates if each.metadata.name == name), None)
    if claim is None and template is None:
        fail(f"there is no ResourceClaim and no ResourceClaimTemplate {name!r} in namespace {namespace!r}", Exit.NOT_FOUND)
    if claim is None:
        nodes = known.fits(device_claim(template.metadata, template.spec.spec)) if template is not None else []
        return ClaimFit(f"{namespace}/{name}", "ResourceClaimTemplate", allocated=False, nodes=nodes)
    status = claim.status
    if status is None or status.allocation is None:
        nodes = known.fits(device_claim(claim.metadata, claim.spec))
        return ClaimFit(f"{namespace}/{name}", "ResourceClaim", allocated=False, nodes=nodes)
    held = [f"{each.driver}/{each.pool}/{each.device}" for each in status.allocation.devices.results or ()]
    return ClaimFit(f"{namespace}/{name}", "ResourceClaim", allocated=True, held=held, pods=reserved_for(claim))


def _print(shown: Shown) -> None:
    out = console()
    if shown.claim is None:
        out.print(_table(shown.devices), crop=out.is_terminal)
        if not shown.devices:
            typer.echo("no devices: no ResourceSlice is published for these nodes", err=True)
    elif shown.claim.allocated:
        pods = ", ".join(shown.claim.pods) or "no pod"
        typer.echo(f"{shown.claim.name} holds {', '.join(shown.claim.held) or 'no device'}, reserved for {pods}")
    else:
        out.print(_fits(shown.claim.nodes), crop=out.is_terminal)
        fitting = sum(each.fits for each in shown.claim.nodes)
        nodes = f"{fitting} of {len(shown.claim.nodes)} nodes with {_source(shown.claim)}"
        typer.echo(f"{shown.claim.kind} {shown.claim.name} fits {nodes}")
    for each in shown.mistakes:
        typer.echo(f"warning: {each}", err=True)


def _source(claim: ClaimFit) -> str:
    if claim.kind != "Resource":
        return "devices"
    devices = f"devices (class {claim.device_class})" if claim.device_class else "devices (no DeviceClass serves it)"
    return f"device plugins or {devices}"


def _table(lines: list[DeviceLine]) -> Listing:
    from rich.text import Text

    columns = [
        Column("NODE", flexible=True, least=12),
        Column("DRIVER", flexible=True, least=8),
        Column("DEVICE", flexible=True, least=8),
        Column("WHAT", flexible=True, least=8),
        Column("STATE"),
        Column("HELD BY", flexible=True, least=12),
    ]
    rows = [
        [
            Text(each.node or (f"({each.nodes} nodes)" if each.nodes else "-")),
            Text(each.driver),
            Text(each.device if each.pool == each.node else f"{each.pool}/{each.device}"),
            Text(each.description),
            Text(each.state, _STYLES[each.state]),
            Text(", ".join(_held(holder) for holder in each.holders) or ", ".join(each.taints)),
        ]
        for each in lines
    ]
    return Listing(columns, rows)


def _held(holder: Holder) -> str:
    pods = f" ({', '.join(each.partition('/')[2] for each in holder.pods)})" if holder.pods else ""
    resources = f" for {', '.join(holder.resources)}" if holder.resources else ""
    return f"{holder.claim}{pods}{resources}"


def _fits(nodes: list[Fit]) -> Listing:
    from rich.text import Text

    columns = [Column("NODE", flexible=True, least=12), Column("FITS"), Column("DEVICES, OR WHY NOT", flexible=True, least=20)]
    same = Counter(each.reason for each in nodes)
    rows = []
    for each in nodes:
        if each.fits:
            rows.append([Text(each.node), Text("yes", "green"), Text(_given(each.devices) or each.reason)])
        elif same[each.reason]:
            count = same.pop(each.reason)
            name = each.node if count == 1 else f"{each.node} and {count - 1} more"
            rows.append([Text(name), Text("no", "red"), Text(each.reason)])
    return Listing(columns, rows)


def _given(devices: dict[str, list[str]]) -> str:
    return "; ".join(f"{request}: {', '.join(each.rpartition('/')[2] for each in found)}" for request, found in devices.items())
