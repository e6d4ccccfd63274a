"""GPUs of ResourceSlices and what ResourceClaims hold of them, as far as they are paid for.

The claims that were made for a pod are part of its run. Any other claim, which several pods may use, is charged once: it has rows
of its own, which are its payer's: the first pod that it is reserved for and whose run goes on.

A node keeps the GPUs that its driver published last while the driver is away, and those that claims hold after they vanished; a
device that is held counts as it did when it was known first. So a driver that restarts changes no price.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.cluster import device_views
from fairlead.core.dra import weights
from fairlead.core.dra.gpus import Gpus, Part, PoolId
from fairlead.core.dra.model import DeviceClaim, DeviceId
from fairlead.core.model.units import WHOLE
from fairlead.observability.history import OF_CLAIM, Run
from fairlead.operator.accounting.intervals import Intervals


class _Held(msgspec.Struct):
    """A claim with its devices. parts: those that are known; complete: they are all known."""

    claim: DeviceClaim
    parts: dict[DeviceId, Part] = {}
    complete: bool = True

    @property
    def milli(self) -> int:
        """Thousandths of GPUs."""
        return sum(each.milli for each in self.parts.values())


class ClaimedDevices:
    """Of all nodes and claims that were observed. rows: of claims that no pod owns. Not for several threads at once."""

    def __init__(self) -> None:
        self.rows: Intervals[Run] = Intervals(lambda run: f"{run.namespace}/{run.name}")
        self._gpus = Gpus()
        self._published: dict[str, dict[PoolId, tuple[str, ...]]] = {}  # node -> pool -> GPUs, as complete pools had them last
        self._held: dict[str, _Held] = {}
        self._held_on: dict[str, dict[str, set[tuple[str, str, str]]]] = {}  # node -> claim -> GPUs that it holds of the node
        self._incomplete: dict[str, None] = {}
        self._keys: dict[str, dict[str, None]] = {}  # a pod's uid -> claims that it owns, or that are reserved for it

    # -- observations --------------------------------------------------------------------------

    def slice(self, name: str, view: device_views.ResourceSlice | None) -> tuple[list[str], list[str]]:
        """A slice as it is; None: it is gone. Returns (nodes whose GPUs are different, claims whose devices are known now).

        Raises `DeviceError`, and counts it as gone then.
        """
        found = None
        try:
            found = device_views.device_slice(view) if view is not None else None
        finally:
            if found is None:
                self._gpus.remove(name)
            else:
                self._gpus.put(found)
        nodes = []
        for node in sorted(self._gpus.settle() - {""}):
            before, now = self._published.get(node, {}), dict(self._gpus.on(node))
            kept = {pool: gpus for pool, gpus in before.items() if pool not in now and not self._gpus.complete(pool)}
            fresh = {pool: tuple(gpus) if self._gpus.complete(pool) else before.get(pool, ()) for pool, gpus in now.items()}
            changed = {pool: gpus for pool, gpus in (kept | fresh).items() if gpus}
            if changed != before:
                self._published[node] = changed
                nodes.append(node)
        known = [key for key in list(self._incomplete) if self._find(key)]
        return nodes, known

    def claim(self, key: str, view: device_views.ResourceClaim | None) -> None:
        """A claim as it is; None: it is gone. Raises `DeviceError` and `QuantityError`."""
        found = device_views.device_object(view) if view is not None else None
        before = self._held.pop(key, None)
        if before is not None:
            self._forget(key, before)
        if not isinstance(found, DeviceClaim):
            return
        parts = {}
        if before is not None and before.claim.uid == found.uid and before.claim.allocation == found.allocation:
            parts = before.parts
        self._held[key] = _Held(found, parts)
        for uid in (found.owner,) if found.owner else found.users:
            self._keys.setdefault(uid, {})[key] = None
        self._incomplete[key] = None
        self._find(key)

    def node_gone(self, name: str) -> None:
        """A node is gone: what its driver published last is forgotten."""
        self._published.pop(name, None)

    def _forget(self, key: str, held: _Held) -> None:
        for uid in (held.claim.owner, *held.claim.users):
            keys = self._keys.get(uid, {})
            keys.pop(key, None)
            if not keys:
                self._keys.pop(uid, None)
        for node in {each.node for each in held.parts.values()}:
            on = self._held_on.get(node, {})
            on.pop(key, None)
            if not on:
                self._held_on.pop(node, None)
        self._incomplete.pop(key, None)

    def _find(self, key: str) -> bool:
        """Find what parts of GPUs a claim's devices are; whether all are known now that were not."""
        held = self._held[key]
        allocation = held.claim.allocation
        held.complete = True
        for chosen in allocation.devices if allocation is not None else ():
            if chosen.admin or not weights.is_gpu(chosen.device.driver) or chosen.device in held.parts:
                continue
            part = self._gpus.part(chosen)
            if part is None:
                held.complete = False
                continue
            held.parts[chosen.device] = part
        for part in held.parts.values():
            self._held_on.setdefault(part.node, {}).setdefault(key, set()).add((part.driver, part.pool, part.gpu))
        if held.complete:
            self._incomplete.pop(key, None)
        return held.complete

    # -- questions -----------------------------------------------------------------------------

    def gpus_of(self, node: str) -> dict[str, int]:
        """Driver -> GPUs of a node."""
        gpus = {(*pool, gpu) for pool, names in self._published.get(node, {}).items() for gpu in names}
        gpus.update(*self._held_on.get(node, {}).values())
        found: dict[str, int] = {}
        for driver, _, _ in gpus:
            found[driver] = found.get(driver, 0) + 1
        return found

    def nodes_of(self, key: str) -> set[str]:
        """The nodes whose GPUs a claim holds."""
        held = self._held.get(key)
        return {each.node for each in held.parts.values()} - {""} if held is not None else set()

    def own(self, uid: str) -> float | None:
        """GPUs that the claims of a pod's own hold; None: not known of all of them."""
        owned = [held for key in self._keys.get(uid, ()) if (held := self._held[key]).claim.owner == uid]
        if not owned or not all(each.complete and each.claim.allocation is not None for each in owned):
            return None
        return sum(each.milli for each in owned) / WHOLE

    def owner_of(self, key: str) -> str:
        """UID of the pod that a claim was made for; empty: there is none."""
        held = self._held.get(key)
        return held.claim.owner if held is not None else ""

    def shared(self, uid: str) -> list[str]:
        """The claims that a pod uses and does not own."""
        return [key for key in self._keys.get(uid, ()) if self._held[key].claim.owner != uid]

    @property
    def keys(self) -> Iterator[str]:
        """Claims that exist, by `namespace/name`."""
        return iter(list(self._held))

    # -- rows ----------------------------------------------------------------------------------

    def pay(self, key: str, runs: dict[str, Run], at: float) -> None:
        """A claim that no pod owns, or its users, may have changed: who pays for it from now on. runs: those that go on."""
        held = self._held.get(key)
        known = self.rows.open.get(key)
        if held is None or held.claim.owner or held.claim.allocation is None or not (held.complete or known is None):
            if held is None or held.claim.owner or held.claim.allocation is None:
                self.rows.end(key, at)
            return
        payers = [run for uid in held.claim.users if (run := runs.get(uid)) is not None]
        if not payers or not held.milli:
            self.rows.end(key, at)
            return
        choices = [_row(held, run) for run in payers]
        same = known is not None and any(
            msgspec.structs.replace(each, uid=known.uid, started_at=known.started_at) == known for each in choices
        )
        if not same:
            whose = f"{OF_CLAIM}{held.claim.uid}"
            self.rows.put(choices[0], whose, max(at, payers[0].started_at))


def _row(held: _Held, payer: Run) -> Run:
    namespace, _, name = held.claim.key.partition("/")
    node = next((each.node for each in held.parts.values() if each.node), payer.node)
    return Run(
        uid="",
        job=payer.job,
        namespace=namespace,
        name=name,
        queue=payer.queue,
        service_class=payer.service_class,
        user=payer.user,
        node=node,
        gpus=held.milli / WHOLE,
        cpus=0.0,
        started_at=0.0,
    )
