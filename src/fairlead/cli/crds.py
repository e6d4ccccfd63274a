"""`fairlead crds`: the YAML that a cluster needs before Fairlead runs on it."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.output import Output, OutputOption


def crds(
    policies: Annotated[bool, typer.Option("--policies", help="Print the admission policies instead.")] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(help="With --policies: a user that makes pods for others, such as system:serviceaccount:ray:operator."),
    ] = None,
    output: OutputOption = Output.YAML,
) -> None:
    """Print the CustomResourceDefinitions (or the admission policies) for kubectl apply -f -."""
    import msgspec

    from fairlead.api import crds as generated
    from fairlead.api.policies import policies as admission

    objects = admission(trust or ()) if policies else generated.definitions()
    if output is Output.JSON:
        listing = {"apiVersion": "v1", "kind": "List", "items": objects}
        typer.echo(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode())
    else:
        typer.echo(generated.render(objects), nl=False)
