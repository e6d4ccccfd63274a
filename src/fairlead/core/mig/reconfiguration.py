"""One reconfiguration of a node through mig-manager, step by step: what is to be done next, by what is observed.

mig-manager stops all GPU clients of a node, so a node is cordoned first (`SETTLING`: bindings that were decided before are
written meanwhile), and only if it is still idle after that is the label written (`APPLYING`). It is opened again when
mig-manager reports success and the kubelet offers what the configuration has. A failure, or no answer in time, keeps it
closed with a quarantine; a late success opens it all the same. What is known is in a record on the node, so a restarted
operator goes on from there, and a label that an administrator changes is followed, not fought.

Pure: `decide` maps (record, what is seen, the time) to the next record and what is written with it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fairlead.core.mig.planner import ConfigState


class Phase(StrEnum):
    """How far a reconfiguration is. The node is cordoned in the first four."""

    SETTLING = "Settling"
    APPLYING = "Applying"
    FAILED = "Failed"
    HUNG = "Hung"
    DONE = "Done"
    MISMATCHED = "Mismatched"
    RELEASED = "Released"


CORDONED = frozenset({Phase.SETTLING, Phase.APPLYING, Phase.FAILED, Phase.HUNG})
IN_TROUBLE = frozenset({Phase.FAILED, Phase.HUNG, Phase.MISMATCHED})


class Outcome(StrEnum):
    """What became of a reconfiguration, where a decision settles that."""

    SUCCEEDED = "Succeeded"
    ABANDONED = "Abandoned"
    FAILED = "Failed"
    HUNG = "Hung"
    MISMATCHED = "Mismatched"
    RELEASED = "Released"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept on the node. since: seconds since the epoch at which the phase began. pods: those that it is for.

    to, before: names of configurations. last: when the label was last written here, 0: never.
    """

    phase: Phase
    to: str
    before: str = ""
    since: float = 0.0
    pods: tuple[str, ...] = ()
    last: float = 0.0


class Times(msgspec.Struct, frozen=True):
    """Seconds. settle: between the cordon and the label; timeout: until mig-manager must have answered; cooldown: from one
    label to the next on one node.
    """

    settle: float = 30.0
    timeout: float = 900.0
    cooldown: float = 600.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is observed. config, state: the values of mig-manager's labels, empty: they are not there.

    idle: no pod holds GPUs there; allowed: its pool still allows the configuration of the record; wanted: pods that it is
    for still wait; offers: what the kubelet offers is what the configuration of the label has (None: not known what it
    has); quarantined: it has the label of a quarantine; cordoned: it has the taint.
    """

    config: str
    state: str
    idle: bool
    allowed: bool
    wanted: bool
    offers: bool | None
    quarantined: bool
    cordoned: bool


class Decision(msgspec.Struct, frozen=True):
    """record: the next one (the same object: nothing is to be written); apply: write the label with it, after a last check;
    outcome: what is settled by it; message: why; again: seconds until something is due though nothing changes, None: never.
    """

    record: Record | None
    apply: bool = False
    outcome: Outcome | None = None
    message: str = ""
    again: float | None = None


def begin(to: str, before: str, pods: tuple[str, ...], now: float, last: float) -> Record:
    """The record with which a node is cordoned."""
    return Record(Phase.SETTLING, to, before, now, pods, last)


def rests(record: Record | None, times: Times, now: float) -> float:
    """Seconds until a node may be reconfigured again, as far as its record decides; infinite: not before that changes."""
    if record is None:
        return 0.0
    if record.phase in (Phase.DONE, Phase.RELEASED):
        return max(0.0, record.last + times.cooldown - now) if record.last else 0.0
    return float("inf")


def decide(record: Record | None, seen: Seen, times: Times, now: float) -> Decision:
    """The next step of a node."""
    if record is None:
        return _without(seen, now)
    if record.phase == Phase.SETTLING:
        return _settling(record, seen, times, now)
    if record.phase == Phase.APPLYING:
        return _applying(record, seen, times, now)
    if record.phase in (Phase.FAILED, Phase.HUNG):
        return _in_quarantine(record, seen, now)
    return _at_rest(record, seen, now)


def _without(seen: Seen, now: float) -> Decision:
    if seen.state == ConfigState.FAILED and seen.allowed:
        return _quarantined(Record(Phase.FAILED, seen.config, since=now), seen)
    if seen.cordoned:
        return Decision(Record(Phase.DONE, seen.config, since=now), outcome=Outcome.ABANDONED, message="no record of why it was")
    return Decision(None)


def _settling(record: Record, seen: Seen, times: Times, now: float) -> Decision:
    why = ""
    if seen.config != record.before or seen.state != ConfigState.SUCCESS:
        why = f"the label changed to {seen.config!r} ({seen.state or 'no state'})"
    elif not seen.cordoned:
        why = "its taint was removed"
    elif not seen.idle:
        why = "a pod was placed on its GPUs"
    elif not seen.allowed:
        why = f"its pool does not allow {record.to!r} any more"
    elif not seen.wanted:
        why = "none of the pods that it was for waits any more"
    if why:
        done = Record(Phase.DONE, seen.config, since=now, last=record.last)
        return Decision(done, outcome=Outcome.ABANDONED, message=why)
    left = record.since + times.settle - now
    if left > 0:
        return Decision(record, again=left)
    return Decision(
        Record(Phase.APPLYING, record.to, record.before, now, record.pods, now),
        apply=True,
        message=f"{record.before!r} becomes {record.to!r}",
    )


def _applying(record: Record, seen: Seen, times: Times, now: float) -> Decision:
    if seen.config != record.to:
        return _follow(record, seen, now)
    if not seen.cordoned:
        return Decision(msgspec.structs.replace(record), message="its taint was removed while mig-manager is at work")
    if seen.state == ConfigState.FAILED:
        return _quarantined(Record(Phase.FAILED, record.to, record.before, now, record.pods, record.last), seen)
    # A state that was there before a label that is followed may be of the label before.
    early = record.since + times.settle - now if not record.before else 0.0
    if seen.state == ConfigState.SUCCESS and seen.offers is not False and early <= 0:
        done = Record(Phase.DONE, record.to, since=now, last=record.last)
        return Decision(done, outcome=Outcome.SUCCEEDED, message=f"{record.to!r} is applied")
    left = record.since + times.timeout - now
    if left > 0:
        return Decision(record, again=min(left, early) if early > 0 else left)
    return _late(record, seen, times, now)


def _late(record: Record, seen: Seen, times: Times, now: float) -> Decision:
    """The time for an answer is over."""
    if not record.to:
        done = Record(Phase.DONE, "", since=now, last=record.last)
        return Decision(done, outcome=Outcome.ABANDONED, message="the label was removed: mig-manager applies nothing")
    if seen.offers:
        # A label that was changed and changed back is no news to mig-manager: it writes nothing, and has nothing to do.
        done = Record(Phase.DONE, record.to, since=now, last=record.last)
        return Decision(done, outcome=Outcome.SUCCEEDED, message=f"{record.to!r} is what the node offers")
    if seen.state == ConfigState.SUCCESS:
        message = f"{record.to!r} is applied, but the node does not offer what the pool lists: correct the pool"
        found = Record(Phase.MISMATCHED, record.to, since=now, last=record.last)
        return Decision(found, outcome=Outcome.MISMATCHED, message=message)
    message = f"mig-manager did not apply {record.to!r} within {times.timeout:.0f} seconds (state {seen.state or 'missing'})"
    hung = Record(Phase.HUNG, record.to, record.before, now, record.pods, record.last)
    return Decision(hung, outcome=Outcome.HUNG, message=message)


def _in_quarantine(record: Record, seen: Seen, now: float) -> Decision:
    # Without an answer mig-manager may still begin: only an administrator opens the node before that, by the taint.
    over = record.phase == Phase.FAILED and seen.state == ConfigState.FAILED and not seen.quarantined
    if not seen.cordoned or (over and seen.config == record.to):
        why = "its taint was removed" if not seen.cordoned else "the quarantine is over"
        released = Record(Phase.RELEASED, record.to, since=now, last=record.last)
        return Decision(released, outcome=Outcome.RELEASED, message=f"{why}; {record.to!r} is not applied, as far as is known")
    busy = seen.state not in (ConfigState.SUCCESS, ConfigState.FAILED)
    answered = seen.state == ConfigState.SUCCESS or (busy and record.phase == Phase.FAILED)
    if seen.config != record.to or answered or (record.phase == Phase.HUNG and seen.offers):
        return _follow(record, seen, now)
    if record.phase == Phase.HUNG and seen.state == ConfigState.FAILED:
        return _quarantined(Record(Phase.FAILED, record.to, record.before, now, record.pods, record.last), seen)
    return Decision(record)


def _at_rest(record: Record, seen: Seen, now: float) -> Decision:
    if seen.cordoned:
        return Decision(msgspec.structs.replace(record, since=now), outcome=Outcome.RELEASED, message="it is not being changed")
    if seen.state == ConfigState.FAILED and seen.allowed and (record.phase != Phase.RELEASED or seen.config != record.to):
        return _quarantined(Record(Phase.FAILED, seen.config, since=now, last=record.last), seen)
    if record.phase != Phase.DONE and (seen.config != record.to or (record.phase == Phase.RELEASED and _ok(seen))):
        return Decision(Record(Phase.DONE, seen.config, since=now, last=record.last), message="the label changed")
    return Decision(record)


def _ok(seen: Seen) -> bool:
    return seen.state == ConfigState.SUCCESS


def _follow(record: Record, seen: Seen, now: float) -> Decision:
    """What is on the node now is waited for, as if it had been asked for here."""
    message = f"{seen.config!r} ({seen.state or 'no state'}) is waited for"
    return Decision(Record(Phase.APPLYING, seen.config, "", now, record.pods, record.last), message=message)


def _quarantined(record: Record, seen: Seen) -> Decision:
    message = f"mig-manager failed to apply {seen.config!r}: see its log on the node, then set the label again"
    return Decision(record, outcome=Outcome.FAILED, message=message)
