"""What members of a gang need of a node at least, and what a node has: bounds on how many of them it can take."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.core.dra.held import NodeState
from fairlead.core.dra.model import Amount
from fairlead.core.dra.problem import Problem

Needs = dict[tuple[str, str], Amount]
"""(driver, counter) -> amount, summed over counter sets; DEVICES: devices that are not shared; _OF_NODE: its other resources."""

DEVICES = ("", "devices")
_OF_NODE = "/node"


def counted(needs: Needs) -> Amount:
    """The sum of all counters."""
    return sum(amount for name, amount in needs.items() if name != DEVICES and name[0] != _OF_NODE)


def of_node(amounts: Mapping[str, int]) -> Needs:
    """What is had, or needed, of a node's other resources."""
    return {(_OF_NODE, name): amount for name, amount in amounts.items()}


def sums(state: NodeState) -> Needs:
    """What of each counter is free on a node, and how many devices at most."""
    inventory = state.inventory
    found: Needs = {DEVICES: (inventory.all & ~state.alone & ~inventory.multiple).bit_count()}
    for (driver, _, _, counter), amount in zip(inventory.counters, state.free, strict=True):
        found[driver, counter] = found.get((driver, counter), 0) + max(0, amount)
    return found


def least(problem: Problem) -> Needs:
    """What claims consume at least of each counter and of devices, whichever devices and alternatives they get."""
    inventory = problem.state.inventory
    names = {kind: (driver, counter) for kind, (driver, _, _, counter) in zip(inventory.kinds, inventory.counters, strict=True)}
    found: Needs = {}
    for position in problem.positions:
        slots = [slot for slot in position.slots if slot.refusal is None]
        if any(slot.ask.admin or slot.candidates & inventory.multiple for slot in slots):
            continue
        found[DEVICES] = found.get(DEVICES, 0) + min(slot.count for slot in slots)
        amounts = [(slot.count, inventory.least(slot.candidates)) for slot in slots]
        for kind in amounts[0][1]:
            amount = min(count * each.get(kind, 0) for count, each in amounts)
            found[names[kind]] = found.get(names[kind], 0) + amount
    return {name: amount for name, amount in found.items() if amount}
