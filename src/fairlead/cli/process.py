"""What commands that run until SIGTERM do alike: check where they serve, set up logs, run, and end with the right exit code."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.choices import LogLevel
from fairlead.cli.output import Exit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.config import Config


LogLevelOption = Annotated[LogLevel, typer.Option(case_sensitive=False, help="The least severe messages that are logged.")]


def prepare(log_level: LogLevel, addresses: dict[str, str]) -> None:
    """Set up logs; refuse flags that are no addresses. addresses: by flag; empty ones serve nothing."""
    from fairlead.observability.addresses import wrong_address
    from fairlead.observability.logs import configure

    for flag, address in addresses.items():
        if wrong := wrong_address(address):
            fail(f"{flag}: {wrong}", Exit.USAGE)
    configure(log_level)


def run(process: Callable[[Config], Coroutine[None, None, bool]], kubeconfig: str) -> None:
    """Run a process to its end. process: returns whether it failed, having lost its lease."""
    import uvloop

    from fairlead.cluster.kubernetes.config import ConfigError, load
    from fairlead.observability.endpoints import CannotServeError
    from fairlead.observability.logs import log_loop_errors

    async def logged(config: Config) -> bool:
        log_loop_errors()
        return await process(config)

    try:
        failed = uvloop.run(logged(load(kubeconfig or None)))
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except CannotServeError as error:
        fail(str(error))
    if failed:
        raise typer.Exit(int(Exit.FAILED))
