"""What speaks against a node, and when it is enough: a pure decision. What was measured of it: docs/design/node-health.md.

Two kinds of evidence. *Direct*: the node was lost, its kubelet refused pods, a device of it reported a hardware error, a
condition reports a broken node. *Comparative*: a member failed there, and the same work ran elsewhere for longer. An exit code
alone is no evidence, and a job that fails on two nodes is no evidence against either.

Comparative evidence is judged by two sequential likelihood ratios, averaged. *By place*, the anytime-valid logrank test (ter
Schure, Perez-Ortiz, Ly, Grunwald, "The Anytime-Valid Logrank Test: Error Control under Continuous Monitoring with Unlimited
Horizon", 2024): if the nodes are alike, the chance that a failure comes to pass on one of them is the share of comparable runs
that are there; if a node fails h times as often, it is h share / (h share + 1 - share). *By job*, a sign test: of jobs that are
tried on a node first and do not fail everywhere, at most every second fails there, however often it fails by itself. Such a
ratio, averaged over a few alternatives, exceeds 1 / alpha with a chance of at most alpha, however often one checks; divided among
all nodes that is the chance of any false blame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.cluster.times import seconds, timestamp

LOST = "(lost)"
"""Stands for a job where the node itself was lost."""
DEVICE = "(device)"
CONDITION = "(condition)"
REFUSED = "refused"
RAN_ELSEWHERE = "ran-elsewhere"
_MOST_NOTED = 20  # of one node
_HAZARDS = ((4.0, 0.1), (16.0, 0.2), (64.0, 0.3), (256.0, 0.4))
"""How many times as often a bad node may fail, and the weight of that: the prior of the alternative."""
_LEAST_SHARE = 1e-4
_BY_PLACE = 0.8  # weight of the first ratio in the average; it has more power wherever jobs are tried on several nodes
_FAILS = ((0.7, 0.2), (0.9, 0.4), (0.99, 0.4))
"""With which chance a bad node may fail a job that is sound, and the weight of that."""


class Rules(msgspec.Struct, frozen=True):
    """When a node counts as lost, and when it is quarantined. Seconds, and numbers of failures.

    doubt: for so long a pod that was made after its node was lost is assumed to run: its scheduler had observed the node.
    failures, jobs, users within window: how many losses and refusals are enough. comparison: how long comparative evidence
    counts. false_alarm: the chance that any node of a cluster whose nodes are alike is blamed within that time. without_one: the
    chance of error that the evidence must still be worth without the user whose jobs speak loudest.
    """

    lost_after: float = 10.0
    doubt: float = 120.0
    failures: int = 3
    jobs: int = 2
    users: int = 2
    most: float = 0.1  # of a pool
    window: float = 3600.0
    comparison: float = 7 * 86400.0
    false_alarm: float = 0.001
    without_one: float = 0.05
    quarantine: float = 6 * 3600.0


class Failure(msgspec.Struct, frozen=True):
    """One thing that speaks against a node: when, and of which job (`namespace/name`), or `LOST`, `DEVICE`, `CONDITION`.

    user: the job's; empty: its namespace is its user. how: `REFUSED`, `RAN_ELSEWHERE`, or a report of a device or condition.
    share: with `RAN_ELSEWHERE`, the part of comparable runs that was on this node; passed: how many jobs had run well on it
    since the first such failure.
    """

    at: float
    job: str
    user: str = ""
    how: str = ""
    share: float = 1.0
    passed: int = 0

    @property
    def who(self) -> str:
        """The user."""
        return self.user or self.job.partition("/")[0]

    @property
    def counts(self) -> bool:
        """Whether it is evidence of a kind that is known; an exit code, as older versions noted it, is none."""
        return self.job in (LOST, DEVICE, CONDITION) or self.how in (REFUSED, RAN_ELSEWHERE)


class Verdict(msgspec.Struct, frozen=True):
    """What is made of the evidence. why: in words, empty while it is not enough. value: how many times likelier the comparative
    evidence is if the node is bad (natural logarithm); needed: from which on it is enough; without_one: without the loudest user.
    """

    why: str = ""
    value: float = 0.0
    needed: float = 0.0
    without_one: float = 0.0


# -- the annotation ------------------------------------------------------------------------------------


def noted(annotation: str) -> list[Failure]:
    """The failures in a node's annotation; what cannot be read is left out."""
    found = []
    for part in annotation.split(","):
        words = part.strip().split(" ")
        if len(words) < 2 or not words[1] or not (at := seconds(words[0])):
            continue
        user, how, share, passed = (*words[2:], "", "", "", "")[:4]
        many = int(passed) if passed.isascii() and passed.isdigit() and len(passed) < 10 else 0
        found.append(Failure(at, words[1], _plain(user), _plain(how), _share(share), many))
    return found


def shown(failures: Sequence[Failure]) -> str:
    """The annotation with the latest failures."""
    return ",".join(_line(each) for each in failures[-_MOST_NOTED:])


def _line(failure: Failure) -> str:
    words = [timestamp(failure.at), failure.job, _quoted(failure.user), _quoted(failure.how)]
    if failure.how == RAN_ELSEWHERE:
        words += [f"{failure.share:.4f}", str(failure.passed)]
    return " ".join(words).rstrip()


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace(" ", "%20")


def _plain(text: str) -> str:
    return text.replace("%20", " ").replace("%2C", ",").replace("%25", "%")


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        return 1.0
    return share if 0.0 < share <= 1.0 else 1.0


# -- the decision --------------------------------------------------------------------------------------


def late(failures: Iterable[Failure], now: float, rules: Rules) -> list[Failure]:
    """Those that still count."""
    found = []
    for each in failures:
        lasts = rules.comparison if each.how == RAN_ELSEWHERE else rules.window
        if each.counts and now - each.at <= lasts:
            found.append(each)
    return found


def direct(failures: Sequence[Failure], now: float, rules: Rules) -> str:
    """Why the direct evidence is enough to keep gangs off the node; empty: it is not.

    One report of a device or a condition is enough. Losses and refusals must be several, of several jobs of several users;
    that a node was lost counts once, for all its users.
    """
    recent = [each for each in late(failures, now, rules) if each.how != RAN_ELSEWHERE]
    reported = next((each for each in recent if each.job in (DEVICE, CONDITION)), None)
    if reported is not None:
        return reported.how
    different = {each.at if each.job == LOST else each.job for each in recent}
    users = {each.at if each.job == LOST else each.who for each in recent}
    if len(recent) < rules.failures or len(different) < rules.jobs or len(users) < rules.users:
        return ""
    losses = sum(each.job == LOST for each in recent)
    parts = [f"it was lost {losses} times"] * bool(losses)
    refusals = sorted({each.job for each in recent if each.job != LOST})
    parts += [f"its kubelet refused pods of {', '.join(refusals)}"] * bool(refusals)
    return f"{' and '.join(parts)} within {rules.window:g} s"


def by_job(failed: int, passed: int) -> float:
    """How many times likelier it is that jobs failed and passed so on a node that is bad than on a sound one; natural logarithm.

    failed: jobs that failed there and ran elsewhere, but for the first, with which the comparison begins; passed: those that ran
    there as well as they would elsewhere. On a sound node a job of which each attempt fails with a chance of q is one of the
    first kind with q (1 - q), of the second with 1 - q: at most as often.
    """
    return _average(
        math.log(weight) + failed * math.log(2.0 * fails) + passed * math.log(2.0 * (1.0 - fails)) for fails, weight in _FAILS
    )


def _average(logs: Iterable[float]) -> float:
    """The logarithm of a sum of which the logarithms are given."""
    listed = list(logs)
    most = max(listed)
    return most + math.log(sum(math.exp(each - most) for each in listed))


def by_place(here: Iterable[float], elsewhere: int, share: float) -> float:
    """How many times likelier the places of failures are if this node is bad than if all are alike; natural logarithm.

    here: for each failure on the node the share of comparable runs that was there. elsewhere: how many came to pass on nodes
    like it. share: of comparable runs that is on this node now.
    """
    shares = [min(1.0, max(_LEAST_SHARE, each)) for each in here]
    now = min(1.0, max(_LEAST_SHARE, share))
    return _average(
        math.log(weight)
        + sum(math.log(hazard / (hazard * each + 1.0 - each)) for each in shares)
        - elsewhere * math.log(hazard * now + 1.0 - now)
        for hazard, weight in _HAZARDS
    )


def value(own: Sequence[Failure], elsewhere: int, share: float, passed: int) -> float:
    """Both ratios, averaged; natural logarithm. own: failures on the node of work that ran elsewhere."""
    if not own:
        return 0.0
    places = by_place((each.share for each in own), elsewhere, share)
    return _average((math.log(_BY_PLACE) + places, math.log(1.0 - _BY_PLACE) + by_job(len(own) - 1, passed)))


def compared(
    node: str, failures: Mapping[str, Sequence[Failure]], share: float, passed: int, nodes: int, now: float, rules: Rules
) -> Verdict:
    """Whether work that ran elsewhere failed on a node too often.

    failures: by node, of all nodes like this one that are not blamed already. share: of comparable runs that is on this one.
    passed: jobs that ran well on it since the first of its failures. nodes: how many are watched in all: the chance of false
    blame is divided among them.
    """
    own = [each for each in late(failures.get(node, ()), now, rules) if each.how == RAN_ELSEWHERE]
    others = (late(theirs, now, rules) for name, theirs in failures.items() if name != node)
    elsewhere = sum(each.how == RAN_ELSEWHERE for theirs in others for each in theirs)
    needed = math.log(max(1, nodes) / rules.false_alarm)
    if not own:
        return Verdict(needed=needed)
    total = value(own, elsewhere, share, passed)
    without = ([each for each in own if each.who != user] for user in {each.who for each in own})
    rest = min(value(theirs, elsewhere, share, passed) for theirs in without)
    users, jobs = {each.who for each in own}, sorted({each.job for each in own})
    if total < needed or rest < math.log(1.0 / rules.without_one) or len(users) < rules.users:
        return Verdict("", total, needed, rest)
    ratio = f"likelihood ratio {math.exp(min(total, 700.0)):.3g}, {math.exp(needed):.3g} are needed"
    why = (
        f"{', '.join(jobs)} of {len(users)} users failed there and ran elsewhere; on all other nodes {elsewhere} did so ({ratio})"
    )
    return Verdict(why, total, needed, rest)
