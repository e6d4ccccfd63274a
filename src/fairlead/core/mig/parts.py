"""What part of a GPU an extended resource of NVIDIA's device plugin is, for quotas, tables and costs.

Strategy `mixed`: a resource for each profile, `nvidia.com/mig-1g.5gb`; with media extensions
`nvidia.com/mig-1g.5gb.me`. Strategy `single`: `nvidia.com/gpu`, on nodes whose product label ends in the profile,
`NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`.

A shared GPU or partition (time-slicing, MPS) is offered as several replicas, of a renamed resource
(`nvidia.com/gpu.shared`, `nvidia.com/mig-1g.5gb.shared`) or of the same one, with a product label that ends in `-SHARED`. How
many there are of one is the label `nvidia.com/gpu.replicas` (`nvidia.com/mig-1g.5gb.replicas`): `sharing_of` reads it. Where it
is not there, a replica counts as all of what is shared, which is the most that it may use.

Parts are thousandths of a GPU, rounded down once, at the end: equal parts of one GPU are never more than the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from fairlead.core.mig.geometry import GEOMETRIES, Geometry, Profile, UnknownModel, geometry_of

PREFIX = "nvidia.com/mig-"
WHOLE = "nvidia.com/gpu"
_MILLI = 1000
SINGLE = "-MIG-"
_SHARED = "-SHARED"
_REPLICA = ".shared"
GPU_PRODUCT = "nvidia.com/gpu.product"
_REPLICAS = ".replicas"
GPU_REPLICAS = WHOLE + _REPLICAS
_STRATEGY = ".sharing-strategy"
_STRATEGIES = ("time-slicing", "mps")
_MOST_REPLICAS = 1_000_000


class Part(msgspec.Struct, frozen=True):
    """One unit of a resource as a part of a GPU. model: empty if more than one has it alike; profile: empty for a whole
    GPU.

    compute_milli: of the model's compute slices (seven; four on an A30); memory_milli: of its memory slices. In
    thousandths.
    """

    resource: str
    model: str
    profile: str
    compute_milli: int
    memory_milli: int

    @property
    def milli(self) -> int:
        """The larger of both: what nothing else of the GPU can use, by the resource that it exhausts first."""
        return max(self.compute_milli, self.memory_milli)


class PartCause(StrEnum):
    """Why a part is not known."""

    NOT_A_GPU = "NotAGpu"
    SHARED = "Shared"
    UNKNOWN_MODEL = "UnknownModel"
    UNKNOWN_PROFILE = "UnknownProfile"
    AMBIGUOUS = "Ambiguous"


class UnknownPart(msgspec.Struct, frozen=True):
    """A resource whose part of a GPU is not known, and why."""

    resource: str
    product: str
    cause: PartCause
    message: str


def part_of(resource: str, product: str = "") -> Part | UnknownPart:
    """The part of a GPU that one of a resource is. product: the node's label `nvidia.com/gpu.product`; empty: not
    known.

    Without a product the profile's part must be the same on all models that have it (`1g.10gb` is not: it has one
    memory slice of an A100-80GB and two of an A100-40GB).
    """
    _, _, single = product.removesuffix(_SHARED).partition(SINGLE)
    base = resource.removesuffix(_REPLICA)
    if base != resource and (base == WHOLE or base.startswith(PREFIX)):
        message = f"one of several replicas of {base}, and how many there are is not known from its name"
        return _unknown(resource, product, PartCause.SHARED, message)
    if resource == WHOLE and not single:
        return Part(resource, "", "", _MILLI, _MILLI)
    if resource != WHOLE and not resource.startswith(PREFIX):
        return _unknown(resource, product, PartCause.NOT_A_GPU, f"expected {WHOLE} or {PREFIX}PROFILE")
    name = single if resource == WHOLE else resource.removeprefix(PREFIX)
    return _on_any(resource, name) if not product else _on_product(resource, product, name)


def _on_product(resource: str, product: str, name: str) -> Part | UnknownPart:
    geometry = geometry_of(product)
    if isinstance(geometry, UnknownModel):
        return _unknown(resource, product, PartCause.UNKNOWN_MODEL, geometry.message)
    profile = geometry.profile(name)
    if profile is None:
        has = ", ".join(each.name for each in geometry.profiles)
        message = (
            f"{geometry.model} has no profile {name!r} (it has {has}): request one of these, or correct the node's product label"
        )
        return _unknown(resource, product, PartCause.UNKNOWN_PROFILE, message)
    return _part(resource, geometry, profile, geometry.model)


def _on_any(resource: str, name: str) -> Part | UnknownPart:
    found = [(geometry, profile) for geometry in GEOMETRIES.values() if (profile := geometry.profile(name)) is not None]
    if not found:
        message = f"no known model has a profile {name!r} (models: {', '.join(GEOMETRIES)}): correct its name"
        return _unknown(resource, "", PartCause.UNKNOWN_PROFILE, message)
    parts = {_part(resource, geometry, profile, geometry.model if len(found) == 1 else "") for geometry, profile in found}
    if len(parts) > 1:
        models = ", ".join(geometry.model for geometry, _ in found)
        message = f"profile {name!r} is another part of a GPU on each of {models}: give the node's product"
        return _unknown(resource, "", PartCause.AMBIGUOUS, message)
    return parts.pop()


def _part(resource: str, geometry: Geometry, profile: Profile, model: str) -> Part:
    return Part(
        resource=resource,
        model=model,
        profile=profile.name,
        compute_milli=_MILLI * profile.compute // geometry.compute,
        memory_milli=_MILLI * profile.memory // geometry.memory,
    )


def _unknown(resource: str, product: str, cause: PartCause, message: str) -> UnknownPart:
    on = f" on product {product!r}" if product else ""
    return UnknownPart(resource, product, cause, f"resource {resource!r}{on}: {message}")


class Sharing(msgspec.Struct, frozen=True):
    """What a node's labels state of its GPUs. product: `nvidia.com/gpu.product`; replicas: (resource, how many of one)."""

    product: str = ""
    replicas: tuple[tuple[str, int], ...] = ()

    @property
    def by_unit(self) -> bool:
        """Whether one `nvidia.com/gpu` is less than a GPU."""
        return SINGLE in self.product or any(resource == WHOLE for resource, _ in self.replicas)


NOT_KNOWN = Sharing()
"""Of a node that is not known, or of pods without one."""

PartTable = Mapping[tuple[str, str], int]
"""An administrator's parts in thousandths, by resource and product; product empty: of every product."""

NO_TABLE: PartTable = {}


def is_part(resource: str) -> bool:
    """Whether a resource is counted in parts of a GPU by its name alone; `nvidia.com/gpu` itself is not."""
    return resource.startswith(PREFIX) or resource == WHOLE + _REPLICA


def counts(resource: str, table: PartTable = NO_TABLE) -> bool:
    """Whether a resource counts as GPUs of NVIDIA, or as parts of one, on some nodes at least."""
    return resource == WHOLE or is_part(resource) or any(resource == name for name, _ in table)


def sharing_of(labels: Mapping[str, str]) -> Sharing:
    """What a node's labels state. A number of replicas that cannot be read counts as one."""
    product = labels.get(GPU_PRODUCT, "")
    replicas = []
    for label, text in labels.items():
        if not label.endswith(_REPLICAS):
            continue
        resource = label.removesuffix(_REPLICAS)
        if resource != WHOLE and not resource.startswith(PREFIX):
            continue
        many = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(_MOST_REPLICAS)) else 1
        strategy = labels.get(resource + _STRATEGY) or labels.get(WHOLE + _STRATEGY)
        if many > 1 and (strategy is None or strategy in _STRATEGIES):
            replicas.append((resource, many))
    return Sharing(product, tuple(sorted(replicas)))


def sharing_labels(resource: str) -> tuple[str, ...]:
    """The labels of nodes by which GPUs, or partitions, that a resource names may be replicated."""
    base = resource.removesuffix(_REPLICA)
    return base + _REPLICAS, base + _STRATEGY, WHOLE + _STRATEGY


def milli_of(resource: str, sharing: Sharing = NOT_KNOWN, table: PartTable = NO_TABLE) -> int:
    """Thousandths of a GPU that one of a resource counts as on a node; 0: it is no GPU.

    Of a product that is not known, or a profile that its model does not have, a partition counts as the least that a
    known model's partition of that name is, or else as the compute slices that its name has, of seven; and where the name
    has none, as a whole GPU. At least 1.
    """
    given = table.get((resource, sharing.product), table.get((resource, "")))
    if given is not None:
        return given
    if resource != WHOLE and not is_part(resource):
        return 0
    base = resource.removesuffix(_REPLICA)
    single = sharing.product.removesuffix(_SHARED).partition(SINGLE)[2] if base == WHOLE else ""
    many = dict(sharing.replicas).get(base, 1)
    if base == WHOLE and not single:
        return max(1, _MILLI // many)
    return max(1, _of_profile(single or base.removeprefix(PREFIX), sharing.product, many))


def _of_profile(name: str, product: str, many: int) -> int:
    """Thousandths of one of so many replicas of a partition."""
    geometry = geometry_of(product) if product else None
    of_model = geometry.profile(name) if isinstance(geometry, Geometry) else None
    if isinstance(geometry, Geometry) and of_model is not None:
        return _larger(geometry, of_model, many)
    known = [_larger(each, found, many) for each in GEOMETRIES.values() if (found := each.profile(name)) is not None]
    if known:
        return min(known)
    slices = name.partition("g.")[0]
    return _MILLI * int(slices) // (_SLICES * many) if slices in _DIGITS else _MILLI // many


_SLICES = 7
_DIGITS = frozenset("1234567")


def _larger(geometry: Geometry, profile: Profile, many: int) -> int:
    return max(_MILLI * profile.compute // (geometry.compute * many), _MILLI * profile.memory // (geometry.memory * many))
