"""What small random clusters are about."""

from __future__ import annotations

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.units import WHOLE
from fairlead.simulation.decisions.cluster import GPU, HOUR, START, Theme

_FLAT = (("red", "", 8, 1, None), ("green", "", 16, 1, None), ("blue", "", 8, 2, None))
_TREE = (
    ("lab", "", 16, 1, None),
    ("shop", "", 16, 2, None),
    ("lab-a", "lab", 4, 1, None),
    ("lab-b", "lab", 12, 1, None),
    ("shop-a", "shop", 8, 3, 20),
    ("shop-b", "shop", None, 1, None),
)
_DEEP = (
    ("top", "", 24, 1, None),
    ("side", "", 8, 1, None),
    ("mid-a", "top", 12, 1, None),
    ("mid-b", "top", 12, 2, None),
    ("leaf-a", "mid-a", 8, 1, None),
    ("leaf-b", "mid-a", None, 1, None),
    ("leaf-c", "mid-b", 6, 2, 16),
    ("leaf-d", "mid-b", 6, 1, None),
)
_LEVELS = tuple(hours * HOUR for hours in (0.25, 1, 4, 16, 64))
_SLICED = ServiceClass("sliced", checkpoint_interval=1800.0, levels=_LEVELS, express=2)
SAVED = ServiceClass("saved", checkpoint_interval=1800.0, levels=_LEVELS, express=2, max_loss=60.0)
_WHOLE = ServiceClass("whole", checkpoint_interval=600.0, moves_whole=True)
_NON_PREEMPTIBLE = ServiceClass("non-preemptible", mode="Never", borrows=False)
_WIDE = ServiceClass("wide", scope="Cluster", min_runtime=600.0)
_HURRY = ServiceClass("hurry", max_wait=1800.0, time_limit=4 * HOUR)
_PLAIN = ServiceClass("plain", checkpoint_interval=1800.0)
_GANGS = ((1, 1), (2, 1), (8, 1), (4, 2), (8, 2), (8, 3), (2, 4))

THEMES: dict[str, tuple[str, Theme, dict[str, int]]] = {
    "flat": ("three queues of one level", Theme(queues=_FLAT), {"Place": 50, "Preempt": 5, "Refuse": 50, "QueueStatus": 50}),
    "tree": (
        "reclaim in a tree of two levels",
        Theme(queues=_TREE, sizes=_GANGS),
        {"Place": 40, "Preempt": 5, "GroupStatus": 50},
    ),
    "deep": ("reclaim in a tree of three levels", Theme(queues=_DEEP, sizes=_GANGS), {"Place": 40, "Preempt": 5}),
    "share-wait": (
        "waits for a share end",
        Theme(queues=_FLAT, sizes=((6, 1), (8, 1), (1, 1)), policy=Policy(share_wait=900.0)),
        {"Place": 20, "Preempt": 3},
    ),
    "elastic": ("members beyond the minimum", Theme(queues=_FLAT, sizes=_GANGS, spare=0.9), {"Place": 40, "Preempt": 5}),
    "time-slicing": ("time slices, whatever they cost", Theme(queues=_FLAT, classes=(_SLICED,)), {"Preempt": 20}),
    "checkpoints": ("time slices that end at checkpoints", Theme(queues=_TREE, classes=(SAVED,)), {"Preempt": 10}),
    "priorities": ("preemption inside a queue", Theme(priorities=(0, 10, 100), sizes=_GANGS, mean_hours=0.5), {"Preempt": 10}),
    "moves": (
        "pods are moved",
        Theme(queues=_FLAT, classes=(_PLAIN,), load=1.0, policy=Policy(reservations=0, move_patience=60.0)),
        {"moves": 3},
    ),
    "moves-whole": (
        "whole gangs are moved",
        Theme(
            classes=(_WHOLE,),
            sizes=((2, 2), (2, 3), (1, 3), (8, 1)),
            load=0.9,
            mean_hours=3.0,
            hours=48.0,
            policy=Policy(reservations=0, move_patience=60.0),
        ),
        {"moves": 3},
    ),
    "reservations": ("nodes are reserved for large jobs", Theme(sizes=((1, 1), (8, 2), (8, 3)), load=1.2), {"Place": 30}),
    "maintenance": (
        "nodes that an administrator keeps for a while",
        Theme(
            queues=_FLAT,
            reservations=(
                Reservation("inspection", START + 3 * HOUR, START + 6 * HOUR, resources=((GPU, 16),)),
                Reservation("course", START + 8 * HOUR, START + 12 * HOUR, queue="red", resources=((GPU, 8),)),
            ),
        ),
        {"ReservationStatus": 4, "Reservation": 5},
    ),
    "fractions": (
        "parts of devices",
        Theme(queues=_FLAT, fractions=(250, 300, 500, 700), sizes=((1, 1), (1, 1), (2, 1), (8, 1))),
        {"Place": 50},
    ),
    "users": (
        "limits by user, and users that take from each other",
        Theme(queues=_FLAT, per_user=UserLimits(running=6, resources=((GPU, 10 * WHOLE),)), users_reclaim=True, users=5),
        {"Place": 30, "UserLimit": 5},
    ),
    "budgets": ("disruption budgets", Theme(queues=_FLAT, budgets=1), {"DisruptionBudget": 1, "Warn": 5}),
    "non-preemptible": (
        "work that is not preempted",
        Theme(queues=_TREE, classes=(_NON_PREEMPTIBLE, _PLAIN)),
        {"QuotaExceeded": 3},
    ),
    "wide": (
        "a class that takes from all queues",
        Theme(queues=_FLAT, classes=(_WIDE, _PLAIN), priorities=(0, 50)),
        {"Preempt": 5},
    ),
    "limits-of-time": (
        "waits that end, time limits",
        Theme(classes=(_HURRY, _PLAIN), mean_hours=3.0),
        {"Overdue": 3, "Evict": 1},
    ),
    "failures": (
        "writes that fail, nodes that come and go",
        Theme(queues=_TREE, sizes=_GANGS, spare=0.5, faults=0.1, nodes_fail=HOUR),
        {"Place": 40, "Evict": 1},
    ),
    "edits": ("quotas and weights that are edited", Theme(queues=_TREE, edits=True), {"Place": 40, "Preempt": 5}),
    "kubernetes": (
        "upstream's rules",
        Theme(profile=KUBERNETES_PROFILE, priorities=(0, 10, 100), sizes=((1, 1), (2, 1), (4, 1), (8, 1))),
        {"Place": 50, "Preempt": 5},
    ),
    "binpack": ("strategy binpack", Theme(queues=_FLAT, sizes=_GANGS, policy=Policy(strategy="binpack")), {"Place": 40}),
    "spread": ("strategy spread", Theme(queues=_FLAT, sizes=_GANGS, policy=Policy(strategy="spread")), {"Place": 40}),
    "fgd": (
        "strategy fgd, with fractions",
        Theme(fractions=(250, 500, 700), sizes=((1, 1), (1, 1), (4, 1)), hours=8.0, policy=Policy(strategy="fgd")),
        {"Place": 50},
    ),
    "mixed": (
        "everything at once",
        Theme(
            gpus=(8, 8, 4, 4, 2, 2),
            queues=_TREE,
            classes=(SAVED, _PLAIN, _NON_PREEMPTIBLE, _WHOLE),
            sizes=_GANGS,
            spare=0.4,
            priorities=(0, 0, 10),
            fractions=(500,),
            faults=0.03,
            nodes_fail=3 * HOUR,
            edits=True,
        ),
        {"Place": 40, "Preempt": 5},
    ),
}
