"""What goes wrong in a storm with pools that share and with classes that isolate or share: they are edited and deleted."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from fairlead.api import names
from fairlead.cluster.simulated.errors import StatusError
from fairlead.simulation.neighbours import plan as plans
from fairlead.simulation.neighbours.plan import Plan
from fairlead.simulation.users import Strike
from fairlead.simulation.world import World

_BACK = (1.0, 300.0)  # seconds, from and to
_MERGE = "application/merge-patch+json"


class NeighbourStorms:
    """Strikes at the pools and classes of a world. afterwards: called with what is done when the storm is over."""

    def __init__(self, world: World, plan: Plan, afterwards: Callable[[Callable[[], object]], None]) -> None:
        self._world = world
        self._plan = plan
        self._random = random.Random(f"neighbour storms {plan.seed}")
        self._afterwards = afterwards
        self._declared = plans.declared(plan, world)
        self._classes = plans.classes(plan)

    def strikes(self) -> list[tuple[str, Strike]]:
        """What may go wrong."""
        found: list[tuple[str, Strike]] = []
        if self._declared:
            found += [("amount_edited", self._edit_amount), ("pool_deleted", self._delete_pool)]
        if self._classes:
            found += [("class_edited", self._edit_class), ("service_class_deleted", self._delete_class)]
        return found

    async def _edit_amount(self) -> None:
        """More, less, none or nothing stated of what a pool shares."""
        pool = self._random.choice(sorted(self._declared))
        name = self._random.choice(sorted(self._declared[pool]))
        amount = self._random.choice((None, 0, 1, round(self._declared[pool][name] * self._random.uniform(0.1, 2.0))))
        self._set_amount(pool, name, amount)
        self._again(lambda: self._set_amount(pool, name, self._declared[pool][name]))

    def _set_amount(self, pool: str, name: str, amount: int | None) -> None:
        text = plans.quantity_of(name, amount) if amount is not None else None
        resource = self._world.api.served(names.API_VERSION, "nodepools")
        with contextlib.suppress(StatusError):
            self._world.api.patch(resource, "", pool, _MERGE, {"spec": {"sharedResources": {name: text}}})

    async def _delete_pool(self) -> None:
        pool = self._random.choice(sorted(self._declared))
        self._delete("nodepools", pool)
        self._again(lambda: self._create(plans.pool_object(pool, self._declared[pool])))

    async def _edit_class(self) -> None:
        """What jobs of a class ask of their neighbours changes: what is placed from then on follows."""
        name = self._random.choice(sorted(self._classes))
        spec = self._classes[name]
        keys: tuple[str, ...] = ("isolation", "sharing")
        changed = {key: self._random.choice(("None", spec[key])) for key in keys if key in spec}
        self._patch_class(name, changed)
        self._again(lambda: self._patch_class(name, {key: spec[key] for key in changed}))

    def _patch_class(self, name: str, spec: dict[str, str]) -> None:
        resource = self._world.api.served(names.API_VERSION, "serviceclasses")
        with contextlib.suppress(StatusError):
            self._world.api.patch(resource, "", name, _MERGE, {"spec": spec})

    async def _delete_class(self) -> None:
        name = self._random.choice(sorted(self._classes))
        self._delete("serviceclasses", name)
        self._again(lambda: self._create(plans.class_object(self._plan, name)))

    def _again(self, call: Callable[[], object]) -> None:
        """As it was, when the storm is over, or sooner."""
        self._afterwards(call)
        if self._random.random() < 0.5:
            self._world.clock.call_later(self._random.uniform(*_BACK), lambda: (call(), None)[1])

    def _delete(self, plural: str, name: str) -> None:
        with contextlib.suppress(StatusError):
            self._world.api.delete(self._world.api.served(names.API_VERSION, plural), "", name)

    def _create(self, manifest: dict[str, object]) -> None:
        with contextlib.suppress(StatusError):
            self._world.create(manifest)
