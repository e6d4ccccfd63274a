"""Fairlead's device selectors against Kubernetes' own evaluation (`testbed/modules/cel`), case by case.

A case is an expression and a device; both sides say compile, error, true or false, and the estimated cost. Where they differ on
purpose `EXCEPTIONS` says why; docs/design/expressions.md has the same list.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from fairlead.core.dra.selectors import DeviceView, SelectorError, compile_selector
from fairlead.expressions import quantities, versions
from fairlead.expressions.environment import COSTLIEST
from testbed import build
from testbed.selectors.random_selectors import cases

JUDGE = f"k8s.io/dynamic-resource-allocation {build.KUBERNETES_VERSION.replace('v1', 'v0')}"
_BATCH = 100


class Said(msgspec.Struct, frozen=True, array_like=True):
    """A verdict, the estimated cost and the message of an error."""

    verdict: str
    estimate: int
    message: str = ""


class Exception_(msgspec.Struct, frozen=True):  # noqa: N801 - not an exception of Python
    """A difference on purpose. applies: to a question as JSON, what the judge said, and what Fairlead says."""

    name: str
    reason: str
    applies: Callable[[str, Said, Said], bool]


_DERIVED = re.compile(r"\.(add|sub)\(")
_LISTS = re.compile(r"\.(flatten|sortBy)\(")
_BOUND = re.compile(r"cel\.bind\(\w+, device\.(attributes|capacity),")
_HELD_AS_DECIMAL = re.compile(r"\.[0-9]|[0-9]m\\?\"|[PE]i|[0-9]{16}")
_COMPUTED = re.compile(r"\.(isInteger|asInteger|add|sub)\(")
EXCEPTIONS = (
    Exception_(
        "derived quantity",
        "upstream compares a quantity with the result of add or sub as with another type: the order of the operands decides",
        lambda question, judge, _: bool(_DERIVED.search(question)) and "no such overload" in judge.message,
    ),
    Exception_(
        "upstream panics",
        "cel-go panics, which it reports as an internal error, for example where a version is looked for in a constant list",
        lambda _, judge, __: judge.message.startswith("internal error:"),
    ),
    Exception_(
        "bound empty map",
        "upstream has no empty map for an absent domain where cel.bind names the attributes of a device that has none",
        lambda question, judge, _: bool(_BOUND.search(question)) and "no such key" in judge.message,
    ),
    Exception_(
        "kinds in lists",
        "upstream takes a version in a list for equal to anything, since comparing them is an error that it passes over",
        lambda question, judge, _: "] == [" in question and judge.verdict == "true",
    ),
    Exception_(
        "formatted text",
        "the library writes maps, and numbers by %e, otherwise",
        lambda question, judge, mine: ".format(" in question and {judge.verdict, mine.verdict} == {"true", "false"},
    ),
    Exception_(
        "nesting",
        "the library reads 32 levels of nesting, upstream 250",
        lambda _, __, mine: mine.verdict == "compile" and "nested deeper" in mine.message,
    ),
    Exception_(
        "iterations",
        "the library ends an evaluation after 10,000 steps of macros, upstream by its cost",
        lambda _, __, mine: mine.verdict == "error" and "Iteration budget" in mine.message,
    ),
    Exception_(
        "large values",
        "upstream joins lists when they are read, the library copies: what may build more than 250,000 parts is refused",
        lambda _, __, mine: mine.verdict == "compile" and "that the expression builds" in mine.message,
    ),
    Exception_(
        "slow calls",
        "functions in Python are slow and keep memory: what may call them more than 500 times is refused",
        lambda _, __, mine: mine.verdict == "compile" and "that are slow here" in mine.message,
    ),
    Exception_(
        "decimal quantity",
        "what upstream holds as a decimal, such as 1.5Gi, is no integer though it be whole, and add and sub change it in place",
        lambda question, _, __: bool(_COMPUTED.search(question) and _HELD_AS_DECIMAL.search(question)),
    ),
    Exception_(
        "named formats",
        "Kubernetes' functions for named formats are not supported: the expression is refused",
        lambda question, _, mine: "format." in question and mine.verdict == "compile",
    ),
    Exception_(
        "lists of lists",
        "the library knows no types of elements of what flatten and sortBy give: mistakes show when evaluated, costs are higher",
        lambda question, judge, mine: bool(_LISTS.search(question)) and "compile" in (judge.verdict, mine.verdict),
    ),
)


class Comparison(msgspec.Struct):
    """What a comparison found. verdicts: cases by what the judge said; different: without those that are listed exceptions."""

    judge: str
    cases: int = 0
    different: int = 0
    listed_exceptions: dict[str, int] = {}
    different_costs: int = 0
    verdicts: dict[str, int] = {}
    seconds: float = 0.0
    found: list[str] = []


def ask(questions: Sequence[dict[str, Any]]) -> list[Said]:
    """The judge's answers; what the API server would not store, since its cost is too high, does not compile."""
    lines = "\n".join(json.dumps(each) for each in questions)
    reply = subprocess.run([str(build.binary("cel-judge"))], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in reply.stdout.splitlines()]
    return [
        Said("compile", each["estimate"], "cost")
        if each["verdict"] != "compile" and each["estimate"] > COSTLIEST
        else Said(each["verdict"], each["estimate"], each.get("message", ""))
        for each in answers
    ]


def ours(question: dict[str, Any]) -> Said:
    """What Fairlead says."""
    try:
        selector = compile_selector(question["expression"])
    except SelectorError as error:
        return Said("compile", 0, str(error))
    try:
        return Said(str(selector.matches(device_of(question))).lower(), selector.cost)
    except SelectorError as error:
        return Said("error", selector.cost, str(error))


def device_of(question: dict[str, Any]) -> DeviceView:
    """The device of a question."""
    attributes = {name: _value(*next(iter(each.items()))) for name, each in question.get("attributes", {}).items()}
    capacity = {name: quantities.parse(text) for name, text in question.get("capacity", {}).items()}
    return DeviceView(question.get("driver", ""), attributes, capacity, bool(question.get("multiple", False)))


def _value(kind: str, value: Any) -> Any:
    return versions.parse(value) if kind == "version" else value


def compare(questions: Iterable[dict[str, Any]], answers: Iterable[Said], result: Comparison) -> None:
    """Add cases to a comparison."""
    for question, judge in zip(questions, answers, strict=True):
        mine = ours(question)
        result.cases += 1
        result.verdicts[judge.verdict] = result.verdicts.get(judge.verdict, 0) + 1
        if mine.verdict != judge.verdict:
            _note(question, judge, mine, result)
        elif judge.verdict != "compile" and mine.estimate != judge.estimate:
            result.different_costs += 1
            result.found.append(f"cost: {question['expression']}: {mine.estimate}, judge {judge.estimate}")


def _note(question: dict[str, Any], judge: Said, mine: Said, result: Comparison) -> None:
    text = json.dumps(question, ensure_ascii=False)
    listed = next((each for each in EXCEPTIONS if each.applies(text, judge, mine)), None)
    if listed is not None:
        result.listed_exceptions[listed.name] = result.listed_exceptions.get(listed.name, 0) + 1
        return
    result.different += 1
    said = f"{mine.verdict} ({mine.message}), judge {judge.verdict} ({judge.message})"
    result.found.append(f"{text}: {said}")


def run(seeds: Sequence[int], report: Callable[[int, int], None]) -> Comparison:
    """Compare the cases of these seeds. report: takes (done, total)."""
    begun = time.perf_counter()
    result = Comparison(JUDGE)
    for start in range(0, len(seeds), _BATCH):
        questions = [case for seed in seeds[start : start + _BATCH] for case in cases(seed)]
        compare(questions, ask(questions), result)
        report(min(start + _BATCH, len(seeds)), len(seeds))
    result.seconds = round(time.perf_counter() - begun, 3)
    return result
