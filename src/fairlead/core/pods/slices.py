"""Which slices a member of a gang belongs to: by its role and its index, so that a scheduler that starts anew finds the same.

A slice has consecutive indexes of one role. Where a workload has several jobs of one role (a JobSet), no slice spans two jobs.
"""

from __future__ import annotations

from fairlead.core.model.pods import Closeness, Near, Part, Pod
from fairlead.core.pods.members import index_of, role_of

_APART = "\0"  # no name has it


def near_for(pod: Pod, gang: str, asked: Closeness, required: tuple[str, ...], domain: str, least: int) -> Near:
    """What is asked of a member's place. least: the members that its gang needs."""
    if not (asked.slices or asked.balanced or asked.roles or (asked.spares and not required)) or not gang:
        return Near(gang, required, asked.preferred, domain)
    role = role_of(pod)
    special = dict(asked.roles).get(role)
    rules = asked if special is None else special
    own = () if special is None else special.required
    misplaced = _wrong_spares(rules.spares or asked.spares, rules, (*required, *own))
    if not (rules.slices or rules.balanced or own or misplaced):
        return Near(gang, required, rules.preferred, domain)
    team = f"{gang}{_APART}{role}"
    outer, index = index_of(pod)
    slices: tuple[Part, ...] = ()
    wrong = _wrong(rules) or misplaced
    if rules.slices and not wrong:
        if index < 0:
            wrong = f"slices are by index, and pod {pod.key} has none: label fairlead.dev/index, or a name that ends in -<number>"
        slices = tuple(
            Part(_APART.join((team, each.level, str(outer), str(index // each.sizes[-1]))), each.level) for each in rules.slices
        )
    even = (rules.preferred or (rules.slices[0].level if rules.slices else "")) if rules.balanced else ""
    return Near(
        gang,
        required,
        rules.preferred,
        domain,
        team,
        tuple(Part(team, each) for each in own),
        () if wrong else slices,
        tuple(each.sizes for each in rules.slices),
        even,
        -(-least // rules.slices[0].sizes[-1]) if rules.slices and not wrong else least,
        wrong,
    )


def _wrong_spares(spares: int, rules: Closeness, required: tuple[str, ...]) -> str:
    """Why members can have no spare places as they are asked for."""
    if not spares:
        return ""
    if rules.slices:
        return "members in slices have no spares: each slice would need some of its own"
    return "" if required else "spares need a required level, in whose domain they are kept"


def _wrong(rules: Closeness) -> str:
    """What contradicts itself, whatever levels there are; the API server refuses most of it."""
    around = 0
    for each in rules.slices:
        for size in each.sizes:
            if size < 1 or (around and around % size):
                return f"slices of {size} members do not divide slices of {around} members"
            around = size
    levels = [each.level for each in rules.slices]
    if len(set(levels)) < len(levels):
        return f"two slices have the level {max(levels, key=levels.count)}"
    if rules.balanced and not rules.preferred and not rules.slices:
        return "equal parts need a preferred level, or slices"
    return ""
