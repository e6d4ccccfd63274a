"""Reads what `nvidia-smi topo -m` prints: kinds of links between GPUs, network cards, NUMA nodes.

A cell is one of the tool's words (`NV2`, `PIX`, `SYS`, ...), or several joined by `+` where both links are known (`NV2+PHB`). A
pair with NVLinks whose PCIe path the report leaves out gets that of its NUMA nodes, if the report has them, so that where all
GPUs have the same NVLinks (NVSwitch) those of one NUMA node are preferred.
"""

from __future__ import annotations

import re

from fairlead.core.links.matrix import PATHS, PER_NVLINK, SAME_ROOT, FaultKind, Links, LinksError, links_of

LONGEST = 32_768
"""Characters of a report that are read."""

_MOST_NVLINKS = 64
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(\d+)")
_NIC = re.compile(r"NIC\d+|mlx\d+_\d+")
_NVLINKS = re.compile(r"NV(\d{1,3})")
_SELF = "X"


def read(text: str) -> Links:
    """The interconnect that a report describes; its GPUs are in the report's order. Raises `LinksError`."""
    if len(text) > LONGEST:
        raise LinksError(FaultKind.TOO_LONG, f"it has {len(text)} characters, and {LONGEST} are read")
    lines = [line.split() for line in _COLORS.sub("", text).splitlines()]
    start = next((at for at, words in enumerate(lines) if words and _GPU.fullmatch(words[0]) and words[1:2] != [_SELF]), None)
    header = None if start is None else lines[start]
    if header is None or start is None or not _is_header(header):
        raise LinksError(
            FaultKind.EMPTY, "it has no line with the columns GPU0, GPU1, ...: expected the text of `nvidia-smi topo -m`"
        )
    columns = [word for word in header if _GPU.fullmatch(word) or _NIC.fullmatch(word)]
    gpus = [at for at, word in enumerate(columns) if _GPU.fullmatch(word)]
    cards = [at for at, word in enumerate(columns) if not _GPU.fullmatch(word)]
    names = [columns[at] for at in gpus]
    if names != [f"GPU{number}" for number in range(len(gpus))]:
        raise LinksError(FaultKind.WRONG_SIZE, f"its columns are {', '.join(names)}: expected GPU0 to GPU{len(gpus) - 1}")
    rows = _rows(lines[start + 1 :], names, len(columns))
    numas = _numas(text, rows, len(columns))
    words = [[row[at] for at in gpus] for row in rows]
    weights = [[_weight(words[at][other], at, other, numas) for other in range(len(gpus))] for at in range(len(gpus))]
    roots, nics = _roots(rows, gpus, cards)
    return links_of(weights, roots, nics)


def _is_header(words: list[str]) -> bool:
    return len(words) == 1 or not (_NVLINKS.match(words[1]) or words[1] in PATHS or words[1] == _SELF)


def _rows(lines: list[list[str]], names: list[str], columns: int) -> list[list[str]]:
    """The row of each GPU, without its name."""
    found: dict[str, list[str]] = {}
    for words in lines:
        if words and _GPU.fullmatch(words[0]):
            if words[0] in found:
                raise LinksError(FaultKind.WRONG_SIZE, f"{words[0]} has two rows")
            found[words[0]] = words[1:]
    if list(found) != names:
        raise LinksError(FaultKind.WRONG_SIZE, f"its rows are {', '.join(found) or 'none'}, and its columns {', '.join(names)}")
    for name, words in found.items():
        if len(words) < columns:
            raise LinksError(FaultKind.WRONG_SIZE, f"the row of {name} has {len(words)} columns, and the header {columns}")
    return list(found.values())


def _numas(text: str, rows: list[list[str]], columns: int) -> list[str]:
    """The NUMA node of each GPU, empty: not known. It follows the CPUs, which may be left out."""
    if "NUMA Affinity" not in text:
        return [""] * len(rows)
    found = []
    for row in rows:
        rest = row[columns:]
        at = 1 if "CPU Affinity" in text and len(rest) > 1 else 0
        found.append(rest[at] if at < len(rest) and rest[at].replace("-", "").replace(",", "").isdecimal() else "")
    return found


def _weight(word: str, at: int, other: int, numas: list[str]) -> int:
    if at == other:
        if word != _SELF:
            raise LinksError(FaultKind.UNKNOWN_LINK, f"GPU{at} to itself is {word!r}: expected X")
        return 0
    weight = paths = 0
    for part in word.split("+"):
        nvlinks = _NVLINKS.fullmatch(part)
        if nvlinks and 0 < int(nvlinks[1]) <= _MOST_NVLINKS:
            weight += PER_NVLINK * int(nvlinks[1])
        elif part in PATHS:
            weight += PATHS[part]
            paths += 1
        else:
            message = f"GPU{at} to GPU{other} is {part!r}: expected NV1 to NV{_MOST_NVLINKS}, or one of {', '.join(PATHS)}"
            raise LinksError(FaultKind.UNKNOWN_LINK, message)
    if not paths and numas[at]:
        weight += PATHS["NODE" if numas[at] == numas[other] else "SYS"]
    return weight


def _roots(rows: list[list[str]], gpus: list[int], cards: list[int]) -> tuple[list[int], list[int]]:
    """Numbers of roots by GPU and by network card: what is connected by paths without a host bridge is under one root."""
    parent = list(range(len(gpus) + len(cards)))

    def root(index: int) -> int:
        while parent[index] != index:
            index = parent[index]
        return index

    for at, row in enumerate(rows):
        ends = [
            *((number, row[column]) for number, column in enumerate(gpus)),
            *((len(gpus) + number, row[column]) for number, column in enumerate(cards)),
        ]
        for number, word in ends:
            if not SAME_ROOT.isdisjoint(word.split("+")):
                first, second = sorted((root(at), root(number)))
                parent[second] = first
    found = [root(index) for index in range(len(parent))]
    return found[: len(gpus)], found[len(gpus) :]
