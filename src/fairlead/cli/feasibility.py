"""`fairlead feasibility`: where could a pod run, and what rules out the rest.

With `--cases` it judges clusters given as files, one per line of JSON; with `pod/NAME` a pod of a live cluster. Both
ask the filters, scores and preemption of profile `kubernetes`, which are kube-scheduler's own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli.connection import KubeconfigOption, default_namespace, run
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail
from fairlead.cluster import storage_views, views, workloads

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairlead.cluster import cases
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.core.feasibility import Judgement
    from fairlead.core.pods.tasks import Task

_KINDS = ("pod", "pods", "po")
_SHOWN = 10
_EXAMPLES = 3

# Field of a case -> path and view of what fills it on a live cluster; what may be missing narrows the answer only.
_NEEDED: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "nodes": ("/api/v1/nodes", views.Node),
    "pods": ("/api/v1/pods", views.Pod),
}
_HELPFUL: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "namespaces": ("/api/v1/namespaces", views.Namespace),
    "services": ("/api/v1/services", workloads.PlainWorkload),
    "replication_controllers": ("/api/v1/replicationcontrollers", workloads.PlainWorkload),
    "replica_sets": ("/apis/apps/v1/replicasets", workloads.Workload),
    "stateful_sets": ("/apis/apps/v1/statefulsets", workloads.Workload),
    "persistent_volumes": ("/api/v1/persistentvolumes", storage_views.Volume),
    "persistent_volume_claims": ("/api/v1/persistentvolumeclaims", storage_views.Claim),
    "storage_classes": ("/apis/storage.k8s.io/v1/storageclasses", storage_views.StorageClass),
    "csi_nodes": ("/apis/storage.k8s.io/v1/csinodes", storage_views.NodeDrivers),
    "csi_drivers": ("/apis/storage.k8s.io/v1/csidrivers", storage_views.Driver),
    "csi_storage_capacities": ("/apis/storage.k8s.io/v1/csistoragecapacities", storage_views.StorageCapacity),
    "volume_attachments": ("/apis/storage.k8s.io/v1/volumeattachments", storage_views.Attachment),
    "pod_disruption_budgets": ("/apis/policy/v1/poddisruptionbudgets", views.Budget),
}


class Refused(msgspec.Struct, frozen=True):
    """Nodes that are out for the same reason."""

    plugin: str
    message: str
    nodes: list[str]


class Report(msgspec.Struct, frozen=True):
    """One pod of a live cluster. total: node -> sum of its scores; refused: the other nodes by reason, most first."""

    pod: str
    node: str
    nodes: int
    feasible: list[str]
    rejects: dict[str, str]
    scores: dict[str, dict[str, int]]
    total: dict[str, int]
    refused: list[Refused]
    preempts: dict[str, Any] | None
    gated: bool


def feasibility(
    name: Annotated[str, typer.Argument(metavar="[pod/NAME]", help="A pod of the live cluster.", show_default=False)] = "",
    cases_file: Annotated[
        str, typer.Option("--cases", metavar="FILE|-", help="Evaluate clusters given as JSON lines instead; - is standard input.")
    ] = "",
    kubeconfig: KubeconfigOption = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The pod's namespace; default: the kubeconfig's.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="List every node.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """The nodes on which a pod could run with their scores, what excludes the others, and which pods it might preempt."""
    if bool(name) == bool(cases_file):
        fail("give either pod/NAME or --cases FILE", Exit.USAGE)
    if cases_file:
        _judge_cases(cases_file)
        return
    kind, slash, plain = name.partition("/")
    if not slash or kind.lower() not in _KINDS or not plain:
        fail(f"{name!r} is not pod/NAME", Exit.USAGE)
    report = _judge_live(kubeconfig, namespace, plain)
    emit(report, output, lambda: console().print(_drawing(report, everything=everything)))


# -- files ------------------------------------------------------------------------------------------


def _judge_cases(file: str) -> None:
    from fairlead.cluster import cases

    try:
        source: IO[bytes] = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", Exit.NOT_FOUND)
    bad = 0
    with source:
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                answer = describe(cases.decode(line))
            except ValueError as error:
                bad += 1
                typer.echo(f"fairlead: line {number}: {error}", err=True)
                continue
            sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
            sys.stdout.flush()
    if bad:
        fail(f"{bad} lines could not be read", Exit.FAILED)


def describe(case: cases.Case) -> dict[str, Any]:
    """The judgements of a case in the form that is printed."""
    from fairlead.cluster import cases

    return {"id": case.id, "pods": [_described(task, judgement) for task, judgement in cases.Loaded(case).judgements()]}


def _described(task: Task, judgement: Judgement) -> dict[str, Any]:
    preempts = judgement.preempts
    return {
        "pod": task.pod.key,
        "feasible": list(judgement.feasible),
        "rejects": {node: rejection.plugin for node, rejection in judgement.rejects.items()},
        "scores": judgement.scores,
        "preempts": {"node": preempts.node, "victims": list(preempts.victims)} if preempts else None,
        "gated": judgement.gated,
    }


# -- live -------------------------------------------------------------------------------------------


def _judge_live(kubeconfig: str, namespace: str, name: str) -> Report:
    from fairlead.cluster import cases

    if not namespace:
        namespace = default_namespace(kubeconfig)
    fields = run(kubeconfig, _read)
    pods: list[views.Pod] = fields["pods"]
    view = next((each for each in pods if (each.metadata.namespace, each.metadata.name) == (namespace, name)), None)
    if view is None:
        fail(f"pod {namespace}/{name} does not exist (another namespace? give --namespace)", Exit.NOT_FOUND)
    node = view.spec.node_name
    # A pod that runs is judged as if it were still to be placed, and not there.
    view.spec.node_name = ""
    if view.status is not None:
        view.status.phase = "Pending"
    loaded = cases.Loaded(cases.Case(**fields))
    task = loaded.state.tasks[view.metadata.uid]
    return _report(task, loaded.judgement(task), node, len(loaded.state.nodes))


async def _read(client: Client) -> dict[str, list[Any]]:
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.listing import list_all

    async def listed(path: str, view: type[msgspec.Struct], *, needed: bool) -> list[Any]:
        try:
            return await list_all(client, path, view)
        except ApiError as error:
            if needed or error.code not in (403, 404):
                raise
            typer.echo(f"fairlead: evaluated without {path.rpartition('/')[2]}: {error.message}", err=True)
            return []

    everything = {**_NEEDED, **_HELPFUL}
    found = await asyncio.gather(*(listed(path, view, needed=field in _NEEDED) for field, (path, view) in everything.items()))
    return dict(zip(everything, found, strict=True))


def _report(task: Task, judgement: Judgement, node: str, nodes: int) -> Report:
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, rejection in judgement.rejects.items():
        reasons[rejection.plugin, rejection.message].append(name)
    refused = [Refused(plugin, message, names) for (plugin, message), names in reasons.items()]
    refused.sort(key=lambda each: (-len(each.nodes), each.plugin, each.message))
    described = _described(task, judgement)
    total = {name: sum(scores.values()) for name, scores in judgement.scores.items()}
    return Report(
        pod=described["pod"],
        node=node,
        nodes=nodes,
        feasible=sorted(judgement.feasible, key=lambda name: (-total.get(name, 0), name)),
        rejects=described["rejects"],
        scores=described["scores"],
        total=total,
        refused=refused,
        preempts=described["preempts"],
        gated=judgement.gated,
    )


def _drawing(report: Report, *, everything: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if report.gated:
        return Text(f"{report.pod} has scheduling gates. They must be removed first.")
    headline = Text.assemble(
        (f"{report.pod} could run on {len(report.feasible)} of {report.nodes} nodes", "bold"),
        f"; it runs on {report.node}." if report.node else ".",
    )
    parts: list[RenderableType] = [headline]
    if report.feasible:
        shown = report.feasible if everything else report.feasible[:_SHOWN]
        plugins = sorted({plugin for scores in report.scores.values() for plugin, score in scores.items() if score})
        columns = [
            Column("NODE", flexible=True),
            Column("SCORE", right=True),
            *(Column(_short(each), right=True) for each in plugins),
        ]
        rows = [
            [name, str(report.total.get(name, 0)), *(str(report.scores.get(name, {}).get(plugin, "")) for plugin in plugins)]
            for name in shown
        ]
        parts += [Text(), Listing(columns, rows)]
        if len(shown) < len(report.feasible):
            parts.append(Text(f"and {len(report.feasible) - len(shown)} more (--all lists them)", "dim"))
    if report.refused:
        columns = [
            Column("NODES", right=True),
            Column("EXCLUDED BY"),
            Column("WHY", flexible=True, least=30),
            Column("E.G.", flexible=True),
        ]
        rows = [
            [str(len(each.nodes)), each.plugin, each.message, ", ".join(each.nodes if everything else each.nodes[:_EXAMPLES])]
            for each in report.refused
        ]
        parts += [Text(), Listing(columns, rows)]
    if report.preempts:
        victims = ", ".join(report.preempts["victims"])
        parts += [Text(), Text(f"It might preempt {victims} on {report.preempts['node']}.")]
    return Group(*parts)


def _short(plugin: str) -> str:
    return {
        "NodeResourcesFit": "FIT",
        "NodeResourcesBalancedAllocation": "BALANCE",
        "TaintToleration": "TAINTS",
        "NodeAffinity": "NODE AFFINITY",
        "PodTopologySpread": "SPREAD",
        "InterPodAffinity": "POD AFFINITY",
        "ImageLocality": "IMAGES",
    }.get(plugin, plugin)
