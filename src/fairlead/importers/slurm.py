"""Slurm: accounts become queues, QOS become classes of service.

Read are what `sacctmgr dump CLUSTER` writes (lines such as `Account - 'vision':Fairshare=10:GrpTRES=gres/gpu=64`, below
their `Parent - 'root'`), and what `sacctmgr -P show assoc` and `sacctmgr -P show qos` print (a header and lines of columns
parted by `|`; `show assoc tree` indents accounts below their parents). The formats are recognised by themselves.
"""

from __future__ import annotations

import re
from typing import Any

from fairlead.importers.base import Imported, ImportFailed

_LINE = re.compile(r"^(Cluster|Parent|Account|User)\s+-\s+'?([^':]+)'?(?::(.*))?$")
_TRES = {"cpu": "cpu", "mem": "memory", "gres/gpu": "nvidia.com/gpu"}
_SIZES = {"K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti", "P": "Pi"}
_LEAST_PRIORITY, _MOST_PRIORITY = -2_000_000_000, 1_000_000_000
_ALSO = {
    "share": "fairshare",
    "grpsubmit": "grpsubmitjobs",
    "maxsubmit": "maxsubmitjobs",
    "defqos": "defaultqos",
    "parname": "parentname",
    "maxtresperuser": "maxtrespu",
    "maxjobsperuser": "maxjobspu",
    "maxsubmitjobsperuser": "maxsubmitpu",
    "maxwalldurationperjob": "maxwall",
}
"""Names that Slurm's commands have for one field."""


def read(texts: list[str]) -> Imported:
    """Our manifests for Slurm's accounts and QOS. Raises `ImportFailed`."""
    made = Imported()
    for text in texts:
        lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if not lines:
            continue
        header = [_known_as(each) for each in lines[0].split("|")]
        if "|" in lines[0] and "account" in header:
            _make(made, _associations(made, _rows(header, lines[1:])))
        elif "|" in lines[0] and "name" in header:
            for row in _rows(header, lines[1:]):
                if row.get("name", "").strip():
                    _one_qos(made, {field: value.strip() for field, value in row.items()})
        elif any(_LINE.match(line.strip()) for line in lines):
            _make(made, _dumped(made, lines))
        else:
            raise ImportFailed("this is not output of `sacctmgr dump`, `sacctmgr -P show assoc` or `sacctmgr -P show qos`")
    return made


def _known_as(field: str) -> str:
    plain = field.replace(" ", "").lower()
    return _ALSO.get(plain, plain)


def _rows(header: list[str], lines: list[str]) -> list[dict[str, str]]:
    """The lines of a table by column; an account's name is still indented."""
    return [{name: value for name, value in zip(header, line.split("|"), strict=False) if name} for line in lines]


# -- accounts ----------------------------------------------------------------------------------


class _Account:
    def __init__(self, name: str, parent: str, fields: dict[str, str]) -> None:
        self.name, self.parent, self.fields = name, parent, fields
        self.users: dict[str, dict[str, str]] = {}


def _dumped(made: Imported, lines: list[str]) -> dict[str, _Account]:
    """Accounts by name, out of a dump."""
    accounts: dict[str, _Account] = {}
    parent = "root"
    for line in lines:
        found = _LINE.match(line.strip())
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
    return accounts


def _associations(made: Imported, rows: list[dict[str, str]]) -> dict[str, _Account]:
    """Accounts by name, out of a table of associations."""
    accounts: dict[str, _Account] = {}
    clusters: dict[str, str] = {}
    above: list[tuple[int, str]] = []  # how far in they are indented, and their names
    placed = False  # whether any row has a parent or an indentation
    for row in rows:
        text = row.pop("account", "")
        name, depth = text.strip(), len(text) - len(text.lstrip())
        user, cluster = row.pop("user", "").strip(), row.pop("cluster", "").strip()
        fields = {field: value.strip() for field, value in row.items() if value.strip()}
        parent = fields.pop("parentname", "")
        if not name or clusters.setdefault(name, cluster) != cluster:
            made.note(f"Account/{name}", "Cluster", f"{cluster!r} also has an account of this name, which is left out")
        elif user:
            users = accounts[name].users if name in accounts else {}
            if fields.get("partition"):
                made.note(f"Account/{name}", "Partition", f"limits of {user!r} in this partition are not carried over")
                users.setdefault(user, {})
            else:
                users[user] = fields
        else:
            while above and above[-1][0] >= depth:
                above.pop()
            parent = parent or (above[-1][1] if above else "")
            above.append((depth, name))
            placed = placed or bool(parent)
            if name != "root":
                accounts[name] = _Account(name, "" if parent == "root" else parent, fields)
    if len(accounts) > 1 and not placed:
        made.note("sacctmgr show assoc", "ParentName", "is missing: all queues get no parent. Print the table with `tree`")
    return accounts


def _make(made: Imported, accounts: dict[str, _Account]) -> None:
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
            latest = _known_as(name)
            found[latest] = value.strip().strip("'")
    return found


def _account(made: Imported, account: _Account, accounts: dict[str, _Account]) -> None:
    about, fields = f"Account/{account.name}", dict(account.fields)
    limits = _tres(made, about, "GrpTRES", fields.pop("grptres", ""))
    share = fields.pop("fairshare", "")
    weight = int(share) if share.isdigit() else None
    if share and weight is None:
        made.note(about, "Fairshare", f"{share!r} is not a number: the queue gets no weight")
    resources = []
    for resource in sorted(set(limits) | ({"nvidia.com/gpu"} if weight is not None else set())):
        entry: dict[str, Any] = {"name": resource}
        if resource in limits:
            entry["limit"] = limits[resource]
        if weight is not None:
            entry["weight"] = weight
        resources.append(entry)
    jobs = _counts(fields.pop("grpjobs", ""), fields.pop("grpsubmitjobs", ""))
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
        made.note(about, "users", "may use its child queues only if those name them")
    for field in sorted(set(fields) - _KNOWN_FOR_ACCOUNTS):
        made.note(about, field, f"{fields[field]!r} is not carried over")
    _note_users(made, about, account)
    allowed = fields.get("qos") or fields.get("defaultqos")
    if allowed:
        made.note(about, "QOS", f"{allowed!r}: name the classes in the queue's serviceClasses once the QOS are imported")


_KNOWN_FOR_ACCOUNTS = {"description", "organization", "qos", "defaultqos", "maxjobs", "maxsubmitjobs", "priority", "coordinators"}
_KNOWN_FOR_USERS = {"maxjobs", "maxsubmitjobs", "grptres", "fairshare", "qos", "defaultqos", "defaultaccount", "adminlevel"}
"""Fields that are noted elsewhere, and fields without a meaning for queues."""


def _note_users(made: Imported, about: str, account: _Account) -> None:
    """What single users have beyond limits: all users of a queue are alike here."""
    shares = {fields["fairshare"] for fields in account.users.values() if "fairshare" in fields} - {"parent"}
    if len(shares) > 1:
        made.note(about, "Fairshare", "differs between its users; users of a queue have equal shares")
    for field in sorted({field for fields in account.users.values() for field in fields} - _KNOWN_FOR_USERS):
        owners = ", ".join(sorted(user for user, fields in account.users.items() if field in fields))
        made.note(about, field, f"of {owners} is not carried over")
    if any(fields.get("qos") for fields in account.users.values()):
        made.note(about, "QOS", "of users: name the users in the classes of service that they may use")


def _per_user(made: Imported, about: str, account: _Account) -> dict[str, Any]:
    """The limits that all of its users share: those of the account, else the same ones of each user."""
    found = _counts(account.fields.get("maxjobs", ""), account.fields.get("maxsubmitjobs", ""))
    for field, ours in (("maxjobs", "running"), ("maxsubmitjobs", "submitted")):
        given = {fields[field] for fields in account.users.values() if field in fields}
        if len(given) == 1 and len(account.users) == sum(field in fields for fields in account.users.values()):
            value = given.pop()
            if value.isdigit():
                found.setdefault(ours, int(value))
        elif given:
            made.note(about, field, "differs between its users; all users of a queue have the same limits")
    grouped = [_tres(made, about, "GrpTRES", fields["grptres"]) for fields in account.users.values() if "grptres" in fields]
    if grouped and len(grouped) == len(account.users) and all(each == grouped[0] for each in grouped):
        found["resources"] = grouped[0]
    elif grouped:
        made.note(about, "GrpTRES", "differs between its users; all users of a queue have the same limits")
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
                made.note(about, field, f"{part!r} is not an amount of memory")
        elif value.isdigit():
            found[resource] = int(value)
        else:
            made.note(about, field, f"{part!r} is not a number")
    return found


# -- QOS ---------------------------------------------------------------------------------------

_MODES = {"requeue": "Requeue", "suspend": "Suspend", "gang": "Suspend", "off": "Never"}
_KNOWN_FOR_QOS = {"name", "id", "description", "priority", "preemptmode", "preemptexempttime", "gracetime", "maxwall"}
_OF_QUEUES = {
    "grptres": "set limits of queues instead",
    "maxtrespu": "set perUser of queues instead",
    "maxjobspu": "set perUser of queues instead",
    "maxsubmitpu": "set perUser of queues instead",
    "grpjobs": "set limits of queues instead",
    "grpsubmitjobs": "set limits of queues instead",
    "usagefactor": "usage counts the same in all classes",
    "preempt": "priority and preemption.scope decide which jobs a class may preempt",
    "flags": "flags are not supported",
}


def _one_qos(made: Imported, fields: dict[str, str]) -> None:
    name = fields["name"]
    about = f"QOS/{name}"
    priority = int(fields["priority"]) if fields.get("priority", "").lstrip("-").isdigit() else 0
    value = max(_LEAST_PRIORITY, min(_MOST_PRIORITY, priority))
    if value != priority:
        made.note(about, "Priority", f"{priority} becomes {value}: the limit of a PriorityClass")
    made.add_priority(f"slurm-{name}", value, about)
    mode = fields.get("preemptmode", "").lower()
    preemption: dict[str, Any] = {"mode": _MODES.get(mode, "Requeue")}
    if mode == "cancel":
        made.note(about, "PreemptMode", "cancel: preempted jobs are requeued here")
    elif mode and mode not in _MODES and mode != "cluster":
        made.note(about, "PreemptMode", f"{mode!r} is not known: preempted jobs are requeued here")
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
    for field, given in fields.items():
        if field in _KNOWN_FOR_QOS or not given or given.strip("0:.") == "":
            continue
        if not (field == "usagefactor" and given.strip("0") in ("1", "1.")):
            made.note(about, field, f"{given!r}: {_OF_QUEUES.get(field, 'is not carried over')}")


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
