"""PodGroups as the core sees them, with what was written of them."""

from __future__ import annotations

import msgspec

from fairlead.core.model.pods import Closeness, Pod
from fairlead.core.model.selectors import Labels, Requirement
from fairlead.core.model.starts import FailedStarts


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """So many pods like this one."""

    count: int
    pod: Pod


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target state of a job: `Running` or `Suspended`. owners: UIDs of what makes its pods.

    members: its pods, while it is suspended. attained: device-seconds that it had had when it resumed last, since: when it came
    first, once it has resumed. nodes: of a job that resumes, where a place is reserved for each of its members, in their order,
    empty for none; until: when these places are given up, seconds since the epoch.
    """

    state: str
    epoch: int = 0
    owners: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    attained: float = 0.0
    since: float = 0.0
    nodes: tuple[str, ...] = ()
    until: float = 0.0


class Completed(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many members of a gang succeeded in a run of it, as last written.

    attempt: of the job; since: when the run's first pod was made, 0: not known; until: when the last of them ended; both in
    seconds since the epoch.
    """

    count: int = 0
    attempt: int = 0
    since: float = 0.0
    until: float = 0.0


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A form in which a job may run.

    index: of the alternative in its spec, from 1; 0: as its role is written. pool: its NodePool.
    replicas: members. resource, amount: GPUs of each member, as a device plugin counts them. nodes: what its pods ask of
    nodes besides what those of all forms do, at the end of each term of their node affinity.
    """

    index: int
    pool: str
    replicas: int
    resource: str
    amount: int
    nodes: tuple[Requirement, ...] = ()


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form that a job is to take instead of that of an attempt of it."""

    index: int
    pool: str
    attempt: int


class SparePlaces(msgspec.Struct, frozen=True, omit_defaults=True):
    """The spare places of a gang that runs: how many it asks for, and the node of each that is kept."""

    wanted: int
    nodes: tuple[str, ...] = ()


class Followers(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods that a controller creates once a member, their leader, has a node, and sends to that node's domain.

    gang: `namespace/name` of theirs. leaders: labels that their leaders have, all of them. level: the label of nodes whose value
    names the domain. count: how many follow each leader. like: one of them by its template; None: not known, they are taken to
    be like their leader. ready: they are created only once their leader is ready.
    """

    gang: str
    leaders: Labels
    level: str
    count: int
    like: Pod | None = None
    ready: bool = False


class Group(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PodGroup: `min_member` of its pods run, or none.

    time_limit, expected: as for pods. start_timeout: seconds in which its members start that have nodes, 0: not given.
    target, completed, failed_starts: as last written. paused: its user has suspended it, whatever its target state.
    made: the scheduler made it, to keep a target state. roles: digest of the roles that its AIJob has now; empty: not reported.
    ours: whether this release serves its queue, and so writes its status. closeness: where on the network its members are to be.
    choices: the forms in which its job may run, in order of preference; current: (index, pool) of the one that its pods have.
    chosen: the form that was chosen last, as last written. spares: the nodes of its spare places, as last written.
    followers: pods that are created after its members and need places in their domains. failed: whether that was last written.
    ended: how its AIJob has ended, `Failed` or `Succeeded`, where the operator reports it; empty: it does not.
    """

    namespace: str
    name: str
    min_member: int = 1
    queue: str = ""
    created: float = 0.0
    service_class: str = ""
    time_limit: float = 0.0
    expected: float = 0.0
    target: Target | None = None
    completed: Completed | None = None
    start_timeout: float = 0.0
    failed_starts: FailedStarts | None = None
    paused: bool = False
    made: bool = False
    roles: str = ""
    ours: bool = True
    closeness: Closeness | None = None
    choices: tuple[Choice, ...] = ()
    current: tuple[int, str] = (0, "")
    chosen: Chosen | None = None
    spares: tuple[str, ...] = ()
    followers: tuple[Followers, ...] = ()
    failed: bool = False
    ended: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"
