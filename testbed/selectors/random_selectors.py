"""Random device selectors over random devices, from seeds: operators, macros, optionals, strings, versions, quantities, mistakes.

Expressions are typed, so that most of them compile; now and then a part is of another type, or an attribute is missing. What
depends on the order of a map's keys, which is not defined, is not drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

_DOMAINS = ("gpu.example.com", "net.example.com", "resource.kubernetes.io")
_NAMES = ("model", "index", "healthy", "driverVersion", "memory", "family", "slots", "x")
_WORDS = ("a100", "H100", "fish", "", "a-b-c", "10.0.0.7", "pci0000:00", "äöü", "12", "true", "1.2.3", "A b")
_INTEGERS = ("0", "1", "2", "7", "-3", "40", "9223372036854775807", "1000000")
_VERSIONS = ("1.2.3", "0.9.0", "12.4.1-rc.1", "12.4.1-rc.2", "12.4.1", "2.0.0+build.5", "550.54.15")
_LOOSE_VERSIONS = (*_VERSIONS, "v1.2", "1", "01.2.3", "1.2", "1.2.x", "", "1.2.3-", "1.2.3-01")
_QUANTITIES = ("0", "1", "40Gi", "1536Mi", "1.5Gi", "500m", "-1", "3k", "1e3", "10Ti", "100", "0.5", "1Ki", "1024")
_LOOSE_QUANTITIES = (*_QUANTITIES, "", "1.", ".5", "+2", "1 Gi", "12XB", "1e", "Mi", "1E", "1Ei", "0.0000000001", "--1")
_PATTERNS = ("a.*", "^[a-z]+$", "[0-9]+", "(a)(b)", "^$", "[", "h|H", "\\\\d+")
_ADDRESSES = ("10.0.0.7", "::1", "fe80::1", "224.0.0.1", "127.0.0.1", "0.0.0.0", "10.0.0", "::ffff:1.2.3.4", "2001:DB8::1")  # noqa: S104 - nothing binds
_NETWORKS = ("10.0.0.0/8", "10.0.0.7/24", "fe80::/10", "0.0.0.0/0", "10.0.0.0/33", "10.0.0.0")
_URLS = ("https://a.example:8080/p/q?k=1&k=2&m=", "http://[::1]:80/x", "/only/path", "https://h/with space", "nope", "mailto:a@b")
_PARTS = ("getHost", "getHostname", "getPort", "getScheme", "getEscapedPath")
_DEEPEST = 4
PER_SEED = 10
"""Expressions of one seed, over one device."""


def cases(seed: int) -> list[dict[str, Any]]:
    """The questions of one seed, as the judge reads them."""
    draw = random.Random(seed)
    device = _device(draw)
    return [{"expression": _Maker(draw, device).expression(), **device} for _ in range(PER_SEED)]


def _device(draw: random.Random) -> dict[str, Any]:
    driver = draw.choice(_DOMAINS)
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, str] = {}
    for _ in range(draw.randrange(7)):
        kind = draw.choice(("int", "bool", "string", "version"))
        value: Any = {
            "int": int(draw.choice(_INTEGERS)),
            "bool": draw.random() < 0.5,
            "string": draw.choice(_WORDS),
            "version": draw.choice(_VERSIONS),
        }[kind]
        attributes[_qualified(draw, driver, attributes)] = {kind: value}
    for _ in range(draw.randrange(4)):
        capacity[_qualified(draw, driver, capacity)] = draw.choice(_QUANTITIES)
    device: dict[str, Any] = {"driver": driver, "attributes": attributes, "capacity": capacity}
    if draw.random() < 0.5:
        device["multiple"] = draw.random() < 0.5
    return device


def _qualified(draw: random.Random, driver: str, taken: Iterable[str]) -> str:
    """A name, with a domain or without; with the driver's domain it would be the same name twice."""
    name = draw.choice(_NAMES)
    domain = draw.choice(_DOMAINS)
    full = f"{domain}/{name}"
    short = draw.random() < 0.4 or domain == driver
    return name if short and f"{driver}/{name}" not in taken else full


class _Maker:
    """Draws the expressions of one device: mostly of what it has."""

    def __init__(self, draw: random.Random, device: dict[str, Any]) -> None:
        self._draw = draw
        self._driver = device["driver"]
        self._attributes = [(*self._split(name), next(iter(value))) for name, value in device["attributes"].items()]
        self._capacity = [self._split(name) for name in device["capacity"]]
        self._locals: list[tuple[str, str]] = []
        self._named = 0

    def expression(self) -> str:
        """One selector."""
        return self._of("bool", 0)

    def _split(self, name: str) -> tuple[str, str]:
        domain, slash, bare = name.partition("/")
        return (domain, bare) if slash else (self._driver, name)

    def _pick(self, *options: str) -> str:
        return self._draw.choice(options)

    def _of(self, kind: str, depth: int) -> str:
        draw = self._draw
        if draw.random() < 0.02:
            kind = self._pick("bool", "int", "string", "double", "quantity", "version", "words", "numbers", "dyn", "null")
        names = [name for name, its_kind in self._locals if its_kind == kind]
        if names and draw.random() < 0.5:
            return draw.choice(names)
        maker = getattr(self, f"_{kind}")
        return str(maker(depth + 1, draw.random() < 0.3 or depth >= _DEEPEST))

    # -- what a device has ----------------------------------------------------------------------------

    def _domain(self) -> str:
        text = self._pick(*_DOMAINS) if self._draw.random() < 0.9 else "no.example.com"
        return f'"{text}"'

    def _attribute(self, kind: str) -> str:
        known = [(domain, name) for domain, name, its_kind in self._attributes if its_kind == kind]
        if known and self._draw.random() < 0.85:
            domain, name = self._draw.choice(known)
            return self._reached("attributes", f'"{domain}"', name)
        return self._reached("attributes", self._domain(), self._pick(*_NAMES))

    def _reached(self, holder: str, domain: str, name: str) -> str:
        outer = f"device.{holder}[{domain}]"
        return f"{outer}.{name}" if self._draw.random() < 0.7 else f'{outer}["{name}"]'

    def _optional(self, depth: int, kind: str) -> str:
        """An optional value of a kind."""
        choice = self._draw.randrange(5)
        if choice == 0:
            return f"optional.of({self._of(kind, depth)})"
        if choice == 1:
            return f"optional.none().or(optional.of({self._of(kind, depth)}))"
        if choice == 2 and kind in ("int", "string"):
            held = "numbers" if kind == "int" else "words"
            return f"{self._of(held, depth)}[?{self._draw.randrange(4)}]"
        known = [(domain, name) for domain, name, its_kind in self._attributes if its_kind == kind]
        domain, name = self._draw.choice(known) if known and self._draw.random() < 0.7 else (self._driver, self._pick(*_NAMES))
        opening = f'device.attributes["{domain}"]' if self._draw.random() < 0.5 else f'device.attributes[?"{domain}"]'
        return f"{opening}.?{name}" if self._draw.random() < 0.5 else f'{opening}[?"{name}"]'

    # -- kinds of values -----------------------------------------------------------------------------

    def _bool(self, depth: int, simple: bool) -> str:
        of, draw = self._of, self._draw
        if simple:
            return self._pick(
                "true",
                "false",
                self._attribute("bool"),
                "device.allowMultipleAllocations",
                f"{self._domain()} in device.attributes",
            )
        options: dict[str, Callable[[], str]] = {
            "and": lambda: f"({of('bool', depth)} && {of('bool', depth)})",
            "or": lambda: f"({of('bool', depth)} || {of('bool', depth)})",
            "not": lambda: f"!({of('bool', depth)})",
            "choice": lambda: f"({of('bool', depth)} ? {of('bool', depth)} : {of('bool', depth)})",
            "compare": lambda: self._compared(depth),
            "equal": lambda: self._equal(depth),
            "semver": lambda: f"{of('version', depth)}.{self._pick('isGreaterThan', 'isLessThan')}({of('version', depth)})",
            "quantity": lambda: f"{of('quantity', depth)}.{self._pick('isGreaterThan', 'isLessThan')}({of('quantity', depth)})",
            "valid": self._valid,
            "string": lambda: f"{of('string', depth)}.{self._pick('startsWith', 'endsWith', 'contains')}({of('string', depth)})",
            "matches": lambda: f'{of("string", depth)}.matches("{self._pick(*_PATTERNS)}")',
            "in": lambda: self._in(depth),
            "has": lambda: f"has(device.{self._pick('attributes', 'capacity')}[{self._domain()}].{self._pick(*_NAMES)})",
            "has value": lambda: f"{self._optional(depth, self._pick('int', 'string', 'bool'))}.hasValue()",
            "or value": lambda: f"{self._optional(depth, 'bool')}.orValue({of('bool', depth)})",
            "macro": lambda: self._macro(depth),
            "bind": lambda: self._bind(depth),
            "sets": lambda: self._sets(depth),
            "includes": lambda: f"{self._attribute('string')}.includes({of('string', depth)})",
            "address": self._address,
            "type": lambda: f"type({of(self._pick('int', 'string', 'dyn'), depth)}) == {self._pick('int', 'string', 'bool')}",
            "sorted": lambda: f"{of(self._pick('numbers', 'words'), depth)}.isSorted()",
            "integer": lambda: f"{of('quantity', depth)}.isInteger()",
        }
        return options[draw.choice(list(options))]()

    def _compared(self, depth: int) -> str:
        kinds = self._pick("int int", "int int", "string string", "double int", "int double", "dyn int").split()
        return f"{self._of(kinds[0], depth)} {self._pick('<', '<=', '>', '>=')} {self._of(kinds[1], depth)}"

    def _equal(self, depth: int) -> str:
        kind = self._pick("int", "string", "bool", "double", "quantity", "version", "words", "numbers", "dyn")
        other = kind if self._draw.random() < 0.9 else self._pick("int", "dyn", "double")
        return f"{self._of(kind, depth)} {self._pick('==', '!=')} {self._of(other, depth)}"

    def _valid(self) -> str:
        return self._pick(
            f'isSemver("{self._pick(*_LOOSE_VERSIONS)}")',
            f'isSemver("{self._pick(*_LOOSE_VERSIONS)}", {self._pick("true", "false")})',
            f'isQuantity("{self._pick(*_LOOSE_QUANTITIES)}")',
            f'isIP("{self._pick(*_ADDRESSES)}")',
            f'isCIDR("{self._pick(*_NETWORKS)}")',
            f'isURL("{self._pick(*_URLS)}")',
        )

    def _in(self, depth: int) -> str:
        name = f'"{self._pick(*_NAMES)}"'
        return self._pick(
            f"{name} in device.attributes[{self._domain()}]",
            f"{name} in device.capacity[{self._domain()}]",
            f"{self._of('int', depth)} in {self._of('numbers', depth)}",
            f"{self._of('string', depth)} in {self._of('words', depth)}",
            f'{self._of("string", depth)} in {{"a100": 1, "fish": 2}}',
        )

    def _macro(self, depth: int) -> str:
        macro = self._pick("all", "exists", "exists_one")
        source = self._draw.randrange(4)
        if source == 0:
            variable = self._variable()
            body = self._within([(variable, "string")], depth)
            holder = self._pick("device.attributes", "device.capacity", f"device.attributes[{self._domain()}]")
            return f"{holder}.{macro}({variable}, {body})"
        kind, held = self._draw.choice((("int", "numbers"), ("string", "words")))
        if source == 1:
            index, variable = self._variable(), self._variable()
            two = self._pick("all", "exists", "existsOne")
            return (
                f"{self._of(held, depth)}.{two}({index}, {variable}, {self._within([(index, 'int'), (variable, kind)], depth)})"
            )
        variable = self._variable()
        return f"{self._of(held, depth)}.{macro}({variable}, {self._within([(variable, kind)], depth)})"

    def _bind(self, depth: int) -> str:
        kind = self._pick("int", "string", "quantity", "version", "numbers")
        variable, value = self._variable(), self._of(kind, depth)
        return f"cel.bind({variable}, {value}, {self._within([(variable, kind)], depth)})"

    def _within(self, variables: list[tuple[str, str]], depth: int, kind: str = "bool") -> str:
        self._locals += variables
        body = self._of(kind, depth)
        del self._locals[-len(variables) :]
        return body

    def _variable(self) -> str:
        self._named += 1
        return f"v{self._named}"

    def _sets(self, depth: int) -> str:
        held = self._pick("numbers", "words")
        function = self._pick("contains", "equivalent", "intersects")
        return f"sets.{function}({self._of(held, depth)}, {self._of(held, depth)})"

    def _address(self) -> str:
        questions = ("isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast")
        one, network = self._pick(*_ADDRESSES), self._pick(*_NETWORKS)
        return self._pick(
            f'ip("{one}").{self._pick(*questions)}()',
            f'ip.isCanonical("{one}")',
            f'cidr("{network}").containsIP("{one}")',
            f'cidr("{network}").containsCIDR("{self._pick(*_NETWORKS)}")',
            f'cidr("{network}").masked() == cidr("{self._pick(*_NETWORKS)}")',
            f'string(cidr("{network}").ip()) == "{one}"',
            f'cidr("{network}").prefixLength() < 9',
        )

    def _int(self, depth: int, simple: bool) -> str:
        of = self._of
        if simple:
            return self._pick(self._pick(*_INTEGERS), self._pick(*_INTEGERS), self._attribute("int"))
        options = (
            lambda: f"({of('int', depth)} {self._pick('+', '-', '*', '/', '%')} {of('int', depth)})",
            lambda: f"size({of(self._pick('string', 'words', 'numbers'), depth)})",
            lambda: f"{of('string', depth)}.size()",
            lambda: f"{of('version', depth)}.{self._pick('major', 'minor', 'patch')}()",
            lambda: f"{of('version', depth)}.compareTo({of('version', depth)})",
            lambda: f"{of('quantity', depth)}.compareTo({of('quantity', depth)})",
            lambda: f"{of('quantity', depth)}.asInteger()",
            lambda: f"sign({of('quantity', depth)})",
            lambda: f"{of('string', depth)}.{self._pick('indexOf', 'lastIndexOf')}({of('string', depth)})",
            lambda: f"{of('words', depth)}.{self._pick('indexOf', 'lastIndexOf')}({of('string', depth)})",
            lambda: f"{of('numbers', depth)}.{self._pick('min', 'max', 'sum')}()",
            lambda: f"{of('numbers', depth)}[{self._draw.randrange(3)}]",
            lambda: f"int({of(self._pick('string', 'double', 'int'), depth)})",
            lambda: f"{self._optional(depth, 'int')}.orValue({of('int', depth)})",
            lambda: f"({of('bool', depth)} ? {of('int', depth)} : {of('int', depth)})",
            lambda: f"device.{self._pick('attributes', 'capacity')}[{self._domain()}].size()",
            lambda: f"-({of('int', depth)})",
            lambda: f'ip("{self._pick(*_ADDRESSES)}").family()',
            lambda: f'url("{self._pick(*_URLS)}").getQuery().size()',
        )
        return str(self._draw.choice(options)())

    def _double(self, depth: int, simple: bool) -> str:
        if simple:
            return self._pick("0.5", "1.0", "2.0", "-3.25", "1e10")
        return self._pick(
            f"double({self._of('int', depth)})",
            f"({self._of('double', depth)} {self._pick('+', '-', '*', '/')} {self._of('double', depth)})",
            f"{self._of('quantity', depth)}.asApproximateFloat()",
        )

    def _string(self, depth: int, simple: bool) -> str:
        of = self._of
        if simple:
            return self._pick(f'"{self._pick(*_WORDS)}"', self._attribute("string"), "device.driver")
        options = (
            lambda: f"({of('string', depth)} + {of('string', depth)})",
            lambda: f"{of('string', depth)}.{self._pick('lowerAscii', 'upperAscii', 'trim')}()",
            lambda: f"{of('string', depth)}.replace({of('string', depth)}, {of('string', depth)})",
            lambda: f"{of('string', depth)}.substring({self._draw.randrange(4)})",
            lambda: f"{of('string', depth)}.substring(1, {self._draw.randrange(4)})",
            lambda: f"{of('string', depth)}.charAt({self._draw.randrange(4)})",
            lambda: f'{of("string", depth)}.find("{self._pick(*_PATTERNS)}")',
            lambda: f'{of("words", depth)}.join("{self._pick("", ",", "ab")}")',
            lambda: f"{of('words', depth)}[{self._draw.randrange(3)}]",
            lambda: f"string({of(self._pick('int', 'bool', 'string'), depth)})",
            lambda: f"{self._optional(depth, 'string')}.orValue({of('string', depth)})",
            lambda: f"({of('bool', depth)} ? {of('string', depth)} : {of('string', depth)})",
            lambda: f'"%s-%d".format([{of("string", depth)}, {of("int", depth)}])',
            lambda: (
                f'url("{self._pick(*_URLS)}").{self._pick("getHost", "getHostname", "getPort", "getScheme", "getEscapedPath")}()'
            ),
            lambda: f"strings.quote({of('string', depth)})",
        )
        return str(self._draw.choice(options)())

    def _words(self, depth: int, simple: bool) -> str:
        if simple:
            return "[" + ", ".join(f'"{self._pick(*_WORDS)}"' for _ in range(self._draw.randrange(1, 4))) + "]"
        variable = self._variable()
        options = (
            lambda: f"[{self._of('string', depth)}, {self._of('string', depth)}]",
            lambda: f'{self._of("string", depth)}.split("{self._pick("-", "", ".", "ab")}")',
            lambda: f'{self._of("string", depth)}.split("-", {self._draw.randrange(-1, 4)})',
            lambda: f'{self._of("string", depth)}.findAll("{self._pick(*_PATTERNS)}")',
            lambda: f'{self._of("string", depth)}.findAll("[a-z]", {self._draw.randrange(-1, 3)})',
            lambda: f"{self._of('words', depth)}.filter({variable}, {self._within([(variable, 'string')], depth)})",
            lambda: f"{self._of('words', depth)}.{self._pick('sort', 'reverse', 'distinct')}()",
            lambda: f"({self._of('words', depth)} + {self._of('words', depth)})",
        )
        return str(self._draw.choice(options)())

    def _numbers(self, depth: int, simple: bool) -> str:
        if simple:
            return "[" + ", ".join(self._pick(*_INTEGERS) for _ in range(self._draw.randrange(1, 4))) + "]"
        variable = self._variable()

        def within(kind: str) -> str:
            return self._within([(variable, "int")], depth, kind)

        options = (
            lambda: f"[{self._of('int', depth)}, {self._of('int', depth)}]",
            lambda: f"{self._of('numbers', depth)}.filter({variable}, {within('bool')})",
            lambda: f"{self._of('numbers', depth)}.map({variable}, {within('int')})",
            lambda: f"{self._of('numbers', depth)}.{self._pick('sort', 'reverse', 'distinct')}()",
            lambda: f"{self._of('numbers', depth)}.slice(0, {self._draw.randrange(3)})",
            lambda: f"{self._of('numbers', depth)}.sortBy({variable}, {within('int')})",
            lambda: f"lists.range({self._draw.randrange(5)})",
            lambda: f"[{self._of('numbers', depth)}, {self._of('numbers', depth)}].flatten()",
        )
        return str(self._draw.choice(options)())

    def _quantity(self, depth: int, simple: bool) -> str:
        if simple or self._draw.random() < 0.5:
            if self._capacity and self._draw.random() < 0.6:
                domain, name = self._draw.choice(self._capacity)
                return self._reached("capacity", f'"{domain}"', name)
            if self._draw.random() < 0.3:
                return self._reached("capacity", self._domain(), self._pick(*_NAMES))
            return f'quantity("{self._pick(*(_LOOSE_QUANTITIES if self._draw.random() < 0.2 else _QUANTITIES))}")'
        other = self._of(self._pick("quantity", "int"), depth)
        return f"{self._of('quantity', depth)}.{self._pick('add', 'sub')}({other})"

    def _version(self, depth: int, simple: bool) -> str:
        if self._draw.random() < 0.5:
            return self._attribute("version")
        if self._draw.random() < 0.3:
            return f'semver("{self._pick(*_LOOSE_VERSIONS)}", {self._pick("true", "false")})'
        return f'semver("{self._pick(*(_LOOSE_VERSIONS if self._draw.random() < 0.2 else _VERSIONS))}")'

    def _dyn(self, depth: int, simple: bool) -> str:
        if simple:
            return self._reached("attributes", self._domain(), self._pick(*_NAMES))
        return f"dyn({self._of(self._pick('int', 'string', 'bool', 'double'), depth)})"

    def _null(self, depth: int, simple: bool) -> str:
        return "null"
