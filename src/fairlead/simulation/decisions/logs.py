"""Recordings written, inspected and replayed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.transactions import Fault
from fairlead.scheduler.decision_log import LogError, Player, Replay
from fairlead.scheduler.outputs import Output, Trouble
from fairlead.simulation.decisions.recordings import Recording
from fairlead.simulation.decisions.renames import renamed, without_texts

SUMMARY = "summary.json"
KINDS = frozenset(each.__name__ for each in get_args(Output)) - {Fault.__name__, Trouble.__name__}
"""Kinds of decision that all recordings hold between them. A `Fault` needs a bug of ours, and no `Trouble` is compared."""


class Refused(ValueError):
    """A recording lacks what it is there for, or all together lack a kind of decision."""


class Contents(msgspec.Struct):
    """What a log holds. decisions: by kind; reasons: codes of refusals; moves, suspensions: pods moved, jobs suspended."""

    name: str
    subject: str
    passes: int
    events: int
    bytes: int
    digest: str
    decisions: dict[str, int]
    reasons: dict[str, int]
    moves: int
    suspensions: int


class Summary(msgspec.Struct):
    """What was recorded. left_out: recordings that need what was not given. lacking: kinds and reason codes that none holds."""

    logs: list[Contents]
    passes: int
    events: int
    bytes: int
    decisions: dict[str, int]
    reasons: dict[str, int]
    left_out: list[str]
    lacking_decisions: list[str]
    lacking_reasons: list[str]


def record(
    folder: Path,
    found: Sequence[Recording],
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    *,
    complete: bool = False,
    left_out: Sequence[str] = (),
) -> Summary:
    """Write each recording to `folder/NAME.jsonl`, and the summary last: a folder without one is not complete.

    complete: these are all, so that they hold every kind of decision. Raises `Refused` if they do not, or if one lacks what it
    is there for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUMMARY).unlink(missing_ok=True)
    contents = []
    for number, each in enumerate(found):
        path = folder / f"{each.name}.jsonl"
        each.write(path)
        contents.append(inspect(path, each))
        progress(number + 1, len(found))
    summary = _summary(contents, left_out)
    if complete and summary.lacking_decisions:
        raise Refused(f"no recording holds a decision of kind {', '.join(summary.lacking_decisions)}")
    (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
    return summary


def _summary(logs: list[Contents], left_out: Sequence[str]) -> Summary:
    decisions: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for log in logs:
        decisions.update(log.decisions)
        reasons.update(log.reasons)
    return Summary(
        logs=logs,
        passes=sum(log.passes for log in logs),
        events=sum(log.events for log in logs),
        bytes=sum(log.bytes for log in logs),
        decisions=dict(sorted(decisions.items())),
        reasons=dict(sorted(reasons.items())),
        left_out=list(left_out),
        lacking_decisions=sorted(KINDS - set(decisions)),
        lacking_reasons=sorted(str(code) for code in ReasonCode if str(code) not in reasons),
    )


def check(folder: Path) -> None:
    """Raises `LogError` where a log that the folder's summary names is missing, or is not what was recorded.

    A log that was cut off is identical as far as it goes. Without a summary the logs are whatever was put there.
    """
    if not (folder / SUMMARY).exists():
        return
    try:
        logs = msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary).logs
    except msgspec.DecodeError as error:
        raise LogError(f"{folder / SUMMARY} cannot be read: {error}") from error
    for log in logs:
        path = folder / f"{log.name}.jsonl"
        if not path.exists():
            raise LogError(f"{path} is missing: record it anew")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != log.digest:
                raise LogError(f"{path} is not what was recorded: record it anew")


class _Line(msgspec.Struct):
    events: list[msgspec.Raw] | None = None
    outputs: list[dict[str, object]] | None = None


def inspect(path: Path, recording: Recording) -> Contents:
    """What a log holds. Raises `Refused` if that is not enough."""
    decode = msgspec.json.Decoder(_Line).decode
    passes = events = moves = suspensions = 0
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.readline())
        for content in file:
            digest.update(content)
            line = decode(content)
            events += len(line.events or ())
            passes += line.outputs is not None
            for each in line.outputs or ():
                kinds[str(each["type"])] += 1
                reason = each.get("reason")
                if isinstance(reason, dict):
                    reasons[str(reason.get("code"))] += 1
                moves += len(_listed(each.get("moved")))
                suspensions += len(_listed(each.get("suspends")))
    found = Contents(
        recording.name,
        recording.subject,
        passes,
        events,
        path.stat().st_size,
        digest.hexdigest(),
        dict(sorted(kinds.items())),
        dict(sorted(reasons.items())),
        moves,
        suspensions,
    )
    held = {**found.reasons, **found.decisions, "moves": moves, "suspensions": suspensions}
    for what, least in recording.least.items():
        if held.get(what, 0) < least:
            raise Refused(f"recording {recording.name!r} ({recording.subject}) holds {held.get(what, 0)} x {what}, not {least}")
    return found


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def replay(
    paths: Sequence[Path],
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    *,
    texts: bool = True,
) -> dict[str, Replay]:
    """Each log through a fresh core, by name, in present names. texts: compare sentences, too. Raises `LogError`."""
    found: dict[str, Replay] = {}
    for number, path in enumerate(paths):
        found[path.stem] = (Player(path, renamed) if texts else Player(path, renamed, without_texts)).play()
        progress(number + 1, len(paths))
    return found
