"""`fairlead import kueue|kai|volcano|slurm FILE...`: other schedulers' queues as ours, and what could not be carried over."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.output import Exit, Output, OutputOption, emit, fail

if TYPE_CHECKING:
    from fairlead.importers.base import Imported

_MOST_BYTES = 64 << 20


class Source(StrEnum):
    """Where queues come from."""

    KUEUE = "kueue"
    KAI = "kai"
    VOLCANO = "volcano"
    SLURM = "slurm"


def import_queues(
    source: Annotated[Source, typer.Argument(help="The scheduler they come from.")],
    files: Annotated[list[str], typer.Argument(help="YAML (kubectl get -o yaml), or output of sacctmgr; - for stdin.")],
    output: OutputOption = Output.YAML,
) -> None:
    """Convert queues of other schedulers for kubectl apply -f -. Differences are listed on stderr."""
    texts = [_text(each) for each in files]
    imported = _read(source, texts)
    if output is Output.YAML:
        import yaml

        typer.echo("---\n".join(yaml.safe_dump(each, sort_keys=False, width=120) for each in imported.objects), nl=False)
        for note in imported.notes:
            typer.echo(f"{note.object}: {note.field}: {note.message}", err=True)
    else:
        emit(imported, output, lambda: _show(imported))
    if not imported.objects:
        fail(f"{', '.join(files)}: nothing of {source} that has a counterpart here", Exit.USAGE)


def _text(name: str) -> str:
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES + 1) if name == "-" else Path(name).read_bytes()
        if len(data) > _MOST_BYTES:
            fail(f"{name} is larger than {_MOST_BYTES >> 20} MiB", Exit.USAGE)
        return data.decode()
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror}", Exit.USAGE)
    except UnicodeDecodeError:
        fail(f"{name} is not UTF-8 text", Exit.USAGE)


def _read(source: Source, texts: list[str]) -> Imported:
    import yaml

    from fairlead.importers import kai, kueue, slurm, volcano
    from fairlead.importers.base import ImportFailed, manifests

    try:
        if source is Source.SLURM:
            return slurm.read(texts)
        documents: list[Any] = [document for text in texts for document in yaml.safe_load_all(text)]
        readers = {Source.KUEUE: kueue.read, Source.KAI: kai.read, Source.VOLCANO: volcano.read}
        return readers[source](manifests(documents))
    except yaml.YAMLError as error:
        fail(f"not YAML: {error}", Exit.USAGE)
    except (ImportFailed, RecursionError) as error:
        fail(str(error) or "nested too deeply", Exit.USAGE)


def _show(imported: Imported) -> None:
    from rich.text import Text

    from fairlead.cli.listing import Column, Listing
    from fairlead.cli.output import console

    screen = console()
    rows: list[list[Any]] = [[Text(each["kind"]), Text(each["metadata"]["name"])] for each in imported.objects]
    screen.print(Listing([Column("KIND"), Column("NAME", flexible=True)], rows))
    notes: list[list[Any]] = [[Text(each.object), Text(each.field), Text(each.message)] for each in imported.notes]
    if notes:
        columns = [
            Column("DIFFERENCE", flexible=True),
            Column("FIELD", flexible=True),
            Column("CONSEQUENCE", flexible=True),
        ]
        screen.print(Listing(columns, notes))
