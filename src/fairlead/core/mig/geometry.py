"""The MIG geometries of GPU models: profiles, memory slices, start positions, compute slices.

Sources. Profiles, their parts of memory and compute, and how many of each fit: NVIDIA's Multi-Instance GPU User Guide,
"Supported MIG Profiles" (A30, A100, H100, H200, B200). Start positions: the output of `nvidia-smi mig -lgipp`, in the
guide for the A100-40GB and as NVIDIA printed it for the H100 NVL: `{0,1,2,3,4,5,6}:1`, `{0,2,4,6}:2`, `{0,2,4}:2`,
`{0,4}:4`, `{0}:4`, `{0}:8`. The guide draws the same places for all models of seven compute slices. Names that only
appear in the lists of GPU Operator's `default-mig-parted-config`: those of the H100 with 96 GB (GH200, H20; not the
H20-3e, which has 141 GB).
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """One kind of partition of a GPU model.

    compute, memory: compute and memory slices that it takes; memory_gb: as its name has it; starts: the first memory
    slices at which it may be; limit: how many of it one GPU holds at most; media: it takes the media extensions, of
    which a GPU has one.
    """

    name: str
    compute: int
    memory: int
    memory_gb: int
    starts: tuple[int, ...]
    limit: int
    media: bool = False


class Geometry(msgspec.Struct, frozen=True):
    """What one GPU model can be partitioned into. compute, memory: slices of the whole GPU."""

    model: str
    compute: int
    memory: int
    memory_gb: int
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile | None:
        """The profile of that name; `1g.5gb+me` and the device plugin's `1g.5gb.me` are the same."""
        wanted = name.removesuffix(".me") + "+me" if name.endswith(".me") else name
        return next((each for each in self.profiles if each.name == wanted), None)

    def without_media(self) -> Geometry:
        """Without the profiles that take the media extensions: fewer states, where nothing asks for them."""
        return msgspec.structs.replace(self, profiles=tuple(each for each in self.profiles if not each.media))

    def only(self, names: Collection[str]) -> Geometry:
        """With these profiles only, for what uses no others."""
        return msgspec.structs.replace(self, profiles=tuple(each for each in self.profiles if each.name in names))


class UnknownModel(msgspec.Struct, frozen=True):
    """No geometry is known for a product. known: the models that have one."""

    product: str
    known: tuple[str, ...]

    @property
    def message(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"product {self.product!r} has no known MIG geometry (known: {', '.join(self.known)}): "
            "use a node of one of these models, or request the partition by a DRA device class"
        )


def _seven(model: str, total: int, one: int, quarter: int, half: int) -> Geometry:
    """A model of seven compute and eight memory slices; gigabytes in the names of 1g, of two memory slices, of four,
    of all.
    """
    return Geometry(
        model=model,
        compute=7,
        memory=8,
        memory_gb=total,
        profiles=(
            Profile(f"1g.{one}gb", 1, 1, one, (0, 1, 2, 3, 4, 5, 6), 7),
            Profile(f"1g.{one}gb+me", 1, 1, one, (0, 1, 2, 3, 4, 5, 6), 1, media=True),
            Profile(f"1g.{quarter}gb", 1, 2, quarter, (0, 2, 4, 6), 4),
            Profile(f"2g.{quarter}gb", 2, 2, quarter, (0, 2, 4), 3),
            Profile(f"3g.{half}gb", 3, 4, half, (0, 4), 2),
            Profile(f"4g.{half}gb", 4, 4, half, (0,), 1),
            Profile(f"7g.{total}gb", 7, 8, total, (0,), 1),
        ),
    )


_A30 = Geometry(
    model="A30",
    compute=4,
    memory=4,
    memory_gb=24,
    profiles=(
        Profile("1g.6gb", 1, 1, 6, (0, 1, 2, 3), 4),
        Profile("1g.6gb+me", 1, 1, 6, (0, 1, 2, 3), 1, media=True),
        Profile("2g.12gb", 2, 2, 12, (0, 2), 2),
        Profile("2g.12gb+me", 2, 2, 12, (0, 2), 1, media=True),
        Profile("4g.24gb", 4, 4, 24, (0,), 1),
    ),
)

GEOMETRIES: dict[str, Geometry] = {
    each.model: each
    for each in (
        _A30,
        _seven("A100-40GB", 40, 5, 10, 20),
        _seven("A100-80GB", 80, 10, 20, 40),
        _seven("H100-80GB", 80, 10, 20, 40),
        _seven("H100-94GB", 94, 12, 24, 47),
        _seven("H100-96GB", 96, 12, 24, 48),
        _seven("H200", 141, 18, 35, 71),
        _seven("B200", 180, 23, 45, 90),
    )
}
"""Model -> its geometry."""

# Products as GPU feature discovery labels them (`nvidia.com/gpu.product`), without NVIDIA and what follows MIG or
# SHARED. The first that matches counts; the name of a family alone is enough only where the family has one size of
# memory.
_PRODUCTS = tuple(
    (re.compile(pattern), model)
    for pattern, model in (
        (r"A30(-|$)", "A30"),
        (r"A100-.*80GB", "A100-80GB"),
        (r"A100-.*40GB", "A100-40GB"),
        (r"H100-(NVL|.*94GB)", "H100-94GB"),
        (r"H100-(PCIe|.*80GB)", "H100-80GB"),
        (r"(GH200-480GB|H20(?!-3e)(-|$)|H100-.*96GB)", "H100-96GB"),
        (r"H200(-|$)", "H200"),
        (r"B200(-|$)", "B200"),
    )
)
_SUFFIX = re.compile(r"-(SHARED|MIG-.*)$")


def geometry_of(product: str) -> Geometry | UnknownModel:
    """That of a product label's model (`NVIDIA-A100-SXM4-40GB`, also with `-MIG-1g.5gb` or `-SHARED`), or of a
    model's own name.
    """
    if product in GEOMETRIES:
        return GEOMETRIES[product]
    name = _SUFFIX.sub("", product).removeprefix("NVIDIA-")
    for pattern, model in _PRODUCTS:
        if pattern.match(name):
            return GEOMETRIES[model]
    return UnknownModel(product=product, known=tuple(GEOMETRIES))
