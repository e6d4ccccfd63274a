"""What is served, and what its objects are made of: trees of fields, schemas of custom resources."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.cluster.simulated import errors, schema
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import DEFINITIONS, Catalog, Resource
from fairlead.cluster.simulated.store import Change, Object, Store


class CustomSchema(NamedTuple):
    """What is made of a custom resource's schema; `definition` is held, since its identity is the key."""

    tree: schema.Node
    validator: schema.Validator
    defaults: schema.Defaults | None
    definition: Object

    def filled(self, obj: Object) -> Object:
        """The object with defaults, and with metadata of its own that may be written to."""
        filled: Object = {**(self.defaults.filled(obj) if self.defaults is not None else obj)}
        filled["metadata"] = {**filled["metadata"]}
        return filled


class Definitions:
    """Knows the schema of every resource; CustomResourceDefinitions in the store add to the catalog."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._schemas: dict[int, CustomSchema] = {}  # holds what its keys are the ids of
        store.listen(DEFINITIONS, self._defined)

    def served(self, api_version: str, plural: str) -> Resource:
        """A resource that must be served. Raises `StatusError` 404."""
        resource = self._catalog.find(api_version, plural)
        if resource is None:
            raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
        return resource

    def node_of(self, resource: Resource) -> schema.Node:
        """The tree of a resource's fields."""
        if resource.schema is not None:
            return self.custom(resource).tree
        return schema.of_model(resource.model) if resource.model is not None else schema.Node("any")

    def custom(self, resource: Resource) -> CustomSchema:
        """What is made of the schema of a custom resource."""
        definition = resource.schema or {}
        known = self._schemas.get(id(definition))
        if known is None:
            tree = schema.of_schema(definition, root=True)
            parts = tree, schema.Validator(definition), schema.defaults_of(definition)
            known = self._schemas[id(definition)] = CustomSchema(*parts, definition)
        return known

    def _defined(self, change: Change) -> None:
        if change.kind != "DELETED":
            self._catalog.define(change.record.object)
            return
        for resource in self._catalog.undefine(change.key[1]):
            for key, _ in self._store.sorted(resource.table):
                self._store.remove(resource.table, key)

    def check_shape(self, resource: Resource, obj: Object, live: Object | None = None) -> None:
        """Rules of custom resources that must hold before anything reads the object."""
        if resource.custom:
            wrong = self.custom(resource).validator.causes(obj, live)
            if wrong:
                raise errors.invalid(resource.group, resource.kind, obj["metadata"].get("name", ""), wrong)

    @staticmethod
    def check_custom_kind(resource: Resource, obj: Object) -> None:
        """An object of a custom kind has its kind and apiVersion. Raises `StatusError` 422."""
        kind, version = obj.get("kind"), obj.get("apiVersion")
        group, _, _ = str(version).rpartition("/")
        for field, given, wanted in (("kind", kind, resource.kind), ("apiVersion", version, resource.api_version)):
            if given != wanted:
                name = str((obj.get("metadata") or {}).get("name") or "")
                raise errors.invalid(group, str(kind), name, [errors.invalid_value(field, str(given), f"must be {wanted}")])

    def not_convertible(self, resource: Resource, version: str, kind: str) -> str:
        """Why an object of another kind is none of this resource."""
        other = self._catalog.of_kind(version, kind)
        if other is None or other.custom:
            return errors.unregistered(version, kind)
        ours = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
        return f"converting ({other.version}.{kind}) to ({ours}): unknown conversion"
