"""What part of a GPU an extended resource of NVIDIA's device plugin is, for quotas, tables and costs.

Strategy `mixed`: a resource for each profile, `nvidia.com/mig-1g.5gb`; with media extensions
`nvidia.com/mig-1g.5gb.me`. Strategy `single`: `nvidia.com/gpu`, on nodes whose product label ends in the profile,
`NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`.

A shared GPU or partition (time-slicing, MPS) is offered as several replicas. If their resource is renamed
(`nvidia.com/gpu.shared`, `nvidia.com/mig-1g.5gb.shared`), a replica's part is not known from its name. If not, only the
product label ends in `-SHARED`: a replica then counts as all of what is shared, which is the most that it may use.

Parts are thousandths of a GPU, rounded down, so that the partitions of one GPU are never more than the GPU.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fairlead.core.mig.geometry import GEOMETRIES, Geometry, Profile, UnknownModel, geometry_of

PREFIX = "nvidia.com/mig-"
WHOLE = "nvidia.com/gpu"
_MILLI = 1000
_SINGLE = "-MIG-"
_SHARED = "-SHARED"
_REPLICA = ".shared"


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
    _, _, single = product.removesuffix(_SHARED).partition(_SINGLE)
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
