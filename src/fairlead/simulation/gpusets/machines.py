"""The interconnects of `bench gpusets`, read from the TOML files beside this module, which name their sources and licences."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec

from fairlead.core.links.matrix import PER_NVLINK, Links, links_of
from fairlead.core.links.report import read

FILES = ("nvidia.toml", "mapa.toml", "servers.toml")
_GB_PER_NVLINK = {50: 2, 25: 1, 20: 1}
"""GB/s of a link in MAPA's matrices -> NVLinks that it is made of (20: of the first generation)."""


class Machine(msgspec.Struct, frozen=True):
    """One machine. links: with the bandwidths, or scores, by which sets are compared.

    scores: with the scores of go-gpuallocator, by which its rule decides; of NVIDIA's machines the same.
    """

    name: str
    links: Links
    scores: Links


def machines() -> list[Machine]:
    """All machines, in the order of the files."""
    found = []
    for name in FILES:
        document = tomllib.loads(files(__package__).joinpath(name).read_text())
        found += [_machine(each) for each in document["machine"]]
    return found


def _machine(table: Mapping[str, Any]) -> Machine:
    roots, nics = table.get("roots", ()), table.get("nics", ())
    if "rows" in table:
        links = read(as_report(table["rows"]))
        links = links_of(links.weights, roots, nics)
        return Machine(table["name"], links, links)
    count, other = table["gpus"], table["other"]
    weights, scores = ([[each] * count for _ in range(count)] for each in (other, 10))
    for key, pairs in table.items():
        if key.startswith("links_"):
            bandwidth = int(key.removeprefix("links_"))
            for one, two in pairs:
                for at, to in ((one - 1, two - 1), (two - 1, one - 1)):
                    weights[at][to], scores[at][to] = bandwidth, PER_NVLINK * _GB_PER_NVLINK[bandwidth]
    return Machine(table["name"], links_of(weights, roots, nics), links_of(scores, roots, nics))


def as_report(rows: list[str]) -> str:
    """Rows of cells as `nvidia-smi topo -m` prints them."""
    names = [f"GPU{number}" for number in range(len(rows))]
    return "\n".join(["\t".join(["", *names]), *(f"{name}\t{row}" for name, row in zip(names, rows, strict=True))])
