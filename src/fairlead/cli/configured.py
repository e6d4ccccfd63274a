"""The option `--config`: the configuration file that all processes share, for commands that need only a part of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.api import names
from fairlead.cli.output import Exit, fail

VARIABLE = names.CONFIG_VARIABLE

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        envvar=VARIABLE,
        help="The scheduler's configuration file: its scheduler names, and how GPUs are shared.",
        show_default="none",
    ),
]


def configured(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option `--config`, adopted before it begins."""

    @functools.wraps(command)
    def wrapped(*args: Any, config: Path | None = None, **more: Any) -> None:
        adopt(config)
        command(*args, **more)

    signature = inspect.signature(command, eval_str=True)  # its own strings are not evaluated where one is set
    option = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption)
    wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {**command.__annotations__, "config": ConfigOption}
    return wrapped


def adopt(path: Path | None) -> None:
    """Take over the names from the file; without one, those of the defaults. Ends the command where it cannot be used."""
    if path is None:
        names.answer_to(names.DEFAULT_SCHEDULERS)
        names.share_by(names.DEFAULT_SHARING_AGENTS)
        names.count_parts(())
        return
    from fairlead.scheduler import configuration

    try:
        configuration.adopt(configuration.read(path))
    except configuration.ConfigurationError as error:
        fail(f"--config: {error}", Exit.USAGE)
