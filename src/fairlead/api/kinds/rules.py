"""The rules of CustomResourceDefinitions beyond the types of fields, and types that enforce them.

The types of `api.kinds` are read as they are: an object that another version of Fairlead wrote, with a value that this one does
not know, is still read. Who makes objects checks them against the same rules first, by `strict`.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

Type = TypeVar("Type", bound=msgspec.Struct)


class Rule:
    """The rules of one field, as `msgspec.Meta` takes them. required: it must be given."""

    def __init__(self, *, required: bool = False, **rules: Any) -> None:
        self.required = required
        self.meta = msgspec.Meta(**rules)


def strict(kind: type[Type]) -> type[Type]:
    """The same type, as a subtype which is read only where the rules are kept."""
    found: type[Type] = _strict(kind)
    return found


@cache
def _strict(kind: Any) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        hint, required = _enforced(hints[field.name])
        if required or field.required:
            fields.append((field.name, hint, msgspec.field(name=field.encode_name)))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, hint, msgspec.field(default_factory=field.default_factory, name=field.encode_name)))
        else:
            fields.append((field.name, hint, msgspec.field(default=field.default, name=field.encode_name)))
    about = {"__doc__": kind.__doc__}
    return msgspec.defstruct(kind.__name__, fields, bases=(kind,), namespace=about, module=kind.__module__, kw_only=True)


def _enforced(hint: Any) -> tuple[Any, bool]:
    """(a type with its rules, whether it must be given)."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, required = _enforced(arguments[0])
        rules = [each for each in arguments[1:] if isinstance(each, Rule)]
        metas = [each.meta if isinstance(each, Rule) else each for each in arguments[1:]]
        return Annotated[(inner, *metas)], required or any(each.required for each in rules)
    if origin in (Union, UnionType):
        parts = [_enforced(each) for each in arguments]
        return Union[tuple(part for part, _ in parts)], any(  # noqa: UP007 - of a number known only here
            required for _, required in parts
        )
    if arguments and origin in (list, dict):
        return origin[tuple(_enforced(each)[0] for each in arguments)], False
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _strict(hint), False
    return hint, False
