"""Whether a device was given twice: judged from claims, slices and pods as the API server has them, without the scheduler's code.

An allocation is judged when it is written: its devices are there and not tainted, as far as a watch may be late. It is judged
again when the first pod that uses it is bound: what it holds is held by no other claim whose pods are bound. Two claims may hold
one device for a while, since each write is accepted by itself; at most one of them may lead to pods, and in a settled
cluster there are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from fairlead.api import names
from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.claims import FINALIZER
from fairlead.cluster.simulated.device_values import number
from fairlead.cluster.simulated.kubelet import amounts
from fairlead.cluster.simulated.resources import CLAIMS, NODES, PODS, SLICES
from fairlead.cluster.simulated.store import Change, Key, Object, Store

_OVER = ("Succeeded", "Failed")


class Device(NamedTuple):
    """A device by its names."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class _Seen:
    """A device as it was published last. gone: when it left the slices; since: from when on it has had its taints."""

    __slots__ = ("body", "gone", "node", "since", "taints")

    def __init__(self, body: Object, node: str) -> None:
        self.body = body
        self.node = node
        self.gone: float | None = None
        self.taints: list[Object] = []
        self.since = 0.0


class DeviceAuditor:
    """Watches a store. wrong: called with what is violated. late: seconds by which a watch may be late.

    allocations: written so far; judged: claims whose first pod was bound; extended: pods bound with one for extended resources.
    """

    def __init__(self, store: Store, clock: Callable[[], float], wrong: Callable[[str], None], *, late: float) -> None:
        self.allocations = 0
        self.judged = 0
        self.extended = 0
        self._store = store
        self._clock = clock
        self._wrong = wrong
        self._late = late
        self._pools: dict[tuple[str, str], dict[Key, Object]] = defaultdict(dict)
        self._seen: dict[Device, _Seen] = {}
        self._published: dict[tuple[str, str], set[Device]] = defaultdict(set)  # by pool, what ever was
        self._totals: dict[tuple[str, str, str], dict[str, Fraction]] = {}  # (driver, pool, counter set) -> counters
        self._held: dict[Key, list[Object]] = {}  # claim -> results, those of admin access left out
        self._claims_by_pool: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._bound: dict[str, tuple[Key, str]] = {}  # UID of a pod -> its name and node, while it may run
        self._used: set[Key] = set()  # claims with bound pods
        self._plugins: dict[str, float] = {}  # node -> when what it offers changed
        for table, call in ((SLICES, self._slice), (CLAIMS, self._claim), (PODS, self._pod), (NODES, self._node)):
            store.listen(table, call)

    # -- slices --------------------------------------------------------------------------------

    def _slice(self, change: Change) -> None:
        spec = change.record.object["spec"]
        key = spec["driver"], spec["pool"]["name"]
        if change.kind == "DELETED":
            self._pools[key].pop(change.key, None)
        else:
            self._pools[key][change.key] = spec
        self._read(key)

    def _read(self, key: tuple[str, str]) -> None:
        """Take over what a pool has now; devices that left it are remembered as they were."""
        specs, now = self._pools[key].values(), self._clock()
        newest = max((spec["pool"]["generation"] for spec in specs), default=0)
        present = set()
        for spec in specs:
            if spec["pool"]["generation"] < newest:
                continue
            for counters in spec.get("sharedCounters") or ():
                found = {name: number(each["value"]) for name, each in counters["counters"].items()}
                self._totals[(*key, counters["name"])] = found
            for body in spec.get("devices") or ():
                device = Device(*key, body["name"])
                present.add(device)
                self._published[key].add(device)
                seen = self._seen.setdefault(device, _Seen(body, ""))
                taints = [each for each in body.get("taints") or () if each["effect"] != "None"]
                if taints != seen.taints:
                    seen.taints, seen.since = taints, now
                seen.body, seen.node, seen.gone = body, spec.get("nodeName", ""), None
        for device in self._published[key]:
            if device not in present and self._seen[device].gone is None:
                self._seen[device].gone = now

    # -- claims --------------------------------------------------------------------------------

    def _claim(self, change: Change) -> None:
        key, claim = change.key, change.record.object
        before = pod_claims.results_of(change.before.object) if change.before is not None else []
        results = [] if change.kind == "DELETED" else pod_claims.results_of(claim)
        if results != before:
            for each in before:
                self._claims_by_pool[each["driver"], each["pool"]].discard(key)
            self._held.pop(key, None)
            self._used.discard(key)
            if results:
                self.allocations += 1
                self._held[key] = [each for each in results if not each.get("adminAccess")]
                for each in self._held[key]:
                    self._claims_by_pool[each["driver"], each["pool"]].add(key)
                self._judge_devices(key, results)
        if change.kind != "DELETED":
            self._use(key, claim)

    def _judge_devices(self, key: Key, results: list[Object]) -> None:
        """The devices of a new allocation are there, and not tainted."""
        now = self._clock()
        for each in results:
            device = Device(each["driver"], each["pool"], each["device"])
            seen = self._seen.get(device)
            if seen is None:
                self._wrong(f"claim {_shown(key)} is allocated {device}, which was never published")
            elif seen.gone is not None and now - seen.gone > self._late:
                self._wrong(f"claim {_shown(key)} is allocated {device}, which left its slices {now - seen.gone:.0f} s ago")
            elif now - seen.since > self._late:
                for taint in seen.taints:
                    if not any(pod_claims.tolerates(one, taint) for one in each.get("tolerations") or ()):
                        self._wrong(f"claim {_shown(key)} is allocated {device} with taint {taint['key']}:{taint['effect']}")

    def _use(self, key: Key, claim: Object) -> None:
        """Judge a claim once one of its pods is bound."""
        uids = {each.get("uid") for each in (claim.get("status") or {}).get("reservedFor") or ()}
        if not any(uid in self._bound for uid in uids):
            self._used.discard(key)
        elif key in self._held and key not in self._used:
            self._used.add(key)
            self.judged += 1
            for message in self._conflicts(key, self._used):
                self._wrong(message)

    # -- pods ----------------------------------------------------------------------------------

    def _pod(self, change: Change) -> None:
        pod = change.record.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if uid not in self._bound and not pod_claims.uses(pod) and not any(pod_claims.extended_of(pod, self._offered(node))):
            return
        over = change.kind == "DELETED" or (pod.get("status") or {}).get("phase") in _OVER
        if over and self._bound.pop(uid, None) is not None:
            self._judge_claims(change.key[0], pod)
        elif node and not over and uid not in self._bound:
            self._bound[uid] = (change.key, node)
            self.extended += bool(pod_claims.served_by_claim(pod))
            if pod["spec"].get("schedulerName") in names.SCHEDULERS:
                for message in self._unready(change.key, pod, node):
                    self._wrong(f"pod {_shown(change.key)} is bound to {node}: {message}")
            self._judge_claims(change.key[0], pod)

    def _offered(self, node: str) -> Mapping[str, int] | None:
        """What device plugins offer on a node, None where they changed that too recently for a watch to have delivered it."""
        record = self._store.get(NODES, ("", node)) if node else None
        if record is None or self._clock() - self._plugins.get(node, -self._late) < self._late:
            return None
        return amounts(record.object["status"].get("allocatable"))

    def _node(self, change: Change) -> None:
        before, now = (each.object["status"].get("allocatable") if each else None for each in (change.before, change.record))
        if change.kind == "DELETED" or before != now:
            self._plugins[change.key[1]] = self._clock()

    def _judge_claims(self, namespace: str, pod: Object) -> None:
        for name in pod_claims.used_by(pod):
            record = self._store.get(CLAIMS, (namespace, name))
            if record is not None:
                self._use((namespace, name), record.object)

    def _unready(self, key: Key, pod: Object, node: str) -> Iterator[str]:
        """What a pod that is bound lacks."""
        for each in (*pod_claims.claims_of(pod), *pod_claims.extended_of(pod, self._offered(node))):
            record = self._store.get(CLAIMS, (key[0], each.claim)) if each.claim else None
            if record is None:
                yield f"its claim {each.name} does not exist"
                continue
            claim = record.object
            if each.template and not pod_claims.owned_by(claim, pod):
                yield f"claim {each.claim} was made for another pod"
            elif not pod_claims.results_of(claim):
                yield f"claim {each.claim} is not allocated"
            elif not pod_claims.reserved(claim, pod):
                yield f"claim {each.claim} is not reserved for it"
            for result in pod_claims.results_of(claim):
                seen = self._seen.get(Device(result["driver"], result["pool"], result["device"]))
                if seen is not None and seen.node not in ("", node):
                    yield f"claim {each.claim} holds {result['device']} of node {seen.node}"

    # -- what is held twice --------------------------------------------------------------------

    def _conflicts(self, key: Key, among: set[Key] | dict[Key, list[Object]]) -> Iterator[str]:
        """What a claim holds that others hold, too, or of which all of them hold more than there is."""
        for pool in sorted({(each["driver"], each["pool"]) for each in self._held[key]}):
            others = sorted(each for each in self._claims_by_pool[pool] if each in among and each != key)
            holders: dict[Device, list[tuple[Key, Object]]] = defaultdict(list)
            for claim in (key, *others):
                for each in self._held[claim]:
                    if (each["driver"], each["pool"]) == pool:
                        holders[Device(*pool, each["device"])].append((claim, each))
            for device, found in holders.items():
                if any(claim == key for claim, _ in found):
                    yield from self._twice(device, found)
            yield from self._overdrawn(pool, holders, {each["device"] for each in self._held[key]})

    def _twice(self, device: Device, found: list[tuple[Key, Object]]) -> Iterator[str]:
        shared = all(each.get("shareID") for _, each in found)
        if len(found) > 1 and not shared:
            yield f"device {device} is given to {self._holding(found)}"
        elif shared and len({each["shareID"] for _, each in found}) < len(found):
            yield f"device {device} has a share twice: {self._holding(found)}"
        seen = self._seen.get(device)
        if not shared or seen is None:
            return
        for name, capacity in (seen.body.get("capacity") or {}).items():
            taken = sum((number((each.get("consumedCapacity") or {}).get(name, "0")) for _, each in found), Fraction(0))
            if taken > number(capacity["value"]):
                yield f"shares of device {device} take {float(taken):g} of {capacity['value']} {name}"

    def _overdrawn(self, pool: tuple[str, str], holders: dict[Device, list[tuple[Key, Object]]], mine: set[str]) -> Iterator[str]:
        """Counter sets that a claim's own devices consume and that all devices together consume too much of."""
        used: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        consumers: dict[str, set[str]] = defaultdict(set)
        for device in holders:
            seen = self._seen.get(device)
            for each in (seen.body.get("consumesCounters") or ()) if seen is not None else ():
                consumers[each["counterSet"]].add(device.name)
                for name, counter in each["counters"].items():
                    used[each["counterSet"], name] += number(counter["value"])
        for counters, devices in sorted(consumers.items()):
            total = self._totals.get((*pool, counters), {})
            beyond = sorted(name for (found, name), amount in used.items() if found == counters and amount > total.get(name, 0))
            if beyond and devices & mine:
                shown = ", ".join(f"{name} ({self._holding(holders[Device(*pool, name)])})" for name in sorted(devices))
                yield f"{counters} of {'/'.join(pool)} is overdrawn in {beyond[0]} by {shown}"

    @staticmethod
    def _holding(found: list[tuple[Key, Object]]) -> str:
        return ", ".join(_shown(claim) for claim, _ in found)

    # -- once settled --------------------------------------------------------------------------

    def settled(self) -> list[str]:
        """What must not be when nothing is on its way: anything given twice, and devices that no pod will ever use."""
        found = sorted({message for key in sorted(self._held) for message in self._conflicts(key, self._held)})
        for key in sorted(self._held):
            record = self._store.get(CLAIMS, key)
            if record is None or FINALIZER not in (record.object["metadata"].get("finalizers") or ()):
                continue  # it was allocated by another than a scheduler
            reserved = (record.object["status"].get("reservedFor") or ()) if record.object.get("status") else ()
            if not reserved:
                found.append(f"claim {_shown(key)} holds devices and is reserved for nothing")
            found += [
                f"claim {_shown(key)} is reserved for pod {each['name']}, which has no node"
                for each in reserved
                if each.get("resource") == "pods" and each["uid"] not in self._bound
            ]
        return [f"settled: {each}" for each in found]


def _shown(key: Key) -> str:
    return "/".join(key)
