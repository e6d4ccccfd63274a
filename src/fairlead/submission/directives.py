"""`#SBATCH` and `#FAIRLEAD` lines of a script: what a job asks for.

Both take sbatch's options; `#FAIRLEAD` also those that Slurm has no word for (image, env, checkpoint, restarts, ttl). As for
sbatch, they end at the first line that is neither a comment nor empty, and the command line goes before them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from difflib import get_close_matches
from fractions import Fraction
from typing import NamedTuple

import msgspec

from fairlead.api import spans
from fairlead.api.quantity import QuantityError
from fairlead.submission.hostlists import HostlistError, hosts
from fairlead.submission.licenses import LicenseError, licenses, of_each
from fairlead.submission.options import ALTERNATIVES, COUNTS, DEVICES, FLAGS, KNOWN, MEMORY, OF_SBATCH, OURS, SAME, SHORT
from fairlead.submission.sizes import SizeError, Sizes, member, shown

_MARK = re.compile(r"#(SBATCH|FAIRLEAD)(?=[\s-])(.*)")
_AMOUNT = re.compile(r"(gpu|cpu|core|task|node|mem|gres|tres|socket|thread)s?", re.IGNORECASE)
"""What names that sbatch does not have must not contain: they would be left out, and with them what was asked for."""
_ALIKE = 0.8
"""From which likeness on an unknown option is taken for a mistyped one that would be read."""
_MOST_STEPS = 10_000
_PART_OF_ARRAY = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_BYTES = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_UNLIMITED = "without --time, the limit of its class of service counts, or there is none"
_WHEN = ("afterok", "afterany", "afternotok", "aftercorr", "singleton")


class DirectiveError(ValueError):
    """An invalid line; the message names the line and the remedy."""


class Asked(msgspec.Struct):
    """What a job asks for. gpus, cpus, memory: for each member; time: as `1h30m`; left_out: what has no meaning here, and why.

    on: names of nodes, one for each member, if any are named; not_on: of those where none may be. shared: what each member takes
    of what nodes share.
    """

    name: str = ""
    nodes: int = 1
    gpus: int = 0
    gpu_model: str = ""
    cpus: str = ""
    memory: str = ""
    time: str = ""
    array: str = ""
    parallelism: int | None = None
    held: bool = False
    dependencies: list[tuple[str, str]] = []
    queue: str = ""
    service_class: str = ""
    directory: str = ""
    image: str = ""
    env: dict[str, str] = {}
    checkpoint: str = ""
    restarts: int | None = None
    ttl: str = ""
    on: list[str] = []
    not_on: list[str] = []
    left_out: list[str] = []
    shared: dict[str, int] = {}


def options_of(script: str) -> list[tuple[str, str, str]]:
    """(option, value, where) of the lines at the head of a script. Raises `DirectiveError`."""
    options: list[tuple[str, str, str]] = []
    for number, line in enumerate(script.splitlines(), 1):
        found = _MARK.match(line)
        if found is not None:
            options += _options(found[2], f"line {number}", ours=found[1] == "FAIRLEAD")
        elif line.strip() and not line.strip().startswith("#"):
            break
    return options


def _options(text: str, where: str, *, ours: bool) -> list[tuple[str, str, str]]:
    """(option, value, where) of one line."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise DirectiveError(f"{where}: {text!r} cannot be read: {error}") from error
    found: list[tuple[str, str, str]] = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _whole(name, where)
        elif word.startswith("-") and len(word) > 1:
            name, equals, value = SHORT.get(word[1], word[1]), word[2:], word[2:].removeprefix("=")
        else:
            raise DirectiveError(f"{where}: {word!r} is not an option: write --name=value")
        foreign = name not in OF_SBATCH and name not in OURS and name not in SAME
        if not equals and foreign:  # of a plugin: whether it stands alone is not known
            value = words.pop(0) if words and not words[0].startswith("-") else ""
        elif not equals and name not in FLAGS:
            if not words:
                raise DirectiveError(f"{where}: --{name} needs a value")
            value = words.pop(0)
        if name in OURS and not ours:
            raise DirectiveError(f"{where}: --{name} is not an option of sbatch: write it in a #FAIRLEAD line")
        found.append((name, value, where))
    return found


def _whole(name: str, where: str) -> str:
    """An option's name; as for sbatch, the beginning will do where no other begins so. Raises `DirectiveError`."""
    if name in OF_SBATCH or name in OURS or name in SAME:
        return name
    begin = [each for each in OF_SBATCH if each.startswith(name)]
    if len(begin) == 1:
        return begin[0]
    if begin:
        raise DirectiveError(f"{where}: --{name} may be {', '.join(f'--{each}' for each in begin)}: write it whole")
    nearest = get_close_matches(name, sorted(KNOWN | OURS | SAME.keys()), 1, _ALIKE)
    if nearest:
        raise DirectiveError(f"{where}: --{name} is not an option of sbatch: correct it, to --{nearest[0]} perhaps")
    if _AMOUNT.search(name):
        raise DirectiveError(f"{where}: --{name} is not an option of sbatch: correct or remove it")
    return name


class _Option(NamedTuple):
    """One option as it was given. name: of those that mean the same, the one that the table knows."""

    name: str
    given: str
    value: str
    where: str

    def number(self, text: str, least: int = 0) -> int:
        return _number(text, self.name, self.where, least)


class _Reading:
    """What the options read so far ask for. models: of GPUs, by the option that names them; most_nodes: of a range of nodes."""

    def __init__(self) -> None:
        self.made = Asked(dependencies=[], env={}, left_out=[], shared={})
        self.sizes = Sizes()
        self.models: dict[str, str] = {}
        self.most_nodes = 0

    def take(self, option: _Option) -> None:
        """Raises `DirectiveError`."""
        if option.name in ALTERNATIVES:
            raise DirectiveError(f"{option.where}: --{option.given}: {ALTERNATIVES[option.name]}")
        if option.name not in KNOWN and option.name not in OURS:
            self.made.left_out.append(f"{option.where}: --{option.given} has no meaning here")
        elif (handler := _HANDLERS.get(option.name)) is not None:
            handler(self, option)


_Handler = Callable[[_Reading, _Option], None]


def _kept(field: str, read: Callable[[_Option], object] = lambda option: option.value) -> _Handler:
    """An option that is a field of what is asked for."""
    return lambda reading, option: setattr(reading.made, field, read(option))


def _sized(field: str, read: Callable[[_Option], object]) -> _Handler:
    """An option that is an amount."""
    return lambda reading, option: setattr(reading.sizes, field, read(option))


def _devices(field: str) -> _Handler:
    def take(reading: _Reading, option: _Option) -> None:
        reading.models[field], amount = _gpus(option.value, option.name, option.where)
        setattr(reading.sizes, field, amount)

    return take


def _refused(why: str) -> _Handler:
    def take(_reading: _Reading, option: _Option) -> None:
        raise DirectiveError(f"{option.where}: --{option.name}: {why}")

    return take


def _printed(reading: _Reading, option: _Option) -> None:
    reading.made.left_out.append(f"{option.where}: --{option.given} has no effect: the output of members is in their logs")


def _nodes(reading: _Reading, option: _Option) -> None:
    least, _, most = option.value.partition("-")
    reading.sizes.nodes = option.number(least, 1)
    reading.most_nodes = option.number(most, 1) if most else reading.sizes.nodes


def _begin(_reading: _Reading, option: _Option) -> None:
    if option.value.lower() != "now":
        raise DirectiveError(
            f"{option.where}: --begin: start times are not supported. Submit the job at that time (cron, at), or submit it with "
            "--hold and release it then"
        )


def _gres(reading: _Reading, option: _Option) -> None:
    listed = [re.sub("^gres[:/]", "", each) for each in option.value.split(",")]
    others = [each for each in listed if not re.fullmatch("gpu(:.*)?", each)]
    ours = [each.partition(":")[2] or "1" for each in listed if each not in others]
    unknown = [each for each in others if each not in ("", "none")]
    for each in unknown:
        if re.match("shard|mps", each, re.IGNORECASE):
            why = "parts of GPUs: submit an AIJob with the annotation fairlead.dev/gpu-fraction in its template"
            raise DirectiveError(f"{option.where}: --gres={each}: {why}")
        if re.search("gpu", each, re.IGNORECASE):
            raise DirectiveError(f"{option.where}: --gres={each} cannot be read: write gpu:N or gpu:MODEL:N")
    reading.made.left_out += [f"{option.where}: --gres={each}: only gpu is supported" for each in unknown]
    if ours:
        reading.models["gpus_per_node"], reading.sizes.gpus_per_node = _gpus(",".join(ours), option.name, option.where)
    elif "none" in others:
        reading.models["gpus_per_node"], reading.sizes.gpus_per_node = "", None


def _array(reading: _Reading, option: _Option) -> None:
    indexes, _, at_once = option.value.partition("%")
    reading.made.array = ",".join(_indexes(part, option.where) for part in indexes.split(","))
    reading.made.parallelism = option.number(at_once, 1) if at_once else None


def _indexes(part: str, where: str) -> str:
    """The indexes of an array as an AIJob has them, of an index, `FIRST-LAST` or `FIRST-LAST:STEP`."""
    found = _PART_OF_ARRAY.fullmatch(part)
    if found is None:
        raise DirectiveError(f"{where}: --array: {part!r} is not an index or a range such as 3, 0-9 or 0-9:3")
    first, last, step = (int(each) if each is not None else None for each in found.groups())
    if last is None:
        return part
    if last < (first or 0):
        raise DirectiveError(f"{where}: --array: {part!r} ends before it begins")
    if step is None:
        return part
    if not step or (last - (first or 0)) // step >= _MOST_STEPS:
        raise DirectiveError(f"{where}: --array: {part!r}: its step is at least 1, and gives at most {_MOST_STEPS} elements")
    return ",".join(map(str, range(first or 0, last + 1, step)))


def _variables(reading: _Reading, option: _Option) -> None:
    reading.made.env |= _environment(option.value, option.where, reading.made.left_out)


_HANDLERS: dict[str, _Handler] = {
    "output": _printed,
    "error": _printed,
    "job-name": _kept("name", lambda option: label(option.value)),
    "nodes": _nodes,
    **{name: _sized(field, lambda option: option.number(option.value, 1)) for name, field in COUNTS.items()},
    **{name: _devices(field) for name, field in DEVICES.items()},
    **{name: _sized(field, lambda option: _memory(option.value, option.name, option.where)) for name, field in MEMORY.items()},
    "exclusive": _refused("whole nodes cannot be requested: request their GPUs (--gpus-per-node) or CPUs"),
    "hold": _kept("held", lambda _: True),
    "nodelist": _kept("on", lambda option: _hosts(option.value, option.name, option.where)),
    "exclude": _kept("not_on", lambda option: _hosts(option.value, option.name, option.where)),
    "begin": _begin,
    "gres": _gres,
    "time": _kept("time", lambda option: duration(option.value, option.where)),
    "array": _array,
    "dependency": _kept("dependencies", lambda option: _dependencies(option.value, option.where)),
    "partition": _kept("queue"),
    "qos": _kept("service_class"),
    "chdir": _kept("directory"),
    "image": _kept("image"),
    "env": _variables,
    "export": _variables,
    "checkpoint": _kept("checkpoint"),
    "restarts": _kept("restarts", lambda option: option.number(option.value)),
    "requeue": _kept("restarts", lambda _: None),
    "no-requeue": _kept("restarts", lambda _: 0),
    "licenses": _kept("shared", lambda option: _licenses(option.value, option.where)),
    "ttl": _kept("ttl", lambda option: duration(option.value, option.where)),
}


def asked(options: list[tuple[str, str, str]]) -> Asked:
    """What options, given one after the other, ask for; the last of a kind holds. Raises `DirectiveError`."""
    reading = _Reading()
    for given, value, where in options:
        reading.take(_Option(SAME.get(given, given), given, value, where))
    made, sizes = reading.made, reading.sizes
    if made.on and (sizes.nodes is None or sizes.nodes < len(made.on) <= reading.most_nodes):
        sizes.nodes = len(made.on)  # as many as needed to contain them all
    try:
        each = member(sizes)
    except SizeError as error:
        raise DirectiveError(str(error)) from error
    _check_hosts(made, each.count)
    kinds = {model for model in reading.models.values() if model}
    if len(kinds) > 1:
        raise DirectiveError(
            f"GPUs of several models are requested ({', '.join(sorted(kinds))}), and members are alike: give one"
        )
    made.gpu_model = next(iter(kinds), "")
    made.nodes, made.gpus = each.count, each.gpus
    made.cpus = str(each.cpus) if each.cpus is not None else ""
    made.memory = shown(each.memory) if each.memory is not None else ""
    made.left_out += each.notes
    try:
        made.shared = of_each(made.shared, each.count)
    except LicenseError as error:
        raise DirectiveError(f"--licenses: {error}") from error
    return made


def _licenses(text: str, where: str) -> dict[str, int]:
    try:
        return licenses(text)
    except LicenseError as error:
        raise DirectiveError(f"{where}: --licenses: {error}") from error


def _hosts(text: str, name: str, where: str) -> list[str]:
    try:
        return hosts(text)
    except HostlistError as error:
        raise DirectiveError(f"{where}: --{name}: {error}") from error


def _check_hosts(made: Asked, count: int) -> None:
    """Members are alike, so either all of them are on nodes that are named, one on each, or none has to be."""
    both = [each for each in made.on if each in set(made.not_on)]
    if both:
        raise DirectiveError(f"--nodelist and --exclude both name {both[0]}")
    named = len(made.on)
    if named and count < named:
        raise DirectiveError(f"--nodelist names {named} nodes and the job has {count}: give --nodes={named}, or name fewer")
    if named and count > named:
        raise DirectiveError(
            f"--nodelist names {named} nodes and the job has {count}: name all of them, or exclude the others with --exclude"
        )


def duration(text: str, where: str = "--time") -> str:
    """A time as sbatch takes it (minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS) or as Kubernetes writes it (90m)."""
    if re.fullmatch(r"([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+", text):
        _in_bounds(text, text, where)
        return text
    if text.upper() in ("UNLIMITED", "INFINITE"):
        raise DirectiveError(f"{where}: {text!r} is not a time: {_UNLIMITED}")
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        raise DirectiveError(f"{where}: {text!r} is not a time such as 90, 1:30:00, 2-12:00:00 or 36h")
    days, first, second, third = (int(part) if part is not None else None for part in found.groups())
    first = first or 0
    if days is not None:
        seconds = days * 86_400 + first * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = first * 3600 + (second or 0) * 60 + third
    else:
        seconds = first * 60 + (second or 0)
    _in_bounds(f"{seconds}s", text, where)
    return f"{seconds}s"


def _in_bounds(span: str, text: str, where: str) -> None:
    """Raises `DirectiveError` for no time, or more than a century. text: as it was given."""
    try:
        seconds = spans.seconds(span)
    except QuantityError as error:
        raise DirectiveError(f"{where}: {text[:100]!r} is longer than a century (36500d)") from error
    if not seconds:
        raise DirectiveError(f"{where}: {text!r} is an empty time: give at least one second. {_UNLIMITED.capitalize()}")


def _at(where: str, name: str) -> str:
    """Where an option stands, and which it is, once. where: a line of a script, or the option itself."""
    return where if where == f"--{name}" else f"{where}: --{name}"


def _gpus(text: str, name: str, where: str) -> tuple[str, int]:
    """(model, how many) of `[MODEL:]N`; of a model alone, as only `--gres` takes it, one."""
    if "," in text:
        raise DirectiveError(f"{_at(where, name)} {text!r}: members have GPUs of one model; give one of them")
    model, _, count = text.rpartition(":")
    if name == "gres" and not model and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", count):
        model, count = count, "1"
    return model, _number(count, name, where)


def _number(text: str, name: str, where: str, least: int = 0) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or not least <= int(text) <= 1_000_000:
        raise DirectiveError(f"{_at(where, name)} {text!r} is not a whole number from {least} to 1000000")
    return int(text)


def _memory(text: str, name: str, where: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.upper())
    if found is None:
        raise DirectiveError(f"{_at(where, name)} {text!r} is not a size such as 64G")
    amount = Fraction(found[1])
    if amount.denominator != 1:
        raise DirectiveError(f"{_at(where, name)} {text!r}: give a whole number, in a smaller unit")
    return int(amount) * _BYTES[found[2]]


def _dependencies(text: str, where: str) -> list[tuple[str, str]]:
    """(job, when) of `afterok:a:b,afterany:c`; names of jobs stand where Slurm has numbers."""
    found: list[tuple[str, str]] = []
    for part in text.split(","):
        when, *jobs = part.split(":")
        if "?" in part:
            raise DirectiveError(f"{_at(where, 'dependency')} {part!r}: alternatives are not supported; `,` requires all")
        if when not in _WHEN or (not jobs and when != "singleton") or not all(jobs):
            raise DirectiveError(
                f"{_at(where, 'dependency')} {part!r} is not one of {', '.join(_WHEN)}, with names of jobs: afterok:prepare"
            )
        found += [(job, when) for job in jobs] or [("", when)]
    return found


def _environment(text: str, where: str, left_out: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found[name] = value
        elif part not in ("NONE", "ALL", ""):
            left_out.append(f"{where}: {part!r}: the environment of this shell is not copied: give {part}=VALUE")
    return found


def label(text: str) -> str:
    """A name that Kubernetes takes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
