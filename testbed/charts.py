"""The files of `charts/`, made of the objects of `fairlead.install`: for processes that run by hand, or outside of the cluster.

`python -m testbed.charts` writes them; a test compares them. `charts/system-priorities.yaml`, of tenants' namespaces, is
written by hand.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairlead.install import apis, flowcontrol, rights, roles
from fairlead.install.accounts import LEASES, PROCESSES, account
from fairlead.install.apis import Api
from fairlead.install.roles import Rule

FOLDER = Path(__file__).parents[1] / "charts"
_PEOPLE = ("view", "edit", "admin")


def files() -> dict[str, str]:
    """File -> its text."""
    visibility = _aggregated(roles.OF_VISIBILITY, apis.VISIBILITY)
    history = _aggregated(roles.OF_HISTORY, apis.HISTORY)
    metrics = [_plain(each) for each in rights.of_autoscalers()]
    heads = {
        "rbac.yaml": """
            What scheduler and operator may do, and nothing more; `fairlead install` binds it to their accounts. Bind it
            to the users or accounts that yours run as. `fairlead agent` needs no role: it is the node that it stands
            for, see docs/security.md.
        """,
        "flowcontrol.yaml": """
            API Priority and Fairness: what Fairlead asks of the API server does not wait behind what tenants ask.
            Subjects: accounts in kube-system, and users, of the processes' names; add the users that yours run as.
        """,
        "visibility.yaml": """
            The aggregated API visibility.fairlead.dev, for researchers who may not list the cluster: start the
            scheduler with --visibility-address 0.0.0.0:6443. The Service selects the scheduler's pods, of which only
            the leader is ready. The leader writes caBundle. Who may view a namespace may ask about its jobs.
        """,
        "history.yaml": """
            The aggregated API history.fairlead.dev, for researchers who may not read the database: start the operator
            with --history URL --history-address 0.0.0.0:6444. The Service selects the operator's pods, of which only
            the leader is ready. The leader writes caBundle. Who may view a namespace may ask about its jobs.
        """,
        "external-metrics.yaml": """
            The aggregated API external.metrics.k8s.io, from which HorizontalPodAutoscalers read what waits in queues:
            start the scheduler with --external-metrics-address 0.0.0.0:6445. There is one server of this API in a
            cluster: where another adapter serves it, leave this out. The Service selects the scheduler's pods, of which
            only the leader is ready. The leader writes caBundle.
        """,
    }
    parts = {
        "rbac.yaml": [text for process in PROCESSES for text in _process(process)],
        "flowcontrol.yaml": [_plain(each) for each in flowcontrol.objects(LEASES, [account(process) for process in PROCESSES])],
        "visibility.yaml": [*_served(apis.VISIBILITY), visibility],
        "history.yaml": [*_served(apis.HISTORY), history],
        "external-metrics.yaml": [*_served(apis.EXTERNAL_METRICS), *metrics],
    }
    return {file: _text(head, parts[file]) for file, head in heads.items()}


def _process(process: str) -> list[str]:
    name = account(process)
    return [
        _role(rights.role(name, ()), roles.OF_PROCESS[process]),
        _role(rights.role(name, (), LEASES), roles.of_lease(process)),
    ]


def _aggregated(rules: Sequence[Rule], api: Api) -> str:
    return _role(rights.role(api.service, (), into=_PEOPLE), rules)


def _served(api: Api) -> list[str]:
    """Service, APIService, and what its process needs beyond rbac.yaml."""
    server = f"{api.service}-server"
    service = apis.service(api, LEASES)
    service["spec"] = {"selector": {"app": account(api.process)}, **service["spec"]}
    return [
        _plain(service),
        _plain(apis.registration(api, LEASES)),
        _role(rights.role(server, ()), [roles.of_server(api.registered)]),
        _role(rights.role(server, (), LEASES), [roles.OF_SERVERS]),
    ]


def _role(role: dict[str, Any], rules: Iterable[Rule]) -> str:
    head = {key: value for key, value in role.items() if key != "rules"}
    lines = [f"# {each.why}\n{_plain([each.manifest()])}" for each in rules]
    return f"{_plain(head)}rules:\n{''.join(lines)}"


def _plain(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=None, width=140)


def _text(head: str, parts: Iterable[str]) -> str:
    comment = textwrap.fill(" ".join(head.split()), 130, initial_indent="# ", subsequent_indent="# ")
    return f"{comment}\n# Written by `make charts`.\n" + "---\n".join(parts)


def main() -> None:
    """Write them."""
    for file, text in files().items():
        (FOLDER / file).write_text(text)


if __name__ == "__main__":
    main()
