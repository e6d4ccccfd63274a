"""`fairlead whatif`: what the scheduler would do if a cluster were different. Nothing is touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli import leader
from fairlead.cli.configured import VARIABLE, adopt
from fairlead.cli.connection import KubeconfigOption, run, span
from fairlead.cli.listing import Column, Listing
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.cluster.translate import Objects
    from fairlead.core.model.policy import Policy
    from fairlead.simulation.asked import Question
    from fairlead.simulation.whatif import Outcome, WhatIf

_MOST_BYTES = 1 << 30
_FORBIDDEN = 403


def whatif(
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="Manifests to submit or change; may be repeated.")
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="Quota as QUEUE:RESOURCE=AMOUNT; RESOURCE@POOL for one pool; may be repeated.")
    ] = None,
    limit: Annotated[list[str] | None, typer.Option(help="Limit as QUEUE:RESOURCE=AMOUNT; may be repeated.")] = None,
    add_nodes: Annotated[str, typer.Option(help="Additional nodes, as COUNT or COUNT:NODE (copies of NODE).")] = "",
    drain: Annotated[list[str] | None, typer.Option(help="A node to remove; may be repeated.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar=VARIABLE,
            help="The scheduler's current configuration file. The leader, where it answers, knows its own.",
        ),
    ] = None,
    new_config: Annotated[
        Path | None, typer.Option(help="The configuration file to simulate. Needs the right to list the cluster.")
    ] = None,
    snapshot: Annotated[Path | None, typer.Option(help="Read the cluster from this snapshot instead.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write a snapshot of the cluster to this file. Needs the right to list the cluster.")
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Of manifests that name none; and where you may not list the cluster: as of this namespace.",
            show_default="of the kubeconfig",
        ),
    ] = "",
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Simulate a change of the cluster: which jobs would start, which pods would be evicted, how long queues would wait.

    Where you may not list the cluster the leader simulates it, and shows other namespaces' jobs as counts.
    """
    from fairlead.simulation.asked import Question

    adopt(config)
    manifests = [manifest for path in file or () for manifest in _manifests(path)]
    question = Question(manifests, quota or [], limit or [], add_nodes, drain or [])
    _check(question)
    policy, then = (_policy(path) if path is not None else None for path in (config, new_config))
    simulation = _Simulation(question, policy, then, save)
    if snapshot is not None:
        result = simulation.of(_snapshot(snapshot), namespace or "default")
    else:
        result = run(kubeconfig, lambda client: _answered(client, simulation, namespace))
    emit(result, output, lambda: _show(result))


def _check(question: Question) -> None:
    """End with wrong usage where a change cannot be read, before the cluster is."""
    from fairlead.simulation.whatif import WhatIfError, amount_of, count_of

    try:
        for field, texts in (("quota", question.quota), ("limit", question.limit)):
            for text in texts:
                amount_of(field, text)
        if question.add_nodes:
            count_of(question.add_nodes)
    except WhatIfError as error:
        fail(str(error), Exit.USAGE)


class _Simulation(msgspec.Struct, frozen=True):
    """A question that is played here, on all objects of a cluster.

    policy: the cluster's; None: the default. then: the policy to simulate; None: the same. save: file for the objects as read.
    """

    question: Question
    policy: Policy | None
    then: Policy | None
    save: Path | None

    def of(self, objects: Objects, namespace: str) -> WhatIf:
        """The result; ends the command where something that is changed does not exist. namespace: of what names none."""
        from fairlead.cluster import gpu_parts
        from fairlead.core.model.policy import Policy
        from fairlead.simulation import whatif as trial

        if self.save is not None:
            try:
                self.save.write_bytes(msgspec.json.encode(objects))
            except OSError as error:
                fail(f"--save {self.save} cannot be written: {error}", Exit.USAGE)
        question = self.question
        changed = msgspec.structs.replace(objects, nodes=list(objects.nodes))
        try:
            for manifest in question.manifests:
                trial.apply(changed, manifest, namespace)
            trial.set_given(changed, question.quota, question.limit, question.add_nodes, question.drain)
        except trial.WhatIfError as error:
            fail(str(error), Exit.USAGE)
        usual = Policy(charge_foreign=objects.charges_foreign, gpu_parts=gpu_parts.listed())
        return trial.what_if(objects, changed, self.policy or usual, self.then)

    def only_here(self) -> str:
        """The flag for which the leader cannot answer instead; empty: there is none."""
        flags = {"--save": self.save, "--new-config": self.then}
        return next((flag for flag, given in flags.items() if given is not None), "")


async def _answered(client: Client, simulation: _Simulation, namespace: str) -> WhatIf:
    """The result for a cluster, played here where the user may list it, else by the leader. namespace: as given."""
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.cluster.kubernetes.listing import everything

    try:
        found = (await everything(client))[0]
    except ApiError as error:
        if error.code != _FORBIDDEN:
            raise
        flag = simulation.only_here()
        if flag:
            fail(f"{flag} needs the right to list the cluster: {error.message}", Exit.REFUSED)
        question = simulation.question
        return await leader.what_if(client, question, namespace or _of(question.manifests) or client.config.namespace)
    return simulation.of(found, namespace or client.config.namespace)


def _of(manifests: list[dict[str, Any]]) -> str:
    """The one namespace that all manifests name; empty: there is none."""
    metadata = [each.get("metadata") for each in manifests]
    found = {each.get("namespace") if isinstance(each, dict) else None for each in metadata}
    only = found.pop() if len(found) == 1 else None
    return only if isinstance(only, str) else ""


def _policy(path: Path) -> Policy:
    from fairlead.scheduler import configuration

    try:
        return configuration.read(path).options().policy
    except configuration.ConfigurationError as error:
        fail(str(error), Exit.USAGE)


def _snapshot(path: Path) -> Objects:
    from fairlead.cluster.translate import Objects

    try:
        if path.stat().st_size > _MOST_BYTES:
            fail(f"{path} is larger than 1 GiB", Exit.USAGE)
        return msgspec.json.decode(path.read_bytes(), type=Objects)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", Exit.USAGE)
    except msgspec.DecodeError as error:
        fail(f"{path} is not a snapshot ({error}); create one with `fairlead whatif --save FILE`", Exit.USAGE)


def _manifests(path: Path) -> list[dict[str, Any]]:
    import yaml

    try:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each is not None]
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}", Exit.USAGE)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        fail(f"{path} is not YAML: {error}", Exit.USAGE)
    except RecursionError:
        fail(f"{path} is nested too deeply", Exit.USAGE)
    found: list[dict[str, Any]] = []
    for document in documents:
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        for item in items or ():
            if not isinstance(item, dict):
                fail(f"{path}: a manifest is a mapping with `kind` and `metadata`", Exit.USAGE)
            found.append(item)
    if not found:
        fail(f"{path} has no object in it", Exit.USAGE)
    return found


def _show(result: WhatIf) -> None:
    from rich.text import Text

    screen = console()
    old = {each.job: each for each in result.before.jobs}
    rows = []
    for each in result.after.jobs:
        before = old.get(each.job)
        rows.append(
            [
                Text(each.job),
                Text(each.queue),
                f"{each.gpus:g}",
                _when(before.starts, before.wait_seconds) if before is not None else "-",
                _when(each.starts, each.wait_seconds),
                Text(", ".join(each.nodes) or each.reason),
            ]
        )
    columns = [Column("JOB", flexible=True, least=18), Column("QUEUE", flexible=True), Column("GPUS", right=True)]
    columns += [Column("STARTS NOW"), Column("WOULD START"), Column("NODES / REASON", flexible=True)]
    if rows:
        screen.print(Listing(columns, rows))
    for victim in result.after.evicted:
        screen.print(Text(f"evicted: {victim.pod} of queue {victim.queue} on {victim.node}, for {victim.by}"))
    screen.print(Listing(_QUEUE_COLUMNS, _queue_rows(result.before, result.after)))
    for other in result.others:
        counts = f"{other.starts} would start now, {other.delayed} later than as it is; {other.evicted} pods would be evicted"
        screen.print(Text(f"Other namespaces' jobs of queue {other.queue}: {counts}", "dim"))
    screen.print(f"GPUs in use: {result.before.utilization:.1%}, would be {result.after.utilization:.1%}")


_QUEUE_COLUMNS = [
    Column("QUEUE", flexible=True),
    *(Column(name, right=True) for name in ("GPUS", "WOULD BE", "WAITING", "WOULD BE", "MEAN WAIT", "WOULD BE")),
]


def _queue_rows(before: Outcome, after: Outcome) -> list[list[Any]]:
    from rich.text import Text

    old = {each.name: each for each in before.queues}
    rows = []
    for each in after.queues:
        was = old.get(each.name)
        rows.append(
            [
                Text(each.name),
                f"{was.gpus:g}" if was is not None else "-",
                f"{each.gpus:g}",
                str(was.waiting) if was is not None else "-",
                str(each.waiting),
                _span(was.mean_wait_seconds if was is not None else None),
                _span(each.mean_wait_seconds),
            ]
        )
    return rows


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


def _when(starts: str, wait: float | None) -> str:
    return f"in {span(wait)}" if starts == "later" and wait is not None else starts
