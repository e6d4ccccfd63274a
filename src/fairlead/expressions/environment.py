"""Compiles and evaluates CEL: the library, with Kubernetes' functions, checks and cost limit around it.

An expression is checked in one environment of the library, which declares types as Kubernetes does, and evaluated in another,
which has the functions' implementations: the checked syntax tree passes from one to the other. docs/design/expressions.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf.message import DecodeError

from fairlead.expressions import bounds, checks, cost, defaults, messages
from fairlead.expressions.declarations import DECLARATIONS, REPLACED
from fairlead.expressions.errors import ExpressionError
from fairlead.expressions.functions import IMPLEMENTATIONS
from fairlead.expressions.mentions import Mention, mentions
from fairlead.expressions.spans import Sizes, Span
from fairlead.expressions.tree import Tree, Type

LONGEST: Final = 10 * 1024
"""Bytes of an expression, as Kubernetes limits them."""
COSTLIEST: Final = 1_000_000
"""Kubernetes' cost limit of a device selector."""
_EXTENSIONS: Final = ("bindings", "lists", "optional", "sets", "two-var-comprehensions")
_NOT_HERE: Final = re.compile(r"\bformat\.\w+\(")
_LOCATED: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_DEEP: Final = re.compile(r"recursion (depth|limit)")
_STATUS: Final = re.compile(r"^[A-Z_]+: ")
_BARE: Final = re.compile(r" \[[A-Z_]+\]$")

__all__ = ["COSTLIEST", "LONGEST", "Environment", "ExpressionError", "Program"]


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. type: of its result; cost: the most that an evaluation may cost, in CEL's units.

    mentions: what it reads of a device; None: anything.
    """

    source: str
    type: Type
    cost: int
    mentions: tuple[Mention, ...] | None
    _expression: Any

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        """The result with these variables. Raises `ExpressionError` (evaluation) if it is an error."""
        try:
            found = self._expression.eval(data=data)
            kind = found.type()
            if kind == cel.Type.ERROR:
                raise ExpressionError("evaluation", _plain(str(found.value())))
            return _python(found)
        except (RuntimeError, ValueError, OverflowError, TypeError) as error:
            if isinstance(error, ExpressionError):
                raise
            raise ExpressionError("evaluation", _plain(str(error))) from error


def _python(value: Any) -> Any:
    """The Python value of a result, part by part: the library gives None away without counting it, which ends the interpreter."""
    kind = value.type()
    if kind == cel.Type.NULL:
        return None
    name = kind.name()
    if name.startswith("LIST"):
        return [_python(each) for each in value.value()]
    if name.startswith("MAP"):
        return {key: _python(each) for key, each in value.value().items()}
    return value.plain_value()


class Environment:
    """What expressions may mention.

    variables: name -> type in CEL's own notation, such as `map<string,dyn>`. at_run_time: types by which values are converted,
    where they differ. sizes: how large values may be, for the cost. of_devices: the rules of device selectors.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        *,
        at_run_time: Mapping[str, str] | None = None,
        sizes: Sizes | None = None,
        of_devices: bool = False,
    ) -> None:
        self._sizes = sizes or Sizes({})
        self._of_devices = of_devices
        config = cel.NewEnvConfigFromYaml(_configuration(variables))
        self._checker = cel.NewEnv(messages.POOL, config=config)
        extensions = "".join(f"- name: {name}\n" for name in (*_EXTENSIONS, "strings\n  version: 2"))
        self._runner = cel.NewEnv(
            messages.POOL,
            config=cel.NewEnvConfigFromYaml(f"name: run\nextensions:\n{extensions}"),
            variables={name: cel.Type(kind) for name, kind in {**variables, **(at_run_time or {})}.items()},
            functions=_implementations(),
        )

    def compile(self, source: str, *, costliest: int | None = COSTLIEST) -> Program:
        """The program of an expression. costliest: its highest cost; None: any.

        Raises `ExpressionError`: syntax, type, unsupported, length or cost, with the place if it is one.
        """
        size = len(source.encode(errors="replace"))
        if size > LONGEST:
            raise ExpressionError("length", f"the expression has {size} bytes, {LONGEST} are allowed")
        if not source.isprintable() and any(0xD800 <= ord(character) < 0xE000 for character in source):
            raise ExpressionError("syntax", "the expression has half of a pair of UTF-16, which is no character")
        try:
            checked = self._checker.compile(source)
        except (RuntimeError, ValueError) as error:
            raise _refused(source, str(error)) from error
        try:
            tree = Tree(checked.serialize(), source)
        except DecodeError as error:
            raise _too_deep() from error
        checks.check(tree)
        kind = tree.type_of(tree.expr)
        estimate, sizes = cost.estimate(tree, self._sizes)
        if costliest is not None:
            _check_limits(tree, sizes, estimate, costliest)
        read = mentions(tree) if self._of_devices else None
        defaults.rewrite(tree, of_devices=self._of_devices)
        try:
            expression = self._runner.deserialize(tree.serialized())
        except RuntimeError as error:
            raise _too_deep() from error
        return Program(source, kind, estimate, read, expression)


def _check_limits(tree: Tree, sizes: Mapping[int, Span], estimate: int, costliest: int) -> None:
    if estimate > costliest:
        raise ExpressionError("cost", f"the estimated cost of the expression is {estimate}, {costliest} is allowed")
    found = bounds.bounds(tree, sizes, frozenset(IMPLEMENTATIONS))
    if found.parts > bounds.BIGGEST:
        problem = f"the values that the expression builds may have {found.parts} parts, {bounds.BIGGEST} are allowed"
        raise ExpressionError("cost", problem)
    if found.calls > bounds.MOST_CALLS:
        problem = f"the expression may call functions that are slow here {found.calls} times, {bounds.MOST_CALLS} are allowed"
        raise ExpressionError("cost", problem)


def _configuration(variables: Mapping[str, str]) -> str:
    """The environment that checks, as the library reads it."""
    lines = ["name: check", "stdlib:", "  exclude_functions:", *(f'  - name: "{name}"' for name in REPLACED)]
    lines += ["extensions:", *(f"- name: {name}" for name in _EXTENSIONS)]
    lines += ["variables:"] if variables else []
    for name, kind in variables.items():
        lines += [f'- name: "{name}"', f'  type: "{kind}"']
    lines.append("functions:")
    for function, overloads in DECLARATIONS.items():
        lines += [f'- name: "{function}"', "  overloads:"]
        for identity, signature, result in overloads:
            lines += [f"  - id: {identity}", *_spelled(function, signature), f'    return: "{result}"']
    return "\n".join(lines)


def _spelled(function: str, signature: str) -> list[str]:
    """A signature; in parts where the library misreads it: an operator's angle brackets, a dot in a function's name."""
    if not function.startswith("_") and "." not in function:
        return [f'    signature: "{signature}"']
    arguments = signature.removeprefix(f"{function}(").removesuffix(")").split(",")
    return ["    args:", *(f"    - type_name: {each}" for each in arguments)]


def _implementations() -> list[Any]:
    kinds = {
        "message": cel.Type(messages.QUANTITY),
        "list": cel.Type.List(cel.Type.DYN),
        "map": cel.Type.Map(cel.Type.DYN, cel.Type.DYN),
        **{name: getattr(cel.Type, name.upper()) for name in ("bool", "int", "uint", "double", "string", "bytes")},
        **{name: getattr(cel.Type, name.upper()) for name in ("duration", "timestamp", "null")},
    }
    declared = []
    for name, overloads in IMPLEMENTATIONS.items():
        made = [
            cel.Overload(
                f"{name}_{index}",
                return_type=cel.Type.DYN,
                parameters=[kinds[each] for each in parameters],
                is_member=member,
                impl=function,
            )
            for index, (parameters, member, function) in enumerate(overloads)
        ]
        declared.append(cel.FunctionDecl(name, made))
    return declared


def _too_deep() -> ExpressionError:
    return ExpressionError("unsupported", "the expression is nested deeper than the library reads, which is 32 levels at most")


def _refused(source: str, message: str) -> ExpressionError:
    if _DEEP.search(message):
        return _too_deep()
    match = _LOCATED.search(message)
    if match is None:
        return ExpressionError("type", _plain(message))
    line, column, reported = int(match[1]), int(match[2]), match[3]
    if reported.startswith("Syntax error"):
        return ExpressionError("syntax", reported, line, column)
    if _NOT_HERE.search(source):
        return ExpressionError(
            "unsupported", f"{reported}: Kubernetes' functions for named formats are not supported", line, column
        )
    return ExpressionError("type", reported, line, column)


def _plain(message: str) -> str:
    """A message without the library's status codes."""
    return _BARE.sub("", _STATUS.sub("", message.strip()))
