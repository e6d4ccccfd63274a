"""Fairlead's image, built by the lines of the Containerfile without a container runtime and run by chroot: by root, on Debian."""

from __future__ import annotations

from pathlib import Path

from testbed.image import containerfile, layout
from testbed.image.stages import Builder

FILE = Path(__file__).parents[2] / "Containerfile"


def build(dist: Path) -> Path:
    """Build it from a folder `dist` with what `testbed.wheel` writes; returns the folder of its OCI layout."""
    file = containerfile.read(FILE.read_text())
    layers = Builder(file, dist.parent).layers()
    [wheel] = dist.glob("fairlead-*.whl")
    target = dist / "image"
    layout.write(file, layers, wheel.name.split("-")[1], target)
    return target
