"""What all importers share: the manifests they make, what could not be carried over, names and amounts as we write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.api import names, quantity
from fairlead.api.quantity import QuantityError

_NOT_A_NAME = re.compile(r"[^a-z0-9.-]+")


class ImportFailed(ValueError):
    """An input that cannot be read: what is wrong, and where."""


class Note(msgspec.Struct, frozen=True):
    """Something that is not as it was: which object, which field of it, and what that means."""

    object: str
    field: str
    message: str


class Imported(msgspec.Struct):
    """The result: manifests to apply, and what to know about them."""

    objects: list[dict[str, Any]] = []
    notes: list[Note] = []

    def note(self, about: str, field: str, message: str) -> None:
        """Record, once, what could not be carried over."""
        note = Note(about, field, message)
        if note not in self.notes:
            self.notes.append(note)

    def add(self, kind: str, name: str, spec: dict[str, Any], about: str) -> None:
        """Add a manifest of ours. Empty fields are left out."""
        full = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": self.named(name, about)}}
        self._append({**full, "spec": {key: value for key, value in spec.items() if value not in (None, [], {}, "")}}, about)

    def add_priority(self, name: str, value: int, about: str) -> None:
        """Add a PriorityClass."""
        metadata = {"name": self.named(name, about)}
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}
        self._append(made, about)

    def _append(self, made: dict[str, Any], about: str) -> None:
        """Add a manifest; of several with one name only the first, since each would overwrite the one before."""
        kind, name = made["kind"], made["metadata"]["name"]
        if any(each["kind"] == kind and each["metadata"]["name"] == name for each in self.objects):
            self.note(about, "name", f"left out: there is another {kind} {name!r} before it")
        else:
            self.objects.append(made)

    def named(self, name: str, about: str) -> str:
        """A name that Kubernetes takes."""
        plain = _NOT_A_NAME.sub("-", name.lower()).strip("-.")[:253] or "unnamed"
        if plain != name and not any(note.object == about and note.field == "name" for note in self.notes):
            self.note(about, "name", f"is renamed to {plain!r}: Kubernetes allows no other characters")
        return plain

    def amount(self, about: str, field: str, resource: str, text: object) -> str | None:
        """An amount as it was written, or None with a note if it is none."""
        try:
            quantity.amount(resource, text if isinstance(text, str | int | float) else str(text))
        except QuantityError as error:
            self.note(about, field, f"left out: {error}")
            return None
        return str(text)


def manifests(documents: Iterable[Any]) -> list[dict[str, Any]]:
    """The objects in YAML documents, lists taken apart. Raises `ImportFailed`."""
    found: list[dict[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ImportFailed("a document is not a Kubernetes object: it is not a mapping")
        items = document.get("items") if str(document.get("kind", "")).endswith("List") else None
        for item in items if isinstance(items, list) else [document]:
            if (
                not isinstance(item, dict)
                or not isinstance(item.get("metadata") or {}, dict)
                or not isinstance(item.get("spec") or {}, dict)
            ):
                raise ImportFailed("an object needs `kind`, `metadata` and `spec` as mappings")
            found.append(item)
    return found


def name_of(manifest: dict[str, Any]) -> str:
    """Its name. Raises `ImportFailed`."""
    name = (manifest.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        raise ImportFailed(f"{manifest.get('kind') or 'an object'} without metadata.name")
    return name


def whole(value: object, default: int = 0) -> int:
    """The value, if it is a whole number that a 32-bit integer holds; else the default."""
    known = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31
    return value if known else default  # type: ignore[return-value]


def mapping(value: object) -> dict[str, Any]:
    """The value, if it is a mapping; else nothing."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[dict[str, Any]]:
    """The mappings in a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
