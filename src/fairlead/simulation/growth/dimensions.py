"""All dimensions that are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fairlead.simulation.growth import events, history, limits, operator, passes, placing, server
from fairlead.simulation.growth.measure import Dimension, Growth, measure

DIMENSIONS = (
    Dimension("nodes", "placement", placing.by_nodes, (1000, 4000, 16_000), (100, 200, 400), rounds=3),
    Dimension("classes", "placement", placing.by_classes, (100, 400, 1600), (20, 80, 320), rounds=3),
    Dimension("users", "placement", placing.by_users, (10, 160, 2560), (5, 40, 320), rounds=3),
    Dimension("depth", "placement", placing.by_depth, (1, 2, 3, 4, 6), (1, 2, 4), rounds=3, most=0.5),
    Dimension("queues", "placement", placing.by_queues, (10, 160, 2560), (5, 40, 320), rounds=3),
    Dimension("unschedulable", "pod end", events.end_by_classes, (400, 1600, 6400), (20, 80, 320)),
    Dimension("unschedulable-idle", "pass", events.idle_by_classes, (400, 1600, 6400), (20, 80, 320)),
    Dimension("unschedulable-bound", "confirmed binding", events.bound_by_classes, (100, 400, 1600), (5, 10, 20), counted=1),
    Dimension("waiting-queues", "pod end", events.end_by_queues, (10, 160, 2560), (10, 40, 160)),
    Dimension("waiting-users", "pod end", events.end_by_waiting_users, (100, 400, 1600), (20, 80, 320)),
    Dimension("limited-users", "pod end", events.end_by_limited_users, (10, 160, 640), (10, 40, 160)),
    Dimension("searches", "pod end", events.end_by_vain_searches, (100, 400, 1600), (5, 10, 20), counted=1),
    Dimension("levels", "time slice", passes.Ticks, (1000, 2000, 4000, 8000), (160, 320, 640), rounds=3, counted=1),
    Dimension("victims", "victim", passes.Hero, (1000, 4000, 16_000), (160, 320, 640), rounds=1, counted=1),
    Dimension("forecast", "class", passes.Forecasts, (100, 400, 1600), (20, 40, 80), rounds=3, counted=1, most=0.1),
    Dimension("groups", "PodGroup", events.group_by_pods, (1600, 6400, 25_600), (100, 400, 1600)),
    Dimension("submitted", "new pod", events.pod_by_submitted, (1000, 4000, 16_000), (100, 400, 1600)),
    Dimension("budgets", "reclaimed pod", events.reclaim_by_budgets, (1, 10, 100, 1000), (1, 10, 100), rounds=3),
    Dimension("suspended", "job, first pass", passes.Suspended, (400, 1600, 6400), (20, 80, 320), rounds=1, counted=1),
    Dimension("budget-pods", "budget event", events.budget_by_pods, (5000, 20_000, 80_000), (400, 1600, 3200)),
    Dimension("queue-pods", "queue event", events.queue_by_pods, (5000, 20_000, 80_000), (400, 1600, 3200)),
    Dimension("limited-queue", "queue event", limits.queue_by_limited_pods, (5000, 20_000, 80_000), (400, 1600, 3200)),
    Dimension("pool-nodes", "node event", limits.node_by_pool_pods, (5000, 20_000, 80_000), (400, 1600, 3200)),
    Dimension("jobs-beyond", "new pod", limits.pod_by_jobs_beyond, (1000, 4000, 16_000), (100, 400, 1600)),
    Dimension("history-list", "list", history.lists, (4000, 16_000, 64_000), (400, 1600, 6400), rounds=5, counted=1),
    Dimension("history-cost", "ledger", history.ledgers, (4000, 16_000, 64_000), (400, 1600, 6400), rounds=5, counted=1),
    Dimension("server-pages", "page", server.Pages, (5000, 20_000, 80_000), (400, 1600, 6400), rounds=3, counted=1),
    Dimension("server-namespace", "list", server.Namespace, (5000, 20_000, 80_000), (400, 1600, 6400)),
    Dimension("operator", "pod event", operator.independent, (200, 800, 3200), (100, 150, 200), rounds=3, counted=1),
    Dimension("dependent-jobs", "pod event", operator.dependent, (200, 800, 3200), (100, 150, 200), rounds=3, counted=1),
)
"""`budgets` begins at one; `depth` counts levels below the root, and may cost twice as much at four as at one. Histories have 100
jobs a day."""

BY_NAME = {each.name: each for each in DIMENSIONS}


class GrowthResult(msgspec.Struct):
    """Every dimension by its name. above: those whose cost grows faster than its target."""

    dimensions: dict[str, Growth]
    above: list[str]


def run(names: Sequence[str], *, small: bool = False, progress: Callable[[int, int], None] | None = None) -> GrowthResult:
    """Measure dimensions. small: at the sizes at which the test counts calls; progress: takes how many sizes are done, of all."""
    chosen = [(BY_NAME[name], BY_NAME[name].small if small else BY_NAME[name].sizes) for name in names]
    total, done = sum(len(sizes) for _, sizes in chosen), 0
    found: dict[str, Growth] = {}

    def note() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    for dimension, sizes in chosen:
        found[dimension.name] = measure(dimension, sizes, note)
    return GrowthResult(found, [name for name, each in found.items() if each.exponent > each.target])
