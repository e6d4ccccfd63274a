"""Consumable capacity: what a request consumes of a device, and whether the device can give it at all.

The rules are those of the API: what is requested is rounded up by the capacity's request policy; what is not requested counts by
the policy's default, else as the whole capacity.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.core.dra.model import Amount, Capacity, Policy


def consumption(requested: Mapping[str, Amount], capacity: Mapping[str, Capacity]) -> dict[str, Amount] | None:
    """What one allocation consumes of every capacity of a device; None where the device never has what is requested.

    That is: a capacity that it lacks, an amount beyond the capacity, or one that the policy does not allow.
    """
    if any(name not in capacity for name in requested):
        return None
    result = {}
    for name, each in capacity.items():
        amount = consumed(requested.get(name), each)
        if amount > each.value or not _allowed(amount, each.policy):
            return None
        result[name] = amount
    return result


def consumed(requested: Amount | None, capacity: Capacity) -> Amount:
    """What a request consumes of one capacity: rounded up by its policy, not yet compared with what there is."""
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.least is not None:
        if requested <= policy.least:
            return policy.least
        if policy.step is None or policy.step <= 0:
            return requested
        steps = -((policy.least - requested) // policy.step)
        return policy.least + steps * policy.step
    return next((each for each in policy.values if requested <= each), requested)


def _allowed(amount: Amount, policy: Policy | None) -> bool:
    if policy is None or amount == policy.default:
        return True
    if policy.least is not None or policy.most is not None or policy.step is not None:
        if policy.most is not None and amount > policy.most:
            return False
        return policy.step is None or policy.step <= 0 or (amount - (policy.least or 0)) % policy.step == 0
    return not policy.values or amount in policy.values
