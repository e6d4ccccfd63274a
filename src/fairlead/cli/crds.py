"""`fairlead crds`: the YAML that a cluster needs before Fairlead runs on it."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.output import Output, OutputOption


def crds(
    policies: Annotated[bool, typer.Option("--policies", help="Print the admission policies instead.")] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(help="With --policies: a user that creates pods for others, such as system:serviceaccount:ray:operator."),
    ] = None,
    provisioning_class: Annotated[
        list[str] | None,
        typer.Option(help="With --policies: a provisioning class with which tenants may request nodes. Default: none."),
    ] = None,
    require_scheduler: Annotated[
        bool,
        typer.Option("--require-scheduler", help="With --policies: pods that request GPUs must name a Fairlead scheduler."),
    ] = False,
    scheduler_name: Annotated[
        list[str] | None,
        typer.Option(
            help="With --policies: a scheduler name that Fairlead serves. Default: those of --config, else fairlead and "
            "fairlead-kubernetes."
        ),
    ] = None,
    output: OutputOption = Output.YAML,
) -> None:
    """Print the CustomResourceDefinitions (or the admission policies) for kubectl apply -f -."""
    import msgspec

    from fairlead.api import crds as generated
    from fairlead.api import names
    from fairlead.api.policies import of_release
    from fairlead.api.policies import policies as admission

    if not policies and (trust or provisioning_class or require_scheduler or scheduler_name):
        raise typer.BadParameter("--trust, --provisioning-class, --require-scheduler and --scheduler-name need --policies")
    schedulers, release = scheduler_name or tuple(names.SCHEDULERS), names.release()
    if policies and release != names.FIRST_RELEASE:
        if trust or provisioning_class or require_scheduler:
            what = "--trust, --provisioning-class and --require-scheduler"
            raise typer.BadParameter(f"{what} are of the policies of release {names.FIRST_RELEASE}; --config names {release}")
        objects = of_release(release, schedulers)
    elif policies:
        objects = admission(
            trust or (),
            provisioning_classes=provisioning_class or (),
            require_scheduler=require_scheduler,
            schedulers=schedulers,
        )
    else:
        objects = generated.definitions()
    if output is Output.JSON:
        listing = {"apiVersion": "v1", "kind": "List", "items": objects}
        typer.echo(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode())
    else:
        typer.echo(generated.render(objects), nl=False)
