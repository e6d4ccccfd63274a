"""An independent judge of allocations, written without the allocator's code, from the API objects themselves.

`violations` says what is wrong with an allocation; `possible` whether there is one at all, by trying everything in the plainest
way. Both follow the documented rules of `resource.k8s.io/v1`; they are slow, and `possible` ends with `TooLarge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import combinations
from typing import Any

from testbed.dra.selectors import judge

Json = dict[str, Any]
Key = tuple[str, str, str]
_UNITS: dict[str, int | Decimal] = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "m": Decimal("0.001"),
}
_MOST = 32


class TooLarge(Exception):
    """More combinations than this judge tries."""


class Errs(Exception):
    """All devices are asked for, and which they are cannot be said."""


def number(text: object) -> Decimal:
    """A quantity."""
    form = str(text)
    for unit, factor in _UNITS.items():
        if form.endswith(unit):
            return Decimal(form[: -len(unit)]) * factor
    return Decimal(form)


class World:
    """One case on one node. here: devices that the node can use, by key, with the slice of each."""

    def __init__(self, case: Json, node: Json) -> None:
        self.case, self.node = case, node
        self.classes = {each["metadata"]["name"]: each for each in case["classes"]}
        self.here: dict[Key, tuple[Json, Json]] = {}
        self.broken = False
        self.totals: dict[tuple[str, str, str, str], Decimal] = {}
        self.every: dict[Key, Json] = {
            (one["driver"], one["pool"], one["device"]["name"]): one["device"] for one in case.get("seen", ())
        }
        pools: dict[tuple[str, str], list[Json]] = {}
        for each in case["slices"]:
            pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each["spec"])
        for (driver, pool), specs in pools.items():
            newest = max(spec["pool"]["generation"] for spec in specs)
            current = [spec for spec in specs if spec["pool"]["generation"] == newest]
            near = [spec for spec in current if self._near(spec)]
            if not near:
                continue
            if len(current) != current[0]["pool"]["resourceSliceCount"] or not self._sound(current, near):
                self.broken = True
                continue
            for spec in current:
                for set_ in spec.get("sharedCounters", ()):
                    for name, each in set_["counters"].items():
                        self.totals[driver, pool, set_["name"], name] = number(each["value"])
                for device in spec.get("devices", ()):
                    key = driver, pool, device["name"]
                    self.every[key] = device
                    if spec in near and (not spec.get("perDeviceNodeSelection") or self._reaches(device)):
                        self.here[key] = device, spec
        self.alone: set[Key] = set()
        self.shares: dict[Key, dict[str, Decimal]] = {}
        for claim in case["allocated"]:
            for each in claim["status"]["allocation"]["devices"]["results"]:
                key = each["driver"], each["pool"], each["device"]
                if each.get("adminAccess"):
                    continue
                if "shareID" not in each:
                    self.alone.add(key)
                    continue
                sums = self.shares.setdefault(key, {})
                for name, amount in each.get("consumedCapacity", {}).items():
                    sums[name] = sums.get(name, Decimal(0)) + number(amount)
        self.left = dict(self.totals)
        for key in {*self.alone, *self.shares}:
            for counter, amount in self.uses(key):
                if counter in self.left:
                    self.left[counter] -= amount
        self.overdrawn = {counter[:2] for counter, amount in self.left.items() if amount < 0}

    def uses(self, key: Key) -> Iterator[tuple[tuple[str, str, str, str], Decimal]]:
        """The counters that a device consumes."""
        for each in self.every.get(key, {}).get("consumesCounters", ()):
            for name, counter in each["counters"].items():
                yield (key[0], key[1], each["counterSet"], name), number(counter["value"])

    def _near(self, spec: Json) -> bool:
        if spec.get("perDeviceNodeSelection"):
            return any(self._reaches(device) for device in spec.get("devices", ()))
        return self._reaches(spec)

    def _reaches(self, what: Json) -> bool:
        if "nodeName" in what:
            return bool(what["nodeName"] == self.node["metadata"]["name"])
        if what.get("allNodes"):
            return True
        terms = what.get("nodeSelector", {}).get("nodeSelectorTerms", ())
        labels = self.node["metadata"]["labels"]
        return any(all(labels.get(one["key"]) in one["values"] for one in term["matchExpressions"]) for term in terms)

    def _sound(self, current: list[Json], near: list[Json]) -> bool:
        names = [device["name"] for spec in near for device in spec.get("devices", ())]
        sets = {set_["name"]: set_["counters"] for spec in current for set_ in spec.get("sharedCounters", ())}
        used = [each for spec in current for device in spec.get("devices", ()) for each in device.get("consumesCounters", ())]
        known = all(each["counterSet"] in sets and each["counters"].keys() <= sets[each["counterSet"]].keys() for each in used)
        return len(names) == len(set(names)) and known

    # What an ask may get.

    def matching(self, ask: Json) -> list[Key]:
        """Devices that match an ask and have the capacity; raises `Errs` where all are asked for and a selector errs."""
        found = []
        selectors = [*self.classes[ask["deviceClassName"]]["spec"].get("selectors", ()), *ask.get("selectors", ())]
        for key, (device, _) in self.here.items():
            verdict: bool | None = True
            for each in selectors:
                verdict = judge(each["cel"]["expression"], key[0], device)
                if not verdict:
                    break
            if verdict is None and ask["allocationMode"] == "All":
                raise Errs
            if verdict and self.consumed(ask, device) is not None:
                found.append(key)
        return found

    @staticmethod
    def consumed(ask: Json, device: Json) -> dict[str, Decimal] | None:
        """What an ask takes of a device's capacities; None: more than it has, or allows."""
        wanted = ask.get("capacity", {}).get("requests", {})
        capacities = device.get("capacity", {})
        if not wanted.keys() <= capacities.keys():
            return None
        taken = {}
        for name, capacity in capacities.items():
            policy = capacity.get("requestPolicy", {})
            amount = number(wanted[name]) if name in wanted else number(policy.get("default", capacity["value"]))
            limits = policy.get("validRange")
            if name in wanted and limits:
                low, step = number(limits["min"]), number(limits.get("step", 0))
                amount = max(amount, low)
                if step and (amount - low) % step:
                    amount += step - (amount - low) % step
                if "max" in limits and amount > number(limits["max"]):
                    return None
            if name in wanted and policy.get("validValues"):
                values = [number(each) for each in policy["validValues"] if number(each) >= amount]
                if not values:
                    return None
                amount = min(values)
            if amount > number(capacity["value"]):
                return None
            taken[name] = amount
        return taken

    def attribute(self, key: Key, name: str) -> tuple[str, object] | None:
        """An attribute by its full name."""
        attributes = self.every[key].get("attributes", {})
        domain, _, short = name.partition("/")
        found = attributes.get(name) or (attributes.get(short) if domain == key[0] else None)
        return None if found is None else next(iter(found.items()))


def asks_of(request: Json) -> list[tuple[str, Json]]:
    """The alternatives of a request, with their names in results."""
    if "exactly" in request:
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{each['name']}", each) for each in request["firstAvailable"]]


Pick = tuple[int, str, Json, Key]
"""(claim, name of the ask, the ask, device)."""


def wrong(world: World, picks: Iterable[Pick]) -> list[str]:
    """What is wrong with picks in the order of requests, apart from how many there are."""
    found: list[str] = []
    taken: dict[Key, list[int]] = {}
    left, shares = dict(world.left), {key: dict(sums) for key, sums in world.shares.items()}
    of_claim: dict[int, list[tuple[str, Key]]] = {}
    for claim, name, ask, key in picks:
        device, admin = world.here[key][0], bool(ask.get("adminAccess"))
        found += [
            f"taint: {key}"
            for taint in device.get("taints", ())
            if taint["effect"] != "None" and not any(_tolerates(each, taint) for each in ask.get("tolerations", ()))
        ]
        if not device.get("allowMultipleAllocations"):
            if claim in taken.get(key, ()) or (not admin and (key in taken or key in world.alone)):
                found.append(f"device: {key} is taken")
            taken.setdefault(key, []).append(claim)
        elif key in world.alone and not admin:
            found.append(f"device: {key} is held alone")
        if not admin:
            if key not in shares:
                if key[:2] in world.overdrawn and any(world.uses(key)):
                    found.append(f"counters: pool of {key} is overdrawn")
                for counter, amount in world.uses(key):
                    left[counter] -= amount
                    if left[counter] < 0:
                        found.append(f"counters: {counter} for {key}")
            if device.get("allowMultipleAllocations"):
                sums = shares.setdefault(key, {})
                for capacity, amount in (world.consumed(ask, device) or {}).items():
                    sums[capacity] = sums.get(capacity, Decimal(0)) + amount
                    if sums[capacity] > number(device["capacity"][capacity]["value"]):
                        found.append(f"capacity: {capacity} of {key}")
        of_claim.setdefault(claim, []).append((name, key))
    for claim, chosen in of_claim.items():
        if len(chosen) > _MOST:
            found.append(f"claim {claim} has {len(chosen)} devices")
        found += _constraints(world, world.case["claims"][claim]["spec"]["devices"].get("constraints", ()), chosen)
    return found


def _constraints(world: World, constraints: Iterable[Json], chosen: list[tuple[str, Key]]) -> Iterator[str]:
    for each in constraints:
        distinct = "distinctAttribute" in each
        name = each["distinctAttribute"] if distinct else each["matchAttribute"]
        values = [
            world.attribute(key, name)
            for ask, key in chosen
            if not each.get("requests") or ask in each["requests"] or ask.partition("/")[0] in each["requests"]
        ]
        if None in values:
            yield f"constraint: {name} is missing"
        elif distinct and len(set(values)) != len(values):
            yield f"distinct: {name} is repeated"
        elif not distinct and len(set(values)) > 1:
            yield f"match: {name} differs"


def _tolerates(toleration: Json, taint: Json) -> bool:
    return (
        toleration.get("effect", taint["effect"]) == taint["effect"]
        and toleration.get("key", taint["key"]) == taint["key"]
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
    )


def violations(case: Json, node: Json, chosen: list[list[Json]]) -> list[str]:
    """What is wrong with an allocation: per claim its results; empty: it is valid."""
    world = World(case, node)
    picks: list[Pick] = []
    found = []
    for at, (claim, results) in enumerate(zip(case["claims"], chosen, strict=True)):
        names = [each["request"] for each in results]
        for request in claim["spec"]["devices"]["requests"]:
            got = [(name, ask) for name, ask in asks_of(request) if name in names]
            if len(got) != 1:
                found.append(f"request {request['name']} has {len(got)} alternatives")
                continue
            name, ask = got[0]
            keys = [(one["driver"], one["pool"], one["device"]) for one in results if one["request"] == name]
            if len(set(keys)) != len(keys):
                found.append(f"request {name} has a device twice")
            try:
                matching = world.matching(ask)
            except Errs:
                found.append(f"all: a selector of {name} errs")
                continue
            if any(key not in matching for key in keys):
                found.append(f"request {name} has a device that does not match")
                continue
            if ask["allocationMode"] == "All":
                if set(keys) != set(matching) or world.broken:
                    found.append(f"all: {name} has not all devices")
            elif len(keys) != ask["count"]:
                found.append(f"request {name} has {len(keys)} devices")
            picks += [(at, name, ask, key) for key in keys]
    return found or wrong(world, picks)


def possible(case: Json, node: Json, most: int = 200_000) -> bool:
    """Whether there is an allocation, by trying all; raises `TooLarge` after so many combinations."""
    world = World(case, node)
    requests = [(at, each) for at, claim in enumerate(case["claims"]) for each in claim["spec"]["devices"]["requests"]]
    choices: list[list[tuple[int, str, Json, list[Key]]]] = []
    for at, request in requests:
        options = []
        for name, ask in asks_of(request):
            if ask["deviceClassName"] not in world.classes:
                return False
            try:
                matching = world.matching(ask)
            except Errs:
                return False
            if ask["allocationMode"] == "All" and world.broken:
                return False
            options.append((at, name, ask, matching))
        choices.append(options)
    tried = 0

    def go(depth: int, picks: list[Pick]) -> bool:
        nonlocal tried
        if depth == len(choices):
            return True
        for at, name, ask, matching in choices[depth]:
            every = ask["allocationMode"] == "All"
            if every and not matching:
                continue
            for keys in combinations(matching, len(matching) if every else ask["count"]):
                tried += 1
                if tried > most:
                    raise TooLarge
                more = [*picks, *((at, name, ask, key) for key in keys)]
                if not wrong(world, more) and go(depth + 1, more):
                    return True
        return False

    return go(0, [])
