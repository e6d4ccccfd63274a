"""The application that all commands of `fairlead bench` belong to."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from fairlead.cli.output import Exit, fail

app = typer.Typer(help="Benchmarks. Every row of benchmarks/README.md is one of these commands.", no_args_is_help=True)


def find_checkout() -> Path:
    """The checkout, where the testbed lies beside src/. Warns where its programs are not optimized."""
    root = Path(__file__).parents[4]
    sys.path.append(str(root))
    try:
        from testbed import build
    except ImportError as error:
        fail(f"the testbed is not importable ({error}): run this from a checkout of the project", Exit.NOT_FOUND)
    if not build.is_optimized():
        typer.echo("The testbed's API server is not optimized. For figures: python -m testbed build --optimized", err=True)
    return root
