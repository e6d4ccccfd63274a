"""What specs and annotations ask of the network, as the core has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.api import names
from fairlead.api.kinds.common import MEMBERS, Topology
from fairlead.api.kinds.pod_group import GroupRole
from fairlead.cluster import bounds
from fairlead.core.model.pods import Closeness, SliceRule

_MOST_LAYERS = 3


class _Layer(msgspec.Struct):
    """One of Kueue's nested slices, as its annotation has it."""

    topology: str
    size: int


def closeness(topology: Topology | None, roles: Sequence[GroupRole] | None) -> Closeness | None:
    """What a PodGroup asks for; None: nothing."""
    special = tuple((each.name, _rules(each.topology)) for each in roles or () if each.topology is not None)
    found = _rules(topology or Topology())
    asked = msgspec.structs.replace(found, roles=special)
    return asked if asked != Closeness() else None


def _rules(topology: Topology) -> Closeness:
    slices = tuple(
        SliceRule(each.level, tuple(each.sizes) if each.sizes else (each.size or 0,)) for each in topology.slices or ()
    )
    required = (topology.required,) if topology.required else ()
    return Closeness(required, topology.preferred or "", slices, balanced=topology.balanced, spares=max(0, topology.spares))


def annotated(annotations: Mapping[str, str], complaints: list[str]) -> Closeness | None:
    """What Kueue's annotations on a pod ask for; None: nothing. What cannot be read is added to `complaints`."""
    if not any(each.startswith(names.KUEUE_PODSET_PREFIX) for each in annotations):
        return None
    required, preferred = (
        annotations.get(each, "") for each in (names.KUEUE_REQUIRED_ANNOTATION, names.KUEUE_PREFERRED_ANNOTATION)
    )
    slices = _slices(annotations, complaints)
    found = Closeness((required,) if required else (), preferred, slices)
    return found if found != Closeness() else None


def _slices(annotations: Mapping[str, str], complaints: list[str]) -> tuple[SliceRule, ...]:
    layers = annotations.get(names.KUEUE_SLICES_ANNOTATION)
    if layers is not None:
        try:
            given = msgspec.json.decode(layers, type=list[_Layer])
        except (msgspec.DecodeError, UnicodeError) as error:
            given = []
            complaints.append(f'annotation {names.KUEUE_SLICES_ANNOTATION}: {error}; write [{{"topology": LABEL, "size": PODS}}]')
        if len(given) > _MOST_LAYERS or any(not each.topology or not 1 <= each.size <= MEMBERS for each in given):
            complaints.append(
                f"annotation {names.KUEUE_SLICES_ANNOTATION}: at most {_MOST_LAYERS} slices, each with a label of nodes and 1 to "
                f"{MEMBERS} pods"
            )
            given = []
        return tuple(SliceRule(each.topology, (each.size,)) for each in given)
    level, size = (annotations.get(each, "") for each in (names.KUEUE_SLICE_LEVEL_ANNOTATION, names.KUEUE_SLICE_SIZE_ANNOTATION))
    if not level and not size:
        return ()
    if not level or not _is_count(size):
        complaints.append(
            f"annotations {names.KUEUE_SLICE_LEVEL_ANNOTATION} and {names.KUEUE_SLICE_SIZE_ANNOTATION}: "
            f"{bounds.shown(level)} and {bounds.shown(size)} are not a label of nodes and a number of pods, 1 to {MEMBERS}"
        )
        return ()
    return (SliceRule(level, (int(size),)),)


def _is_count(text: str) -> bool:
    return len(text) <= len(str(MEMBERS)) and text.isascii() and text.isdecimal() and 1 <= int(text) <= MEMBERS
