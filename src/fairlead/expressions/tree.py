"""The checked syntax tree that the library gives and takes: its protobuf types, and changes that keep it valid.

The types are those of cel.expr (google/cel-spec, `checked.proto` and `syntax.proto`), as far as they are read here; what is
not declared here survives reading and writing as unknown fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

_PACKAGE: Final = "fairlead.cel"
_SCALARS: Final = {"int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "double": 1, "enum": 5}
_MESSAGES: Final[dict[str, str]] = {
    "Constant": "null_value:1:enum bool_value:2:bool int64_value:3:int64 uint64_value:4:uint64 double_value:5:double "
    "string_value:6:string bytes_value:7:bytes",
    "Ident": "name:1:string",
    "Select": "operand:1:Expr field:2:string test_only:3:bool",
    "Call": "target:1:Expr function:2:string args:3:*Expr",
    "List": "elements:1:*Expr optional_indices:2:*int32",
    "Entry": "id:1:int64 field_key:2:string map_key:3:Expr value:4:Expr optional_entry:5:bool",
    "Struct": "message_name:1:string entries:2:*Entry",
    "Comprehension": "iter_var:1:string iter_range:2:Expr accu_var:3:string accu_init:4:Expr loop_condition:5:Expr "
    "loop_step:6:Expr result:7:Expr iter_var2:8:string",
    "Expr": "id:2:int64 const_expr:3:Constant ident_expr:4:Ident select_expr:5:Select call_expr:6:Call list_expr:7:List "
    "struct_expr:8:Struct comprehension_expr:9:Comprehension",
    "Empty": "",
    "ListType": "elem_type:1:Type",
    "MapType": "key_type:1:Type value_type:2:Type",
    "AbstractType": "name:1:string parameter_types:2:*Type",
    "Type": "dyn:1:Empty null:2:enum primitive:3:enum wrapper:4:enum well_known:5:enum list_type:6:ListType map_type:7:MapType "
    "message_type:9:string type_param:10:string type:11:Type error:12:Empty abstract_type:14:AbstractType",
    "Reference": "name:1:string overload_id:3:*string value:4:Constant",
    "ReferenceEntry": "key:1:int64 value:2:Reference",
    "TypeEntry": "key:1:int64 value:2:Type",
    "PositionEntry": "key:1:int64 value:2:int32",
    "SourceInfo": "line_offsets:3:*int32 positions:4:*PositionEntry",
    "CheckedExpr": "reference_map:2:*ReferenceEntry type_map:3:*TypeEntry expr:4:Expr source_info:5:SourceInfo",
}
"""Message -> its fields: name, number and type; a star repeats."""


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="fairlead/cel.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            label, number, kind = field.split(":")
            repeated = kind.startswith("*")
            scalar = _SCALARS.get(kind.lstrip("*"))
            message.field.add(
                name=label,
                number=int(number),
                label=3 if repeated else 1,
                type=scalar or 11,
                type_name=None if scalar else f".{_PACKAGE}.{kind.lstrip('*')}",
            )
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES: Final = _classes()
_URL: Final = "type.googleapis.com/cel.expr.CheckedExpr"

_OF_LISTS: Final = ("flatten", "sort", "reverse", "slice", "distinct", "@sortByAssociatedKeys")
"""Members of lists whose result is a list of the same elements, or for `flatten` of those of its elements."""

Type = tuple[Any, ...]
"""A type of CEL: its name, then its parameters."""
_PRIMITIVES: Final = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
_WELL_KNOWN: Final = {1: "any", 2: "timestamp", 3: "duration"}


class Tree:
    """A checked expression: `expr` is its root; types and chosen overloads by the identity of an expression."""

    def __init__(self, serialized: bytes, source: str) -> None:
        packed = any_pb2.Any.FromString(serialized)
        self._checked = _CLASSES["CheckedExpr"].FromString(packed.value)
        self.expr = self._checked.expr
        self.overloads: dict[int, list[str]] = {e.key: list(e.value.overload_id) for e in self._checked.reference_map}
        self.names: dict[int, str] = {e.key: e.value.name for e in self._checked.reference_map if e.value.name}
        self._types = {entry.key: entry.value for entry in self._checked.type_map}
        self._positions = {entry.key: entry.value for entry in self._checked.source_info.positions}
        self._repair(source)
        self._sharpen()
        self._next = 1 + max([each.id for each in walk(self.expr)], default=0)

    def _repair(self, source: str) -> None:
        """Make `has(a.b)` true where `a.b` is a variable: the library's checker leaves the variable there instead.

        They differ in where they stand: a selection at its dot, the macro at its bracket.
        """
        for expr in walk(self.expr):
            offset = self._positions.get(expr.id, -1)
            if kind_of(expr) == "ident" and "." in expr.ident_expr.name and source[offset : offset + 1] == "(":
                identity = expr.id
                variable, _, field = expr.ident_expr.name.rpartition(".")
                expr.Clear()
                expr.id, expr.select_expr.field, expr.select_expr.test_only = identity, field, True
                expr.select_expr.operand.id = -1 - identity
                expr.select_expr.operand.ident_expr.name = variable
                self._types[identity].Clear()
                self._types[identity].primitive = 1
                self.names.pop(identity, None)
                kept = [each for each in self._checked.reference_map if each.key != identity]
                del self._checked.reference_map[:]
                self._checked.reference_map.extend(kept)

    def _sharpen(self) -> None:
        """Give lists that functions make of lists the type that they have: the library's declarations know less of some."""
        for expr in list(walk(self.expr))[::-1]:
            if kind_of(expr) != "call" or expr.call_expr.function not in _OF_LISTS or not expr.call_expr.HasField("target"):
                continue
            found = self._types.get(expr.call_expr.target.id)
            if found is not None and expr.call_expr.function == "flatten":
                found = found.list_type.elem_type if not expr.call_expr.args and found.HasField("list_type") else None
            if found is not None and found.HasField("list_type") and type_from(found) != self.type_of(expr):
                self._types[expr.id].CopyFrom(found)

    def serialized(self) -> bytes:
        """The expression as the library reads it."""
        packed: bytes = any_pb2.Any(type_url=_URL, value=self._checked.SerializeToString()).SerializeToString()
        return packed

    def type_of(self, expr: Any) -> Type:
        """The type that the checker found; dyn if it noted none."""
        found = self._types.get(expr.id)
        return type_from(found) if found is not None else ("dyn",)

    def position(self, expr: Any) -> tuple[int, int]:
        """Line and column, both from 1; 1, 1 where none is noted."""
        offset = self._positions.get(expr.id, 0)
        starts = [0, *self._checked.source_info.line_offsets]
        line = max(index for index, start in enumerate(starts) if start <= offset)
        return line + 1, offset - starts[line] + 1

    def copied(self, expr: Any) -> Any:
        """A copy of an expression with identities of its own, and with what was noted of the old ones."""
        twin = type(expr)()
        twin.CopyFrom(expr)
        for each in walk(twin):
            old, each.id = each.id, self._identity()
            if old in self.overloads or old in self.names:
                self._note(each.id, self.overloads.get(old, []), self.names.get(old, ""))
            if old in self._types:
                self._checked.type_map.add(key=each.id).value.CopyFrom(self._types[old])
                self._types[each.id] = self._types[old]
        return twin

    def call(self, function: str, overload: str, *args: Any) -> Any:
        """A new call of a function that is not a member."""
        made = _CLASSES["Expr"](id=self._identity())
        made.call_expr.function = function
        made.call_expr.args.extend(args)
        self._note(made.id, [overload])
        return made

    def inherit(self, made: Any, expr: Any) -> None:
        """Give a new expression the type of another, in whose place it stands."""
        if expr.id in self._types:
            self._types[made.id] = self._types[expr.id]
            self._checked.type_map.add(key=made.id).value.CopyFrom(self._types[expr.id])

    def bound(self, value: Any, use: Callable[[Callable[[], Any]], Any]) -> Any:
        """What `use` makes of a value that is evaluated once: it gets a function that gives the value at each place."""
        if kind_of(value) in ("const", "ident") or value.id in self.names:
            return use(lambda: self.copied(value))
        name = f"@bound{self._identity()}"

        def again() -> Any:
            made = _CLASSES["Expr"](id=self._identity())
            made.ident_expr.name = name
            self.inherit(made, value)
            return made

        result = use(again)
        made = _CLASSES["Expr"](id=self._identity())
        loop = made.comprehension_expr
        loop.iter_var, loop.accu_var = "#unused", name
        loop.iter_range.id = self._identity()
        loop.iter_range.list_expr.SetInParent()
        loop.accu_init.CopyFrom(value)
        loop.loop_condition.id = self._identity()
        loop.loop_condition.const_expr.bool_value = False
        loop.loop_step.CopyFrom(again())
        loop.result.CopyFrom(result)
        return made

    def named(self, name: str) -> Any:
        """A new mention of a type."""
        made = _CLASSES["Expr"](id=self._identity())
        made.ident_expr.name = name
        self._note(made.id, [], name)
        return made

    def integer(self, value: int) -> Any:
        """A new constant."""
        made = _CLASSES["Expr"](id=self._identity())
        made.const_expr.int64_value = value
        return made

    def message(self, name: str, field: str, text: str) -> Any:
        """A new message with one text in it."""
        made = _CLASSES["Expr"](id=self._identity())
        made.struct_expr.message_name = name
        entry = made.struct_expr.entries.add(id=self._identity(), field_key=field)
        entry.value.id = self._identity()
        entry.value.const_expr.string_value = text
        self._note(made.id, [], name)
        return made

    def empty_list(self) -> Any:
        """A new list without elements."""
        made = _CLASSES["Expr"](id=self._identity())
        made.list_expr.SetInParent()
        return made

    def empty_map(self) -> Any:
        """A new map without entries."""
        made = _CLASSES["Expr"](id=self._identity())
        made.struct_expr.SetInParent()
        return made

    def select(self, operand: Any, field: str, *, test_only: bool) -> Any:
        """A new selection of a field."""
        made = _CLASSES["Expr"](id=self._identity())
        made.select_expr.operand.CopyFrom(operand)
        made.select_expr.field = field
        made.select_expr.test_only = test_only
        return made

    def _identity(self) -> int:
        self._next += 1
        return self._next - 1

    def _note(self, identity: int, overloads: list[str], name: str = "") -> None:
        noted = self._checked.reference_map.add(key=identity).value
        noted.overload_id.extend(overloads)
        self.overloads[identity] = overloads
        if name:
            noted.name = self.names[identity] = name


def kind_of(expr: Any) -> str:
    """What an expression is: const, ident, select, call, list, struct or comprehension."""
    for field, _ in expr.ListFields():
        if field.name != "id":
            return str(field.name.removesuffix("_expr"))
    return "none"


def children(expr: Any) -> list[Any]:
    """The expressions that an expression consists of, in the order in which they are written."""
    kind = kind_of(expr)
    if kind == "select":
        return [expr.select_expr.operand]
    if kind == "call":
        call = expr.call_expr
        return [*([call.target] if call.HasField("target") else []), *call.args]
    if kind == "list":
        return list(expr.list_expr.elements)
    if kind == "struct":
        return [each for entry in expr.struct_expr.entries for each in (*_keys(entry), entry.value)]
    if kind == "comprehension":
        made = expr.comprehension_expr
        return [made.iter_range, made.accu_init, made.loop_condition, made.loop_step, made.result]
    return []


def _keys(entry: Any) -> list[Any]:
    return [entry.map_key] if entry.HasField("map_key") else []


def walk(expr: Any) -> Iterator[Any]:
    """An expression and all those in it, each before its parts."""
    pending = [expr]
    while pending:
        each = pending.pop()
        yield each
        pending.extend(reversed(children(each)))


def type_from(found: Any) -> Type:  # noqa: PLR0911 - one for each form of a type
    """The tuple of a type in protobuf."""
    fields = found.ListFields()
    if not fields:
        return ("dyn",)
    name, value = fields[0][0].name, fields[0][1]
    match name:
        case "primitive":
            return (_PRIMITIVES.get(value, "dyn"),)
        case "well_known":
            return (_WELL_KNOWN.get(value, "dyn"),)
        case "wrapper":
            return ("wrapper", (_PRIMITIVES.get(value, "dyn"),))
        case "list_type":
            return ("list", type_from(value.elem_type))
        case "map_type":
            return ("map", type_from(value.key_type), type_from(value.value_type))
        case "message_type":
            return (value,)
        case "abstract_type":
            return (value.name, *(type_from(each) for each in value.parameter_types))
        case "type":
            return ("type", type_from(value))
        case _:
            return (name,)
