"""The forms in which an AIJob may run, as its PodGroup's annotation has them: the operator writes it, the scheduler reads it."""

from __future__ import annotations

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.common import MEMBERS
from fairlead.cluster import views
from fairlead.core.model.groups import Choice, Chosen
from fairlead.core.model.selectors import mistake

log = structlog.get_logger("alternatives")

_MOST_GPUS = 1 << 31  # of a member: far beyond any node


class Forms(msgspec.Struct, frozen=True, omit_defaults=True):
    """choices: in order of preference. current: (index, pool) of the one in which its pods are made."""

    choices: tuple[Choice, ...] = ()
    current: tuple[int, str] = (0, "")


_NONE = Forms()


def written(forms: Forms) -> str:
    """The annotation's text."""
    return msgspec.json.encode(forms).decode()


def read(group: views.PodGroup) -> Forms:
    """The forms of a PodGroup's job that are possible. None, where it is not an AIJob's, or what is written cannot be read."""
    text = (group.metadata.annotations or {}).get(names.ALTERNATIVES_ANNOTATION)
    if not text or not any(owner.kind == "AIJob" for owner in group.metadata.owner_references or ()):
        return _NONE
    try:
        forms = msgspec.json.decode(text, type=Forms)
    except msgspec.MsgspecError as error:
        log.error("alternatives cannot be read", group=f"{group.metadata.namespace}/{group.metadata.name}", error=str(error))
        return _NONE
    possible = tuple(filter(_is_possible, forms.choices))
    if len(possible) < len(forms.choices):
        log.error("alternatives are out of bounds", group=f"{group.metadata.namespace}/{group.metadata.name}")
    return msgspec.structs.replace(forms, choices=possible)


def _is_possible(form: Choice) -> bool:
    """Whether a form is one that an operator writes: each is tried as it stands here, member by member."""
    counts = form.index >= 0 and 1 <= form.replicas <= MEMBERS and 1 <= form.amount <= _MOST_GPUS and bool(form.resource)
    return counts and not any(mistake(each, comparing=True) for each in form.nodes)


def chosen(group: views.PodGroup) -> Chosen | None:
    """The form that the scheduler chose last."""
    found = group.status.alternative if group.status is not None else None
    return Chosen(found.index, found.pool, found.attempt) if found is not None else None
