"""Readers of trace files: openb node and pod lists, the Philly job table. Plain or xz-compressed CSV.

docs/traces.md describes where the originals are and how to convert them.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

_LONGEST_LINE = 1 << 16


class TraceError(ValueError):
    """A trace file that cannot be used: which file, which line, what is wrong."""


class TraceNode(msgspec.Struct, frozen=True):
    """One row of an openb node list: milli-CPU, MiB, devices, device model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class TracePod(msgspec.Struct, frozen=True):
    """One row of an openb pod list: milli-CPU, MiB, devices, milli of each device, models it may run on (none: any)."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()


class TraceJob(msgspec.Struct, frozen=True):
    """One job: seconds since the first one of the trace, run time in seconds, devices, queue."""

    name: str
    submitted: float
    duration: float
    gpus: int
    queue: str


def read_nodes(path: Path) -> list[TraceNode]:
    """The nodes of an openb list, in file order. Raises `TraceError`."""
    return [
        TraceNode(row["sn"], _count(row, "cpu_milli"), _count(row, "memory_mib"), _count(row, "gpu"), row.get("model") or "")
        for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu"))
    ]


def read_pods(path: Path) -> list[TracePod]:
    """The pods of an openb list, in file order. Raises `TraceError`."""
    pods = []
    for row in _rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        gpus, milli = _count(row, "num_gpu"), _count(row, "gpu_milli")
        if gpus and not 0 < milli <= 1000:
            raise TraceError(f"{path}: pod {row['name']}: gpu_milli {milli} is not in 1..1000")
        if gpus > 1 and milli != 1000:
            raise TraceError(f"{path}: pod {row['name']}: fractions are of one GPU; {gpus} x {milli} is not possible")
        cpu, memory = _count(row, "cpu_milli"), _count(row, "memory_mib")
        # As in the original, the model matters to pods that ask for devices only.
        pods.append(TracePod(row["name"], cpu, memory, gpus, milli if gpus else 0, _models(row) if gpus else ()))
    return pods


def _models(row: dict[str, str]) -> tuple[str, ...]:
    """The models that `gpu_spec` allows, in order of name: `V100M16|V100M32`; empty: any."""
    return tuple(sorted({model for each in (row.get("gpu_spec") or "").split("|") if (model := each.strip())}))


def read_queues(path: Path) -> dict[str, int]:
    """Queue -> nodes, from a table with the columns vc and nodes. Raises `TraceError`."""
    queues: dict[str, int] = {}
    for row in _rows(path, ("vc", "nodes")):
        if not row["vc"] or row["vc"] in queues:
            raise TraceError(f"{path}: queue {row['vc']!r} is empty or given twice")
        queues[row["vc"]] = _count(row, "nodes")
    if not any(queues.values()):
        raise TraceError(f"{path}: no queue has nodes")
    return queues


def read_jobs(path: Path) -> list[TraceJob]:
    """The jobs of a table with submit_time, duration_s, num_gpus, vc, by (submission, duration, GPUs). Raises `TraceError`."""
    jobs = []
    for number, row in enumerate(_rows(path, ("submit_time", "duration_s", "num_gpus"))):
        try:
            submitted = datetime.strptime(row["submit_time"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        except ValueError as error:
            raise TraceError(
                f"{path}: row {number + 2}: submit_time {row['submit_time']!r} is not YYYY-MM-DD HH:MM:SS"
            ) from error
        jobs.append((submitted, float(_count(row, "duration_s")), _count(row, "num_gpus"), number, row.get("vc") or "default"))
    if not jobs:
        raise TraceError(f"{path}: no jobs")
    jobs.sort()
    start = jobs[0][0]
    return [TraceJob(f"job-{number:07d}", at - start, duration, gpus, queue) for at, duration, gpus, number, queue in jobs]


def _count(row: dict[str, str], column: str) -> int:
    text = row[column]
    try:
        value = int(float(text)) if text else 0
    except (ValueError, OverflowError):
        value = -1
    if not 0 <= value < 1 << 60:
        raise TraceError(f"column {column}: {text!r} is not a count (in {dict(list(row.items())[:3])})")
    return value


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    try:
        with _open(path) as file:
            reader = csv.DictReader(line for line in file if len(line) < _LONGEST_LINE)
            missing = [column for column in needed if column not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: missing column(s) {', '.join(missing)}")
            for row in reader:
                if any(row[column] is None for column in needed):
                    raise TraceError(f"{path}: line {reader.line_num} is too short")
                yield row
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (lzma.LZMAError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".xz":
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield file
    else:
        with path.open(encoding="utf-8", newline="") as file:
            yield file
