"""How many partitions of each kind still fit on a node, if only these were made."""

from __future__ import annotations

from fairlead.core.dra import weights
from fairlead.core.dra.gpus import part_name
from fairlead.core.dra.held import NodeState
from fairlead.core.dra.model import BLOCKING_EFFECTS


def parts_that_fit(state: NodeState) -> dict[tuple[str, int], int]:
    """(`DRIVER/PROFILE`, thousandths of a GPU) -> how many fit beside what is allocated, each kind by itself.

    Devices of one kind are taken in the order in which they are published, which is exact where devices of one kind that overlap
    do so one after the other, as MIG's placements do.
    """
    inventory = state.inventory
    pools = {key: pool.counters for key, pool in inventory.pools.items()}
    taken = state.alone | state.sharing | state.overdrawn
    by_kind: dict[tuple[str, int], list[int]] = {}
    for at, (device_id, device) in enumerate(zip(inventory.ids, inventory.devices, strict=True)):
        if not device.counters or not weights.is_gpu(device_id.driver) or taken >> at & 1:
            continue
        milli = weights.milli(device, pools[device_id.driver, device_id.pool])
        if milli < weights.WHOLE:
            by_kind.setdefault((f"{device_id.driver}/{part_name(device)}", milli), []).append(at)
    found: dict[tuple[str, int], int] = {}
    for kind, positions in by_kind.items():
        free = dict(enumerate(state.free))
        found[kind] = 0
        for at in positions:
            tainted = any(each.effect in BLOCKING_EFFECTS for each in inventory.devices[at].taints)
            if not tainted and all(free[counter] >= amount for counter, amount in inventory.uses[at]):
                found[kind] += 1
                for counter, amount in inventory.uses[at]:
                    free[counter] -= amount
    return found
