"""Reads a Containerfile: the instructions that ours uses, and no others."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_CONFIGURES = ("ENV", "USER", "ENTRYPOINT")


@dataclass(frozen=True)
class Step:
    """One instruction: its word, and its arguments as they are written."""

    word: str
    text: str


@dataclass(frozen=True)
class Copied:
    """One `COPY --from` of the image: a layer of it."""

    stage: str
    source: str
    target: str


@dataclass(frozen=True)
class Stage:
    """One stage. parent: the stage, or the image, that it begins with."""

    name: str
    parent: str
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Containerfile:
    """stages: all but the last one, by name. layers: what the last one copies. environment, user, entry: of its configuration."""

    stages: dict[str, Stage]
    layers: list[Copied]
    environment: list[str]
    user: str
    entry: list[str]


def read(text: str) -> Containerfile:
    """Read it. The last stage begins with nothing, copies from the others, and configures."""
    stages: list[Stage] = []
    for step in _steps(text):
        if step.word == "FROM":
            parent, _, name = step.text.partition(" AS ")
            stages.append(Stage(name, parent))
        else:
            stages[-1].steps.append(step)
    *others, last = stages
    for stage in others:
        _refuse_others(stage, ("RUN", "COPY", "WORKDIR"))
    _refuse_others(last, ("COPY", *_CONFIGURES))
    if last.parent != "scratch":
        raise ValueError("the image begins with another one")
    found = {word: [step.text for step in last.steps if step.word == word] for word in _CONFIGURES}
    [user], [entry] = found["USER"], found["ENTRYPOINT"]
    layers = [_copied(step.text) for step in last.steps if step.word == "COPY"]
    environment = [pair for text in found["ENV"] for pair in text.split()]
    return Containerfile({stage.name: stage for stage in others}, layers, environment, user, json.loads(entry))


def _steps(text: str) -> list[Step]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Step(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def _refuse_others(stage: Stage, known: tuple[str, ...]) -> None:
    for step in stage.steps:
        if step.word not in known:
            raise ValueError(f"{step.word} is not known in stage {stage.name or 'last'!r}")


def _copied(text: str) -> Copied:
    match = re.fullmatch(r"--from=(\w+) (/\S*) (/\S*)", text)
    if match is None:
        raise ValueError(f"not a copy from another stage: {text}")
    return Copied(*match.groups())
