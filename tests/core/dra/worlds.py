"""Small worlds of devices for the tests of the allocator."""

from __future__ import annotations

from fairlead.core.dra.allocator import DEFAULT, allocate
from fairlead.core.dra.held import Held
from fairlead.core.dra.inventory import Inventory, SelectorFailure
from fairlead.core.dra.model import Ask, Claim, Device, DeviceClass, Reach, Request, Slice, attribute_of
from fairlead.core.dra.pools import Slices
from fairlead.core.model.nodes import Node

DRIVER = "gpu.example.com"
CLASSES = {"gpu": DeviceClass("gpu")}


def matches(expression, device):
    """Selectors of these tests: `name=value` of a string, `!` errs."""
    if expression == "!":
        raise SelectorFailure("it errs")
    name, _, value = expression.partition("=")
    return attribute_of(device, f"{DRIVER}/{name}") == value


def node(name="n0", **labels):
    return Node(name, {}, labels)


def pool(*devices, name="n0", slices=1, reach=None, counters=(), generation=1, driver=DRIVER, part=0):
    return Slice(
        f"{driver}-{name}-{generation}-{part}",
        driver,
        name,
        generation,
        slices,
        reach or Reach(node="n0"),
        False,
        tuple(devices),
        counters,
    )


def device(name, *, driver=DRIVER, **fields):
    return Device(name, driver, **fields)


def partitions(gpus, sizes=((4, "whole"), (2, "half"), (1, "quarter"))):
    """(slice of devices, slice of counters): GPUs of four parts, as whole, halves, quarters."""
    devices, counters = [], []
    for gpu in range(gpus):
        counters.append((f"gpu-{gpu}", {f"s{at}": 1 for at in range(4)}))
        for size, kind in sizes:
            for start in range(0, 4, size):
                used = tuple((f"s{at}", 1) for at in range(start, start + size))
                attributes = {"kind": kind, "parent": f"gpu-{gpu}"}
                devices.append(device(f"gpu-{gpu}-{kind}-{start}", attributes=attributes, counters=((f"gpu-{gpu}", used),)))
    return pool(*devices, slices=2), pool(counters=tuple(counters), slices=2, part=1)


def ask(name="r", count=1, *selectors, **fields):
    return Ask(name, "gpu", "ExactCount", count, selectors, **fields)


def claim(*asks, name="c", constraints=(), configs=()):
    return Claim("d", name, tuple(Request(each.name, (each,)) for each in asks), tuple(constraints), tuple(configs))


def first_available(request, *asks):
    return Request(request, tuple(asks))


def state(*slices, held=None, at=None):
    at = at or node()
    return (held or Held()).on(Inventory(Slices(slices).pools(at), matches))


def solve(here, *claims, classes=None, options=DEFAULT):
    return allocate(here, "n0", claims, CLASSES if classes is None else classes, options)


def names(allocations):
    return [[each.device.device for each in allocation.devices] for allocation in allocations]
