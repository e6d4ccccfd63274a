"""A synthetic day of a research lab: three teams that train, serve and explore on shared GPUs.

Sizes and run times follow published distributions. Training: GPU counts and durations as in the
Philly trace (ATC'19): 93.5 % of jobs on one GPU, tails on 2, 4, 8, 16 and 32; durations log-normal
with median 1,415 s and 90th percentile 11,133 s. Interactive: fractions of a GPU as in the openb
trace (ATC'23). Arrivals follow the hours of a working day. All from one seed.
"""

from __future__ import annotations

import math
import random

import msgspec

_GPU_COUNTS = ((1, 0.80), (2, 0.06), (4, 0.06), (8, 0.06), (16, 0.015), (32, 0.005))
_FRACTIONS = ((250, 0.35), (320, 0.2), (470, 0.3), (650, 0.15))
_MEDIAN, _NINETIETH = 1415.0, 11_133.0
_SIGMA = math.log(_NINETIETH / _MEDIAN) / 1.2816  # the normal's 90th percentile
_LONGEST = 12 * 3600.0
_DAY = 86_400.0

FAILS = "fails"
_FAULTS = (FAILS, FAILS, "ImagePullBackOff: Back-off pulling image: not found", "InvalidImageName: couldn't parse image name")
_RULES = ("apart", "even", "near", "port", "upstream", "upstream")

RULE_LABEL = "fairlead.dev/simulated-rule"
TEAMS = ("vision", "language", "robotics")


class Job(msgspec.Struct, frozen=True):
    """One job: `pods` of `gpus` x `milli` each, started together, running `duration` seconds.

    rule: what its pods ask of others, if anything: `apart` (no two of a team with this rule on one node), `even` (spread
    over the pools), `near` (one pool), `port` (one port of the node); or `upstream`: placed by profile kubernetes.
    fault: what is wrong with it itself: `fails` (its containers end with an error), or for what they do not start, as a kubelet
    words it. staggered: its members end one after the other. claim: which devices each pod needs by a claim, instead of GPUs.
    service: its class of service, where it names one. shared: what each pod takes of what the nodes of pools share.
    """

    name: str
    team: str
    kind: str
    submitted: float
    duration: float
    pods: int
    gpus: int
    milli: int
    cpu_milli: int
    priority: int
    pool: str
    rule: str = ""
    fault: str = ""
    staggered: bool = False
    claim: str = ""
    service: str = ""
    shared: str = ""


def day(seed: int, jobs: int, pools: tuple[str, ...]) -> list[Job]:
    """`jobs` jobs of one day, by submission."""
    rng = random.Random(seed)
    made = [_job(rng, number, pools) for number in range(jobs)]
    return sorted(made, key=lambda job: (job.submitted, job.name))


def _job(rng: random.Random, number: int, pools: tuple[str, ...]) -> Job:
    team = rng.choices(TEAMS, (0.5, 0.3, 0.2))[0]
    kind = rng.choices(("training", "inference", "interactive"), (0.6, 0.1, 0.3))[0]
    pods, gpus, milli, cpu = 1, 1, 1000, 12_000
    pool = pools[0] if rng.random() < 0.2 else ""
    if kind == "training":
        total = rng.choices([size for size, _ in _GPU_COUNTS], [share for _, share in _GPU_COUNTS])[0]
        pods, gpus = (total // 8, 8) if total > 8 else (1, total)
        cpu = 10_000 * gpus
        duration = min(_LONGEST, rng.lognormvariate(math.log(_MEDIAN), _SIGMA))
        priority = rng.choices((100, 1000), (0.85, 0.15))[0]
    elif kind == "inference":
        pods, cpu, duration, priority = rng.choice((2, 3, 4)), 8000, rng.uniform(2, 8) * 3600, 10_000
    else:
        milli = rng.choices([size for size, _ in _FRACTIONS], [share for _, share in _FRACTIONS])[0]
        cpu, duration, priority, pool = 4000, rng.uniform(0.2, 2) * 3600, 5000, ""
    return Job(f"{kind}-{number:04d}", team, kind, _hour(rng), max(30.0, duration), pods, gpus, milli, cpu, priority, pool)


def _hour(rng: random.Random) -> float:
    """Seconds into the day: a third at any time, the rest around late morning and afternoon."""
    if rng.random() < 1 / 3:
        return rng.uniform(0, _DAY)
    return min(_DAY - 1, max(0.0, rng.gauss(rng.choice((10.5, 15.0)) * 3600, 5400)))


def crowded(seed: int, jobs: int, seconds: float, pools: tuple[str, ...]) -> list[Job]:
    """Jobs that ask for more than a cluster of fifty nodes has: gangs, bursts, all priorities, fractions.

    For finding faults rather than for figures: every third job comes in a burst with its neighbours.
    """
    rng = random.Random(f"crowded {seed}")
    bursts = [rng.uniform(0, 0.95 * seconds) for _ in range(max(1, jobs // 20))]
    rules, bugs, endings = (random.Random(f"{what} {seed}") for what in ("rules", "bugs", "endings"))
    made = []
    for number in range(jobs):
        team = rng.choices(TEAMS, (0.5, 0.3, 0.2))[0]
        at = rng.uniform(0, 0.95 * seconds) if rng.random() < 2 / 3 else rng.choice(bursts) + rng.uniform(0, 5)
        pods, gpus, milli = 1, rng.choice((1, 1, 2, 4, 8)), 1000
        if rng.random() < 0.3:
            pods, gpus = rng.choice((2, 2, 3, 4, 6, 8)), rng.choice((2, 4, 8, 8))
        elif rng.random() < 0.25:
            gpus, milli = 1, rng.choice((250, 500, 750))
        priority = rng.choices((100, 1000, 5000, 10_000), (0.5, 0.25, 0.15, 0.1))[0]
        pool = rng.choice(pools) if rng.random() < 0.3 and milli == 1000 and gpus <= 4 else ""
        duration = min(_LONGEST, 120 + rng.lognormvariate(math.log(4000), 0.9))
        rule = rules.choice(_RULES) if rules.random() < 0.35 else ""
        name = f"job-{number:04d}"
        job = Job(name, team, "training", at, duration, pods, gpus, milli, 4000 * gpus, priority, pool, rule)
        fault = bugs.choice(_FAULTS) if bugs.random() < 0.08 else ""
        made.append(msgspec.structs.replace(job, fault=fault, staggered=pods > 1 and endings.random() < 0.3))
    return sorted(made, key=lambda job: (job.submitted, job.name))
