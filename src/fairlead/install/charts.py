"""The files of `charts/`: rights and served APIs, as administrators apply them by hand."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml


def manifests(file: str) -> list[dict[str, Any]]:
    """The objects of one file."""
    packaged = resources.files("fairlead") / "charts" / file
    text = packaged.read_text() if packaged.is_file() else (Path(__file__).parents[3] / "charts" / file).read_text()
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(file: str, *kinds: str) -> list[dict[str, Any]]:
    """Those of some kinds."""
    return [each for each in manifests(file) if each["kind"] in kinds]


def rules(file: str, kind: str, name: str) -> list[dict[str, Any]]:
    """The rules of a role. Raises LookupError where the file has none of this name."""
    for each in of_kind(file, kind):
        if each["metadata"]["name"] == name:
            found: list[dict[str, Any]] = each["rules"]
            return found
    raise LookupError(f"{file} has no {kind} {name}")
