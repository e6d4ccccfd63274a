"""What goes wrong with devices in a storm: drivers restart, devices vanish or get taints, claims and templates are deleted."""

from __future__ import annotations

import random
from collections.abc import Callable

from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.drivers import Drivers
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import CLAIMS, TEMPLATES
from fairlead.cluster.simulated.store import Object
from fairlead.simulation.device_work import CLASS, class_body
from fairlead.simulation.users import CLASS_RESOURCE, Strike
from fairlead.simulation.world import World

_EFFECTS = ("NoSchedule", "NoExecute", "NoExecute", "None")
_RESTART, _HEAL = (1.0, 300.0), (60.0, 1800.0)  # seconds, from and to
_BACK = (1.0, 120.0)


class DeviceStorms:
    """Strikes at the devices of a world.

    afterwards: called with what is done when the storm is over; disturbed: with a node that offers something else.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        afterwards: Callable[[Callable[[], object]], None],
        disturbed: Callable[[str], object] = id,
    ) -> None:
        self._world = world
        self._disturbed = disturbed
        self._random = random.Random(f"devices {seed}")
        self._afterwards = afterwards

    @property
    def _drivers(self) -> Drivers:
        return self._world.kubelet.drivers

    def strikes(self) -> list[tuple[str, Strike]]:
        """What may go wrong."""
        return [
            ("driver_restarted", self._restart),
            ("device_lost", self._lose),
            ("device_tainted", self._taint),
            ("claim_deleted", self._delete_claim),
            ("template_deleted", self._delete_template),
            ("class_deleted", self._delete_class),
            ("plugin_stopped", self._stop_plugin),
        ]

    def _some_node(self) -> str:
        return self._random.choice(sorted(self._drivers.nodes))

    def _some_devices(self, name: str) -> list[str]:
        """A GPU with its partitions, or one of them alone."""
        model = self._drivers.nodes[name].model
        found = devices.of_gpu(model, self._random.randrange(model.gpus))
        return found if self._random.random() < 0.5 else [self._random.choice(found)]

    async def _restart(self) -> None:
        name = self._some_node()
        if self._world.has_node(name):
            self._drivers.restart(name, self._random.uniform(*_RESTART))

    async def _lose(self) -> None:
        name = self._some_node()
        self._drivers.lose(name, self._some_devices(name))
        self._heal(name)

    async def _taint(self) -> None:
        name = self._some_node()
        self._drivers.taint(name, self._some_devices(name), self._random.choice(_EFFECTS))
        self._heal(name)

    def _heal(self, name: str) -> None:
        self._afterwards(lambda: self._drivers.repair(name))
        if self._random.random() < 0.5:
            self._world.clock.call_later(self._random.uniform(*_HEAL), lambda: self._drivers.repair(name))

    async def _delete_claim(self) -> None:
        """A user deletes a claim, in use or not: it stays until its pods are over."""
        found = sorted(key for key, _ in self._world.api.store.records(CLAIMS))
        if found:
            resource = self._world.api.served(devices.API_VERSION, "resourceclaims")
            self._quietly(lambda: self._world.api.delete(resource, *self._random.choice(found)))

    async def _delete_template(self) -> None:
        """A template goes and comes back: pods that have no claim yet wait for it."""
        found = sorted(key for key, _ in self._world.api.store.records(TEMPLATES))
        if not found:
            return
        key = self._random.choice(found)
        record = self._world.api.store.get(TEMPLATES, key)
        resource = self._world.api.served(devices.API_VERSION, "resourceclaimtemplates")
        spec: Object = record.object["spec"] if record is not None else {}
        self._quietly(lambda: self._world.api.delete(resource, *key))

        def again() -> None:
            self._quietly(lambda: self._world.api.create(resource, key[0], {"metadata": {"name": key[1]}, "spec": spec}))

        self._world.clock.call_later(self._random.uniform(*_BACK), again)

    async def _delete_class(self) -> None:
        """The class that serves an extended resource goes and comes back."""
        resource, class_ = self._world.api.served(devices.API_VERSION, "deviceclasses"), class_body()
        self._quietly(lambda: self._world.api.delete(resource, "", CLASS))
        back = lambda: self._quietly(lambda: self._world.api.create(resource, "", class_))  # noqa: E731
        self._afterwards(back)
        self._world.clock.call_later(self._random.uniform(*_BACK), back)

    async def _stop_plugin(self) -> None:
        """The device plugin of a node goes: what it serves is no longer offered, and devices serve it there."""
        offering = [name for name in sorted(self._drivers.nodes) if CLASS_RESOURCE in self._world.allocatable(name)]
        if not offering:
            return
        name = self._random.choice(offering)
        whole = self._world.allocatable(name)[CLASS_RESOURCE]
        self._disturbed(name)
        self._world.kubelet.resize(name, {CLASS_RESOURCE: "0"})

        def again() -> None:
            self._disturbed(name)
            self._world.kubelet.resize(name, {CLASS_RESOURCE: whole})

        self._afterwards(again)

    @staticmethod
    def _quietly(call: Callable[[], object]) -> None:
        try:
            call()
        except StatusError:
            return
