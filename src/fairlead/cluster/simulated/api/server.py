"""The API server: a store, a catalog of what is served, and the verbs on them.

Every refusal is a `StatusError`. Objects given in belong to the server afterwards; objects given out
must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.cluster.simulated.api.changing import Changing
from fairlead.cluster.simulated.api.creating import Creating
from fairlead.cluster.simulated.api.definitions import Definitions
from fairlead.cluster.simulated.api.deleting import Deleting
from fairlead.cluster.simulated.api.reading import Reading
from fairlead.cluster.simulated.api.subresources import Subresources
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.quotas import Quotas
from fairlead.cluster.simulated.resources import Catalog
from fairlead.cluster.simulated.store import Object, Store

_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class ApiServer:
    """One simulated API server. seed: of UIDs and generated names; history: changes remembered for watches."""

    def __init__(self, clock: Clock, *, seed: int = 0, history: int = 100_000) -> None:
        self.clock = clock
        self.store = store = Store(history)
        self.catalog = catalog = Catalog()
        self.logs: Callable[[Object, str], str] = lambda _pod, _container: ""
        self.attach: Any = None  # an `attach.Attach`, where pods' commands run

        self.definitions = definitions = Definitions(store, catalog)
        self.quotas = Quotas(store, clock)
        reading = Reading(store)
        self.deleting = deleting = Deleting(store, catalog, clock, reading)
        self.garbage = deleting.garbage
        creating = Creating(store, catalog, clock, definitions, self.quotas, self.garbage, seed)
        changing = Changing(store, catalog, clock, definitions, reading, creating, deleting)
        subresources = Subresources(store, catalog, clock, definitions, reading, changing, deleting)

        # The verbs, each documented in the part that owns it.
        self.served = definitions.served
        self.get, self.page, self.watch = reading.get, reading.page, reading.watch
        self.create, self.delete = creating.create, deleting.delete
        self.update, self.patch, self.apply = changing.update, changing.patch, changing.apply
        self.bind, self.evict = subresources.bind, subresources.evict
        self.scale, self.set_scale = subresources.scale, subresources.set_scale

        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(self.served("v1", "namespaces"), "", {"metadata": {"name": name}})
        for name, value in _SYSTEM_CLASSES.items():
            self.create(self.served("scheduling.k8s.io/v1", "priorityclasses"), "", {"metadata": {"name": name}, "value": value})
