"""Rules in CEL for topologies in specs, which the API server checks when an object is written."""

from __future__ import annotations

WHOLE_PATH, HAS_WHOLE = "self.topology", "has(self.topology)"
"""The topology of all members, and whether there is one."""


def spare_rules(path: str, given: str) -> tuple[tuple[str, str], ...]:
    """(expression, message) for the spare places of one topology. path, given: as below."""
    none = f"!({given}) || !has({path}.spares) || {path}.spares == 0"
    levels = (
        f"has({path}.required)" if path == WHOLE_PATH else f"has({path}.required) || ({HAS_WHOLE} && has({WHOLE_PATH}.required))"
    )
    return (
        (f"{none} || {levels}", "spares need a required level"),
        (f"{none} || !has({path}.slices)", "spares are not for members in slices"),
    )


def topology_rules(path: str, given: str) -> tuple[tuple[str, str], ...]:
    """(expression, message) for one topology. path: of it; given: whether there is one."""
    slices = f"(has({path}.slices) ? {path}.slices : [])"
    none = f"!({given}) || !has({path}.slices)"
    last = "(has({0}.size) ? {0}.size : {0}.sizes[{0}.sizes.size() - 1])"
    first = "(has({0}.size) ? {0}.size : {0}.sizes[0])"
    outer, inner = f"{path}.slices[i]", f"{path}.slices[i + 1]"
    nested = "[0, 1, 2].all(i, i + 1 >= s.sizes.size() || s.sizes[i] % s.sizes[i + 1] == 0)"
    each_has_one = f"{path}.slices.all(s, has(s.size) != has(s.sizes))"
    divided = f"[0, 1].all(i, i + 1 >= {path}.slices.size() || {last.format(outer)} % {first.format(inner)} == 0)"
    return (
        (f"{none} || {each_has_one}", "a slice has either size or sizes"),
        (
            f"{none} || {path}.slices.all(s, !has(s.sizes) || {nested})",
            "each of the sizes of a slice must divide the one before",
        ),
        (
            f"{none} || !{each_has_one} || {divided}",
            "the size of slices must divide that of the slices around them",
        ),
        (
            f"{none} || {path}.slices.all(s, {path}.slices.exists_one(t, t.level == s.level))",
            "slices must have different levels",
        ),
        (
            f"!({given}) || !has({path}.balanced) || !{path}.balanced || has({path}.preferred) || {slices}.size() > 0",
            "balanced needs a preferred level, or slices",
        ),
        *spare_rules(path, given),
    )


def of_roles(rules: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The same for each role of a spec. rules: for `r`."""
    return tuple((f"!has(self.roles) || self.roles.all(r, {expression})", message) for expression, message in rules)


TOPOLOGY_RULES = topology_rules(WHOLE_PATH, HAS_WHOLE)
ROLE_RULES = of_roles(topology_rules("r.topology", "has(r.topology)"))
