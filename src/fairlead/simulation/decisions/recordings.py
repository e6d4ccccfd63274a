"""Everything that is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairlead.core.model.pods import PodSpec
from fairlead.core.model.policy import Policy
from fairlead.scheduler.decision_log import LogWriter
from fairlead.simulation import chaos, lab
from fairlead.simulation.decisions.claims import CLAIMS, ClaimsCluster
from fairlead.simulation.decisions.cluster import GPU, HOUR, Cluster, Job, Theme
from fairlead.simulation.decisions.forms import FORMS, FormsCluster
from fairlead.simulation.decisions.pairs import PAIRS, PairsCluster
from fairlead.simulation.decisions.themes import SAVED, THEMES
from fairlead.simulation.fuzzing import world as fuzzing
from fairlead.simulation.traces import TraceJob


class Recording(NamedTuple):
    """One log. write: plays it; least: what it must hold, by kind of decision, reason code, `moves` or `suspensions`."""

    name: str
    subject: str
    write: Callable[[Path], None]
    least: Mapping[str, int]


_SCHEMA: dict[int, dict[str, int]] = {
    1: {"UnknownQueue": 10, "NotAllowed": 3},
    2: {"Topology": 1, "TooLarge": 10},
    3: {"Volumes": 5, "TimeLimit": 1},
    4: {"InvalidSpec": 8, "UnknownServiceClass": 3},
    5: {"Devices": 4, "Kept": 1},
    6: {"Unread": 5, "Gated": 5},
}


def recordings(trace: Sequence[TraceJob] = ()) -> list[Recording]:
    """All of them. trace: jobs of which the first are replayed as one more; without them that one is left out."""
    found = [Recording(name, subject, _small(theme), least) for name, (subject, theme, least) in THEMES.items()]
    least = {"Choose": 3, "Place": 20}
    found.append(Recording("forms", "gangs that take another form rather than wait", _small(FORMS, of=FormsCluster), least))
    least = {"Deallocate": 2, "Place": 20}
    found.append(Recording("claims", "devices by claims, and nodes that are lost", _small(CLAIMS, of=ClaimsCluster), least))
    least = {"PairSpeeds": 3, "Place": 20}
    found.append(Recording("pairs", "jobs that share GPUs and report speeds", _small(PAIRS, of=PairsCluster), least))
    found += [Recording(f"lab-{seed}", "half a day of a lab", _lab(seed), {"Place": 100, "Verdict": 1}) for seed in (1, 2, 3)]
    for workload, seeds, least in (("pods", range(1, 7), {"Place": 5}), ("aijobs", range(1, 7), {"Place": 5})):
        for seed in seeds:
            settings = chaos.Settings(nodes=16, jobs=80, hours=8.0, workload=workload)
            found.append(Recording(f"faults-{workload}-{seed}", "a day full of faults", _day(seed, settings), least))
    for seed in (1, 2, 3):
        settings = chaos.Settings(nodes=14, jobs=60, hours=8.0, workload="aijobs", faults=False)
        least = {"Place": 30, "suspensions": 3, "Resume": 3}
        found.append(Recording(f"aijobs-{seed}", "AIJobs that are suspended and resumed", _day(seed, settings), least))
    for seed, least in _SCHEMA.items():
        found.append(Recording(f"schema-{seed}", "random objects over the whole schema", _schema(seed), least))
    if trace:
        theme = Theme(gpus=(8,) * 24, queues=(), classes=(SAVED,), hours=48.0, policy=Policy(strategy="binpack", reservations=0))
        jobs = list(_of_trace(trace, theme.hours * 0.8 * HOUR))
        found.append(Recording("trace", "the first jobs of a trace", _small(theme, jobs), {"Place": 100}))
    return found


def _small(theme: Theme, jobs: Sequence[tuple[float, Job]] | None = None, of: type[Cluster] = Cluster) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            of(theme, 1, LogWriter(file, theme.policy), jobs).run()

    return write


def _lab(seed: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        lab.record(path, nodes=24, jobs=400, seed=seed, hours=12.0)

    return write


def _day(seed: int, settings: chaos.Settings) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        chaos.run(seed, settings, path)

    return write


def _schema(seed: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            fuzzing.World(seed, 80, lambda policy: LogWriter(file, policy)).run()

    return write


def _of_trace(trace: Sequence[TraceJob], until: float) -> Iterable[tuple[float, Job]]:
    first = min(job.submitted for job in trace)
    for number, job in enumerate(trace):
        if job.submitted - first > until:
            continue
        members, gpus = (max(1, job.gpus // 8), 8) if job.gpus > 8 else (1, job.gpus)
        spec = PodSpec((("cpu", 1000), (GPU, gpus), ("pods", 1)), gpus=gpus)
        made = Job(f"job-{number}", "default", f"user-{number % 7}", "saved", spec, members, members, 0, job.duration, ())
        yield job.submitted - first, made
