"""Slurm: accounts become queues, QOS become classes of service.

Read are what `sacctmgr dump CLUSTER` writes (lines such as `Account - 'vision':Fairshare=10:GrpTRES=gres/gpu=64`, below
their `Parent - 'root'`), and what `sacctmgr -P show qos` prints (a header and lines of columns parted by `|`). The formats
are recognised by themselves.
"""

from __future__ import annotations

import re
from typing import Any

from fairlead.importers.base import Imported, ImportFailed

_LINE = re.compile(r"^(Cluster|Parent|Account|User)\s+-\s+'?([^':]+)'?(?::(.*))?$")
_TRES = {"cpu": "cpu", "mem": "memory", "gres/gpu": "nvidia.com/gpu"}
_SIZES = {"K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti", "P": "Pi"}
_LEAST_PRIORITY, _MOST_PRIORITY = -2_000_000_000, 1_000_000_000


def read(texts: list[str]) -> Imported:
    """Our manifests for Slurm's accounts and QOS. Raises `ImportFailed`."""
    made = Imported()
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if not lines:
            continue
        if "|" in lines[0] and lines[0].split("|")[0].strip().lower() == "name":
            _qos(made, lines)
        elif any(_LINE.match(line) for line in lines):
            _accounts(made, lines)
        else:
            raise ImportFailed("this is neither what `sacctmgr dump` writes nor what `sacctmgr -P show qos` prints")
    return made


# -- accounts ----------------------------------------------------------------------------------


class _Account:
    def __init__(self, name: str, parent: str, fields: dict[str, str]) -> None:
        self.name, self.parent, self.fields = name, parent, fields
        self.users: dict[str, dict[str, str]] = {}


def _accounts(made: Imported, lines: list[str]) -> None:
    accounts: dict[str, _Account] = {}
    parent = "root"
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            made.note("sacctmgr dump", "line", f"is not understood: {line[:80]!r}")
            continue
        what, name, fields = found[1], found[2].strip(), _fields(found[3] or "")
        if what == "Parent":
            parent = name
        elif what == "Account" and name != "root":
            accounts[name] = _Account(name, "" if parent == "root" else parent, fields)
        elif what == "User" and parent in accounts:
            accounts[parent].users[name] = fields
    for account in accounts.values():
        _account(made, account, accounts)


def _fields(text: str) -> dict[str, str]:
    """`A=1:B='x y'` as a mapping, names in lower case."""
    found: dict[str, str] = {}
    latest = ""
    for part in re.findall(r"(?:[^:']|'[^']*')+", text):
        if latest and found[latest].endswith("gres/gpu"):
            found[latest] += f":{part}"  # a model of a device: the colon parts no fields
            continue
        name, equals, value = part.partition("=")
        if equals:
            latest = name.strip().lower()
            found[latest] = value.strip().strip("'")
    return found


def _account(made: Imported, account: _Account, accounts: dict[str, _Account]) -> None:
    about, fields = f"Account/{account.name}", dict(account.fields)
    limits = _tres(made, about, "GrpTRES", fields.pop("grptres", ""))
    share = fields.pop("fairshare", fields.pop("share", ""))
    weight = int(share) if share.isdigit() else None
    if share and weight is None:
        made.note(about, "Fairshare", f"{share!r} is no number: the queue has no weight")
    resources = []
    for resource in sorted(set(limits) | ({"nvidia.com/gpu"} if weight is not None else set())):
        entry: dict[str, Any] = {"name": resource}
        if resource in limits:
            entry["limit"] = limits[resource]
        if weight is not None:
            entry["weight"] = weight
        resources.append(entry)
    jobs = _counts(fields.pop("grpjobs", ""), fields.pop("grpsubmitjobs", fields.pop("grpsubmit", "")))
    per_user = _per_user(made, about, account)
    spec = {
        "parent": made.named(account.parent, f"Account/{account.parent}") if account.parent in accounts else None,
        "resources": resources,
        "users": sorted(account.users),
        "perUser": per_user,
        "jobs": jobs,
    }
    made.add("Queue", account.name, spec, about)
    if account.users and any(each.parent == account.name for each in accounts.values()):
        made.note(about, "users", "may use the queues below it only if those name them")
    for field in sorted(
        set(fields) - {"description", "organization", "qos", "defaultqos", "maxjobs", "maxsubmitjobs", "maxsubmit"}
    ):
        made.note(about, field, f"{fields[field]!r} is not carried over")
    if fields.get("qos") or fields.get("defaultqos"):
        made.note(about, "QOS", "name the classes in the queue's serviceClasses once the QOS are imported")


def _per_user(made: Imported, about: str, account: _Account) -> dict[str, Any]:
    """The limits that all of its users share: those of the account, else the same ones of each user."""
    found = _counts(account.fields.get("maxjobs", ""), account.fields.get("maxsubmitjobs", account.fields.get("maxsubmit", "")))
    for field, ours in (("maxjobs", "running"), ("maxsubmitjobs", "submitted")):
        given = {fields[field] for fields in account.users.values() if field in fields}
        if len(given) == 1 and len(account.users) == sum(field in fields for fields in account.users.values()):
            value = given.pop()
            if value.isdigit():
                found.setdefault(ours, int(value))
        elif given:
            made.note(about, field, "differs between its users; here all users of a queue have the same limits")
    grouped = [_tres(made, about, "GrpTRES", fields["grptres"]) for fields in account.users.values() if "grptres" in fields]
    if grouped and len(grouped) == len(account.users) and all(each == grouped[0] for each in grouped):
        found["resources"] = grouped[0]
    elif grouped:
        made.note(about, "GrpTRES", "differs between its users; here all users of a queue have the same limits")
    return found


def _counts(running: str, submitted: str) -> dict[str, Any]:
    counts = {"running": running, "submitted": submitted}
    return {name: int(text) for name, text in counts.items() if text.isdigit()}


def _tres(made: Imported, about: str, field: str, text: str) -> dict[str, str | int]:
    """`cpu=64,mem=512G,gres/gpu=8` as amounts."""
    found: dict[str, str | int] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            continue
        plain = name.strip().lower()
        resource = _TRES.get(plain)
        if resource is None and plain.startswith("gres/gpu:"):
            made.note(about, field, f"{part!r}: limits by model of a device are not carried over")
        elif resource is None:
            made.note(about, field, f"{part!r} is not carried over")
        elif value == "-1":
            continue
        elif resource == "memory":
            number, unit = (value[:-1], value[-1].upper()) if value and value[-1].isalpha() else (value, "M")
            if number.replace(".", "", 1).isdigit() and unit in _SIZES:
                found[resource] = f"{number}{_SIZES[unit]}"
            else:
                made.note(about, field, f"{part!r} is no amount of memory")
        elif value.isdigit():
            found[resource] = int(value)
        else:
            made.note(about, field, f"{part!r} is no number")
    return found


# -- QOS ---------------------------------------------------------------------------------------

_MODES = {"requeue": "Requeue", "suspend": "Suspend", "gang": "Suspend", "off": "Never"}
_OF_QUEUES = {
    "grptres": "limits of a QOS are limits of queues here",
    "maxtrespu": "limits of users are perUser of queues here",
    "maxjobspu": "limits of users are perUser of queues here",
    "maxsubmitpu": "limits of users are perUser of queues here",
    "grpjobs": "limits of a QOS are limits of queues here",
    "grpsubmit": "limits of a QOS are limits of queues here",
    "usagefactor": "use counts the same in all classes here",
    "preempt": "whom a class may take is decided by priority and preemption.scope here",
    "flags": "flags are not known here",
}


def _qos(made: Imported, lines: list[str]) -> None:
    header = [each.strip().lower() for each in lines[0].split("|")]
    for line in lines[1:]:
        fields = {name: value.strip() for name, value in zip(header, line.split("|"), strict=False) if name}
        if fields.get("name"):
            _one_qos(made, fields)


def _one_qos(made: Imported, fields: dict[str, str]) -> None:
    name = fields["name"]
    about = f"QOS/{name}"
    priority = int(fields["priority"]) if fields.get("priority", "").lstrip("-").isdigit() else 0
    value = max(_LEAST_PRIORITY, min(_MOST_PRIORITY, priority))
    if value != priority:
        made.note(about, "Priority", f"{priority} becomes {value}: a PriorityClass goes no further")
    made.add_priority(f"slurm-{name}", value, about)
    mode = fields.get("preemptmode", "").lower()
    preemption: dict[str, Any] = {"mode": _MODES.get(mode, "Requeue")}
    if mode == "cancel":
        made.note(about, "PreemptMode", "cancel: here what falls waits again")
    elif mode and mode not in _MODES and mode != "cluster":
        made.note(about, "PreemptMode", f"{mode!r} is not known here: what falls waits again")
    for field, ours in (("preemptexempttime", "minRuntime"), ("gracetime", "gracePeriod")):
        seconds = _seconds(fields.get(field, ""))
        if seconds:
            preemption[ours] = f"{seconds}s"
    longest = _seconds(fields.get("maxwall", ""))
    spec: dict[str, Any] = {
        "priorityClassName": made.named(f"slurm-{name}", about),
        "preemption": preemption,
        "timeLimit": {"max": f"{longest}s"} if longest else None,
    }
    made.add("ServiceClass", name, spec, about)
    for field, message in _OF_QUEUES.items():
        given = fields.get(field, "")
        if given and not (field == "usagefactor" and given.strip("0") in ("1", "1.")):
            made.note(about, field, f"{given!r}: {message}")


def _seconds(text: str) -> int:
    """`days-hours:minutes:seconds`, `minutes:seconds`, plain seconds; 0 for nothing."""
    found = re.match(r"^(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)$", text.strip())
    if found is None:
        return 0
    days, first, second, last = found.groups()
    if first is not None and second is None:
        hours, minutes, seconds = "0", first, last
    else:
        hours, minutes, seconds = first or "0", second or "0", last
    return int(days or 0) * 86_400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
