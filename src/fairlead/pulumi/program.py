"""What a program would register, as manifests, without the Pulumi engine: for tests of programs, and for `kubectl apply`.

Everything goes through Pulumi's own mocks: each resource is answered as if it had been made just as it was asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import runpy
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pulumi.runtime

Manifest = dict[str, Any]

_PREFIX = "kubernetes:"
_RANDOM, _LONGEST = 8, 253
"""Characters that the provider adds to a name, and those that a name may have."""
_FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount")


class _Recorder(pulumi.runtime.Mocks):
    def __init__(self) -> None:
        self.manifests: list[Manifest] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        inputs = args.inputs
        if args.typ.startswith(_PREFIX) and "kind" in inputs:
            inputs = _named(args)
            self.manifests.append(_plain(inputs))
        return f"{args.name}-id", inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        return {}, None


def manifests(program: Callable[[], object], config: Mapping[str, str] | None = None, project: str = "program") -> list[Manifest]:
    """The Kubernetes objects that a program registers, as `kubectl apply` takes them.

    What others are in, or are defined by, comes first; the rest by kind, namespace and name.
    config: the stack's configuration, by key without the project. What the program raises is raised here. Not to be called
    from within an event loop that runs.
    """
    recorder = _Recorder()
    asyncio.set_event_loop(_loop())  # Pulumi asks for the thread's, from the first line on; there may be none
    try:
        pulumi.runtime.set_mocks(recorder, project=project)
        pulumi.runtime.set_all_config({f"{project}:{key}": value for key, value in (config or {}).items()})
        pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]
    finally:
        asyncio.set_event_loop(None)
    return sorted(recorder.manifests, key=_order)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all programs, never closed: the threads of its executor have loops of Pulumi's making."""
    return asyncio.new_event_loop()


def _order(manifest: Manifest) -> tuple[int, str, str, str]:
    kind, metadata = manifest["kind"], manifest["metadata"]
    rank = _FIRST.index(kind) if kind in _FIRST else len(_FIRST)
    return rank, kind, metadata.get("namespace", ""), metadata["name"]


def manifests_of(folder: Path, config: Mapping[str, str] | None = None) -> list[Manifest]:
    """Those of the program in a folder: its `__main__.py`."""
    return manifests(lambda: runpy.run_path(str(folder / "__main__.py"), run_name="__main__") and None, config, folder.name)


def _named(args: pulumi.runtime.MockResourceArgs) -> dict[str, Any]:
    """The inputs of a resource with a name. Where a program gives none, the provider makes one: the resource's name, and eight
    characters at random, which here are the same each time.
    """
    metadata = args.inputs.get("metadata") or {}
    if metadata.get("name"):
        return args.inputs
    prefix = metadata.get("generateName") or f"{args.name}-"
    suffix = hashlib.sha256(f"{args.typ} {args.name}".encode()).hexdigest()[:_RANDOM]
    name = f"{prefix[: _LONGEST - _RANDOM]}{suffix}"
    return {**args.inputs, "metadata": {**{key: each for key, each in metadata.items() if key != "generateName"}, "name": name}}


def _plain(value: Any) -> Any:
    """As JSON has it: Pulumi's wire knows one kind of number only."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
