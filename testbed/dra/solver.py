"""Whether claims have an allocation on a node, by integer programming (HiGHS): the judge of hard instances.

For cases without devices that are held in shares already, admin access and selectors that err. One binary variable for each
alternative of a request, one for each device that it may get, one for each shared device that is used; counters, capacities and
constraints are rows. It reads the API objects as `checker.py` does.
"""

from __future__ import annotations

from typing import Any

import highspy

from testbed.dra.checker import Key, World, asks_of, number

Json = dict[str, Any]
_SECONDS = 60.0


class Undecided(Exception):
    """The solver did not decide in time."""


class _Rows:
    """A model in the making: binary variables, and rows over them."""

    def __init__(self) -> None:
        self.solver = highspy.Highs()  # type: ignore[no-untyped-call]
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self.solver.setOptionValue("time_limit", _SECONDS)
        self.columns = 0

    def binary(self) -> int:
        self.solver.addVar(0, 1)
        self.solver.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def row(self, terms: dict[int, float], low: float, high: float) -> None:
        self.solver.addRow(low, high, len(terms), list(terms), list(terms.values()))


def possible(case: Json, node: Json) -> bool:
    """Whether there is an allocation; raises `Undecided`."""
    world, rows = World(case, node), _Rows()
    infinity = rows.solver.getInfinity()
    by_device: dict[Key, list[int]] = {}
    consumed: dict[Key, dict[str, dict[int, float]]] = {}
    for at, claim in enumerate(case["claims"]):
        chosen: list[tuple[str, Key, int]] = []
        for request in claim["spec"]["devices"]["requests"]:
            alternatives = []
            for name, ask in asks_of(request):
                alternative = rows.binary()
                alternatives.append(alternative)
                devices = [(key, rows.binary()) for key in world.matching(ask) if key not in world.alone]
                rows.row({alternative: -float(ask["count"]), **{variable: 1.0 for _, variable in devices}}, 0, 0)
                chosen += [(name, key, variable) for key, variable in devices]
                for key, variable in devices:
                    for capacity, amount in (world.consumed(ask, world.here[key][0]) or {}).items():
                        consumed.setdefault(key, {}).setdefault(capacity, {})[variable] = float(amount)
            rows.row(dict.fromkeys(alternatives, 1.0), 1, 1)
        for key, variable in ((key, variable) for _, key, variable in chosen):
            by_device.setdefault(key, []).append(variable)
        for each in case["claims"][at]["spec"]["devices"].get("constraints", ()):
            _constrain(world, rows, each, chosen)
    for key, variables in by_device.items():
        device = world.here[key][0]
        if not device.get("allowMultipleAllocations"):
            rows.row(dict.fromkeys(variables, 1.0), 0, 1)
            continue
        for capacity, amounts in consumed.get(key, {}).items():
            rows.row(amounts, -infinity, float(number(device["capacity"][capacity]["value"])))
        used = rows.binary()
        for variable in variables:
            rows.row({variable: 1.0, used: -1.0}, -1, 0)
        by_device[key] = [used]  # the first share consumes the counters
    uses: dict[tuple[str, str, str, str], dict[int, float]] = {}
    for key, variables in by_device.items():
        for counter, amount in world.uses(key):
            for variable in variables:
                uses.setdefault(counter, {})[variable] = float(amount)
    for counter, terms in uses.items():
        rows.row(terms, -infinity, float(world.left[counter]))
    rows.solver.run()
    status = rows.solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return True
    if status == highspy.HighsModelStatus.kInfeasible:
        return False
    raise Undecided(str(status))


def _constrain(world: World, rows: _Rows, each: Json, chosen: list[tuple[str, Key, int]]) -> None:
    distinct = "distinctAttribute" in each
    name = each["distinctAttribute"] if distinct else each["matchAttribute"]
    of_value: dict[object, list[int]] = {}
    for ask, key, variable in chosen:
        if each.get("requests") and ask not in each["requests"] and ask.partition("/")[0] not in each["requests"]:
            continue
        value = world.attribute(key, name)
        if value is None:
            rows.row({variable: 1.0}, 0, 0)
        else:
            of_value.setdefault(value, []).append(variable)
    if distinct:
        for variables in of_value.values():
            rows.row(dict.fromkeys(variables, 1.0), 0, 1)
        return
    picked = []
    for variables in of_value.values():
        value_variable = rows.binary()
        picked.append(value_variable)
        for variable in variables:
            rows.row({variable: 1.0, value_variable: -1.0}, -1, 0)
    if picked:
        rows.row(dict.fromkeys(picked, 1.0), 0, 1)
