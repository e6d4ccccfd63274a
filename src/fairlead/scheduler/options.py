"""How a scheduler is to run. It imports little: installing reads the defaults, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from fairlead.api import names
from fairlead.core.model.policy import Policy

LEASE_NAMESPACE: Final = "kube-system"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run.

    address: host:port of /metrics, /healthz and /readyz; empty serves none. visibility: host:port of the aggregated API
    `visibility.fairlead.dev`, external_metrics: of `external.metrics.k8s.io`; empty: not served. player: the command that starts
    the process which plays what-if questions for the first; empty: these are not served.
    service_namespace: of their Services; pod_address: of this pod, to which these lead while it is the leader; empty: they have
    selectors.
    schedulers: those whose pods are ours, `*` for all, and their profiles. release: of Fairlead, which names the lease.
    shadow: write nothing, only report.
    lease_*: seconds, see `Elector`.
    """

    policy: Policy = Policy()
    leader_elect: bool = True
    events: bool = True
    address: str = "127.0.0.1:10259"
    visibility: str = ""
    external_metrics: str = ""
    player: tuple[str, ...] = ()
    service_namespace: str = LEASE_NAMESPACE
    pod_address: str = ""
    writers: int = 256
    schedulers: Mapping[str, str] = names.SCHEDULERS
    release: str = names.FIRST_RELEASE
    shadow: bool = False
    lease_duration: float = 15.0
    lease_renew: float = 10.0
    lease_retry: float = 2.0
