"""The selectors that `clusters.py` draws, judged by their form and without CEL, so that both are tried apart."""

from __future__ import annotations

import re
from typing import Any

from fairlead.core.dra.inventory import SelectorFailure
from fairlead.core.dra.model import Device, attribute_of

_DRIVER = re.compile(r'device\.driver == "(?P<driver>[^"]*)"')
_OPTIONAL = re.compile(
    r'device\.attributes\["(?P<domain>[^"]*)"\]\.\?(?P<name>\w+)\.orValue\((?P<other>[^)]*)\) (?P<how>==|<) (?P<value>\S+)'
)
_PLAIN = re.compile(r'device\.attributes\["(?P<domain>[^"]*)"\]\.(?P<name>\w+) == (?P<value>\d+)')
_MULTIPLE = "device.allowMultipleAllocations == true"


def matches(expression: str, device: Device) -> bool:
    """Whether a selector of the generator holds for a device; raises `SelectorFailure` where CEL would err."""
    if expression == _MULTIPLE:
        return device.multiple
    if found := _DRIVER.fullmatch(expression):
        return device.driver == found["driver"]
    if found := _PLAIN.fullmatch(expression):
        value = attribute_of(device, f"{found['domain']}/{found['name']}")
        if value is None:
            raise SelectorFailure(f"no such key: {found['name']}")
        return value == int(found["value"])
    if found := _OPTIONAL.fullmatch(expression):
        value = attribute_of(device, f"{found['domain']}/{found['name']}")
        value = _literal(found["other"]) if value is None else value
        wanted = _literal(found["value"])
        if found["how"] == "==":
            return type(value) is type(wanted) and value == wanted
        if not isinstance(value, int) or not isinstance(wanted, int):
            raise SelectorFailure("no such overload")
        return value < wanted
    raise SelectorFailure(f"{expression!r} is not a selector of the generator")


def judge(expression: str, driver: str, device: dict[str, Any]) -> bool | None:
    """The same for a device as the API has it; None where CEL would err."""
    attributes = {name: next(iter(each.values())) for name, each in device.get("attributes", {}).items()}
    if expression == _MULTIPLE:
        return bool(device.get("allowMultipleAllocations"))
    if found := _DRIVER.fullmatch(expression):
        return driver == found["driver"]
    found = _PLAIN.fullmatch(expression) or _OPTIONAL.fullmatch(expression)
    if found is None:
        return None
    full = f"{found['domain']}/{found['name']}"
    value = attributes.get(full, attributes.get(found["name"]) if found["domain"] == driver else None)
    if value is None:
        if "other" not in found.groupdict():
            return None
        value = _literal(found["other"])
    wanted = _literal(found["value"])
    if found.groupdict().get("how") == "<":
        return int(value) < int(wanted)
    return bool(value == wanted)


def _literal(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text.startswith('"') else int(text)
