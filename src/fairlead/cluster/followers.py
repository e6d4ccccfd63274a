"""The followers of a gang's members, as its PodGroup's annotation has them: the operator writes it, the scheduler reads it.

Of their pod template it has what decides where a pod may run. What admission adds to pods (LimitRanges, RuntimeClasses, webhooks)
is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.common import LONGEST_LEVEL, MEMBERS
from fairlead.cluster import network, requests, views
from fairlead.core.model.groups import Followers
from fairlead.core.model.pods import Pod

log = structlog.get_logger("followers")

KINDS = ("JobSet", "LeaderWorkerSet")
"""Kinds of objects whose PodGroups have them."""

_LONGEST = 32 << 10  # bytes of a template: all annotations of an object may have 256 KiB
_SPEC = (
    *("schedulerName", "nodeSelector", "affinity", "tolerations", "overhead", "resources", "topologySpreadConstraints"),
    *("hostNetwork", "hostUsers", "resourceClaims"),
)
_ANNOTATIONS = (f"{names.GROUP}/", names.KUEUE_PODSET_PREFIX)
_CONTAINER = ("name", "resources", "ports", "restartPolicy")


class Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """gang: name of their PodGroup. leaders: labels of their leaders. level: label of nodes. count: for each leader.

    template: the part of their pod template that decides where they run; None: it is not known. ready: they are created only once
    their leader is ready.
    """

    gang: str
    leaders: dict[str, str]
    level: str
    count: int
    template: dict[str, Any] | None = None
    ready: bool = False


def template(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part of a pod template that decides where its pods run; None: it is too long to be written."""
    spec, metadata = given.get("spec") or {}, given.get("metadata") or {}
    kept = {key: spec[key] for key in _SPEC if spec.get(key)}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            kept[key] = [{part: each[part] for part in _CONTAINER if each.get(part)} for each in spec[key]]
    if mounted := [each for each in spec.get("volumes") or () if each.get("persistentVolumeClaim")]:
        kept["volumes"] = mounted
    annotations = {key: text for key, text in (metadata.get("annotations") or {}).items() if key.startswith(_ANNOTATIONS)}
    about = {key: each for key, each in (("labels", metadata.get("labels")), ("annotations", annotations)) if each}
    found = {"metadata": about, "spec": kept}
    return found if len(msgspec.json.encode(found)) <= _LONGEST else None


def written(forms: Sequence[Form]) -> str:
    """The annotation's text."""
    return msgspec.json.encode(forms).decode()


def read(group: views.PodGroup, as_pod: Callable[[views.Pod], Pod]) -> tuple[Followers, ...]:
    """The followers of a gang's members. None, where its PodGroup is none of such an object's, or what is written cannot be read.

    as_pod: a pod as the core sees it.
    """
    text = (group.metadata.annotations or {}).get(names.FOLLOWERS_ANNOTATION)
    if not text or not any(owner.controller and owner.kind in KINDS for owner in group.metadata.owner_references or ()):
        return ()
    try:
        forms = msgspec.json.decode(text, type=list[Form])
    except msgspec.MsgspecError as error:
        log.error("followers cannot be read", group=group.metadata.key, error=str(error))
        return ()
    possible = [each for each in forms if _is_possible(each)]
    if len(possible) < len(forms):
        log.error("followers are out of bounds", group=group.metadata.key)
    namespace = group.metadata.namespace
    return tuple(
        Followers(
            f"{namespace}/{each.gang}",
            tuple(sorted(each.leaders.items())),
            each.level,
            each.count,
            _like(each, namespace, as_pod),
            each.ready,
        )
        for each in possible
    )


def _is_possible(form: Form) -> bool:
    return 1 <= form.count <= MEMBERS and bool(form.gang and form.leaders) and 0 < len(form.level) <= LONGEST_LEVEL


def _like(form: Form, namespace: str, as_pod: Callable[[views.Pod], Pod]) -> Pod | None:
    """One of the followers by their template; None: that is not known, or its pods cannot be read."""
    if form.template is None:
        return None
    try:
        view = requests.defaulted(msgspec.convert(form.template, views.Pod))
    except msgspec.ValidationError:
        return None
    view = msgspec.structs.replace(view, metadata=msgspec.structs.replace(view.metadata, namespace=namespace, name=form.gang))
    found = as_pod(view)
    if found.error is not None:
        return None
    # Which gang they will be in is not among their labels here, so what they ask for as members was not read.
    return msgspec.structs.replace(found, closeness=network.annotated(view.metadata.annotations or {}, []))
