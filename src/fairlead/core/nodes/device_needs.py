"""What pods ask for by claims: contents that are alike have one number, and a part of a GPU that queues are charged.

So pods with equal claims of their own are alike, whatever their claims are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fairlead.core.dra import model, weights
from fairlead.core.dra.inventory import SelectorFailure
from fairlead.core.dra.model import DeviceClass, Slice
from fairlead.core.model.pods import Pod
from fairlead.core.nodes.node_devices import NodeDevices

_WEIGHED = 256  # GPUs, or parts of such, of which it is asked what claims take
_NOTHING = model.Claim("", "")


class DeviceNeeds:
    """Contents of claims, and the pods that use them. asks_of: what a claim or a template asks for, by key; None: there is none.

    concerned: UIDs of pods whose needs may have changed since they were found out.
    """

    def __init__(
        self, devices: NodeDevices, classes: Mapping[str, DeviceClass], asks_of: Callable[[str], model.Claim | None]
    ) -> None:
        self.concerned: dict[str, None] = {}
        self._devices, self._classes, self._asks_of = devices, classes, asks_of
        self._known = devices.known
        self._users: dict[str, dict[str, None]] = {}  # claim or template -> UIDs of pods that use it
        self._numbers: dict[model.Claim, int] = {}
        self._contents: list[model.Claim] = [_NOTHING]
        self._sampled: list[tuple[model.DeviceId, model.Device]] | None = None
        self._weights: dict[int, int] = {}  # content -> thousandths of a GPU, where devices are known that it selects

    @property
    def any(self) -> bool:
        """Whether any pod uses a claim."""
        return bool(self._users)

    def use(self, pod: Pod) -> None:
        """A pod uses its claims from now on."""
        for use in pod.claims:
            for key in filter(None, (use.key, use.template)):
                users = self._users.setdefault(key, {})
                users[pod.uid] = None
                if key == use.key and len(users) > 1:
                    self.concerned.update(dict.fromkeys(uid for uid in users if uid != pod.uid))

    def leave(self, pod: Pod) -> None:
        """A pod is gone."""
        for use in pod.claims:
            for key in filter(None, (use.key, use.template)):
                users = self._users.get(key, {})
                users.pop(pod.uid, None)
                if not users:
                    self._users.pop(key, None)
                elif key == use.key:
                    self.concerned.update(users)

    def doubt(self, pod: Pod) -> None:
        """A pod has lost its place: what it needs may have changed since it got that."""
        if pod.claims:
            self.concerned[pod.uid] = None

    def users(self, key: str) -> tuple[str, ...]:
        """UIDs of the pods that use a claim, or whose claims a template makes."""
        return tuple(self._users.get(key, ()))

    def concern(self, key: str) -> None:
        """What pods need by a claim or a template may be different."""
        self.concerned.update(self._users.get(key, {}))

    def number(self, asks: model.Claim) -> int:
        """The number of what a claim asks for; equal claims have the same."""
        number = self._numbers.get(asks)
        if number is None:
            number = self._numbers[asks] = len(self._contents)
            self._contents.append(asks)
        return number

    def content(self, number: int) -> model.Claim:
        """What needs with this number ask for."""
        return self._contents[number]

    def weight(self, number: int) -> int:
        """Thousandths of a GPU that a content takes; of alternatives the largest. 0: no device is known that it selects."""
        if number not in self._weights:
            found = self._weigh(self._contents[number], self._sample())
            if found is None:
                return 0
            self._weights[number] = found
        return self._weights[number]

    def _sample(self) -> list[tuple[model.DeviceId, model.Device]]:
        """Some GPUs, by name: what each claim selects of them is what it takes."""
        if self._sampled is None:
            ids = sorted(each for each in self._known if weights.is_gpu(each.driver))[:_WEIGHED]
            self._sampled = [(each, self._known[each]) for each in ids]
        return self._sampled

    def weigh_again(self, *, changed: bool) -> None:
        """A class came, or has changed: pods whose claims select GPUs by it are charged for these from now on."""
        if changed:
            self._weights.clear()
        for number in range(1, len(self._contents)):
            if number not in self._weights and self.weight(number):
                self._concern_all(number)

    def _concern_all(self, number: int) -> None:
        for key in self._users:
            if (asks := self._asks_of(key)) is not None and self._numbers.get(asks) == number:
                self.concern(key)

    def _weigh(self, asks: model.Claim, devices: Sequence[tuple[model.DeviceId, model.Device]]) -> int | None:
        """None: none of these devices is what it asks for."""
        selected = False
        total = 0
        for request in asks.requests:
            largest = 0
            for ask in request.alternatives:
                by_pool: dict[tuple[str, str], list[int]] = {}
                for device_id, device in devices:
                    if self._selects(ask, device):
                        pool = device_id.driver, device_id.pool
                        counters = self._devices.slices.counters_of(pool) if device.counters else {}
                        by_pool.setdefault(pool, []).append(weights.milli_of_ask(device, counters, ask))
                selected = selected or bool(by_pool)
                count = ask.count if ask.mode == model.EXACT else 1
                taken = max if ask.mode == model.EXACT else sum
                largest = max([largest, *(count * taken(each) for each in by_pool.values())])
            total += largest
        return total if selected else None

    def _selects(self, ask: model.Ask, device: model.Device) -> bool:
        device_class = self._classes.get(ask.device_class)
        if device_class is None or ask.admin:
            return False
        try:
            return all(self._devices.matches(each, device) for each in (*device_class.selectors, *ask.selectors))
        except SelectorFailure:
            return False

    def weigh_anew(self, item: Slice) -> None:
        """Devices came that contents may select for which none was known: pods that wait for these are charged from now on."""
        self._sampled = None
        if len(self._weights) == len(self._contents) - 1 or not weights.is_gpu(item.driver):
            return
        devices = [(model.DeviceId(item.driver, item.pool, each.name), each) for each in item.devices]
        for number in range(1, len(self._contents)):
            if number not in self._weights and (found := self._weigh(self._contents[number], devices)) is not None:
                self._weights[number] = found
                self._concern_all(number)
