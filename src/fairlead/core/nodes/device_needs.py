"""What pods ask for by claims: contents that are alike have one number, and a part of a GPU that queues are charged.

So pods with equal claims of their own are alike, whatever their claims are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from fairlead.core.dra import model
from fairlead.core.dra.model import DeviceClass
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.nodes.extended_resources import is_of_pod
from fairlead.core.nodes.node_devices import NodeDevices

if TYPE_CHECKING:
    from fairlead.core.nodes.device_sizes import Asked

_SPARE = 64  # contents that are always kept where such contents are forgotten that nothing uses
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
        self._users: dict[str, dict[str, None]] = {}  # claim or template -> UIDs of pods that use it
        self._numbers: dict[model.Claim, int] = {}
        self._contents: dict[int, model.Claim] = {0: _NOTHING}
        self._last = 0
        self._used = 1  # contents that were used when others were forgotten last
        self._asked: dict[int, list[list[tuple[int, Asked]]]] = {}  # content -> for each request (count, ask) of alternatives
        self._weights: dict[int, int] = {}  # content -> thousandths of a GPU
        self._reweighed: set[int] = set()  # contents of which pods do not know their weight yet

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
            self._last += 1
            number = self._numbers[asks] = self._last
            self._contents[number] = asks
        return number

    def content(self, number: int) -> model.Claim:
        """What needs with this number ask for."""
        return self._contents[number]

    # -- what queues are charged -----------------------------------------------------------------

    def weight(self, number: int) -> int:
        """Thousandths of a GPU that a content takes; of alternatives the largest. 0: no device was there yet that it selects.

        It is the largest device that each request selects among those that are there, and while there is none as it was.
        """
        if number not in self._weights:
            self._weigh(number)
        return self._weights[number]

    def class_changed(self, name: str) -> None:
        """A class came, or selects other devices: contents that name it are weighed anew."""
        for number, asks in list(self._contents.items()):
            if number in self._asked and any(ask.device_class == name for each in asks.requests for ask in each.alternatives):
                self._leave(number)
                self._weigh(number)
        self.follow_sizes()

    def follow_sizes(self) -> None:
        """Pods whose claims select a larger device than before, or no longer do, are charged by that from now on."""
        sizes = self._devices.sizes
        for asked in list(sizes.changed.values()):
            for number in asked.contents:
                self._sum(number)
        sizes.changed.clear()
        if not self._reweighed:
            return
        for key in self._users:
            if is_of_pod(key):
                self.concern(key)  # its claim may not exist yet, and more than what that asks for may be charged
            elif (asks := self._asks_of(key)) is not None and self._numbers.get(asks) in self._reweighed:
                self.concern(key)
        self._reweighed.clear()

    def _weigh(self, number: int) -> None:
        follow = self._devices.sizes.follow
        self._asked[number] = [
            [
                (ask.count if ask.mode == model.EXACT else 1, follow(number, ask, (*found.selectors, *ask.selectors)))
                for ask in request.alternatives
                if (found := self._classes.get(ask.device_class)) is not None
            ]
            for request in self._contents[number].requests
        ]
        self._weights.setdefault(number, 0)
        self._sum(number)

    def _sum(self, number: int) -> None:
        requests = [[count * asked.largest for count, asked in each if asked.largest is not None] for each in self._asked[number]]
        found = sum(max(each, default=0) for each in requests)
        if any(requests) and found != self._weights[number]:
            self._weights[number] = found
            self._reweighed.add(number)

    # -- what is forgotten -----------------------------------------------------------------------

    def tidy(self, specs: Iterable[PodSpec]) -> None:
        """Forget what nothing asks for, once that is many more contents than were used the last time. specs: of all shapes."""
        if len(self._contents) > 2 * self._used + _SPARE:
            self.forget_others(specs)

    def forget_others(self, specs: Iterable[PodSpec]) -> None:
        """Contents are forgotten but those that shapes of pods name, and what is used now asks for."""
        kept = {0, *(need.content for spec in specs for need in spec.devices)}
        for key in self._users:
            if (asks := self._asks_of(key)) is not None and asks in self._numbers:
                kept.add(self._numbers[asks])
        for number in self._contents.keys() - kept:
            del self._numbers[self._contents.pop(number)]
            self._leave(number)
            self._weights.pop(number, None)
            self._reweighed.discard(number)
        self._used = len(self._contents)

    def _leave(self, number: int) -> None:
        for _, asked in (each for request in self._asked.pop(number, ()) for each in request):
            self._devices.sizes.leave(number, asked)

    @property
    def entries(self) -> int:
        """What is remembered: contents, what they ask for, users."""
        return len(self._contents) + len(self._numbers) + len(self._asked) + len(self._weights) + len(self._users)
