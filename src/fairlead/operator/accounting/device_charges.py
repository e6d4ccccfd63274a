"""What runs and nodes are charged for devices of claims, as slices, claims and runs come, change and go."""

from __future__ import annotations

from fairlead.observability.history import OF_CLAIM, Run
from fairlead.operator.accounting.claims import ClaimedDevices
from fairlead.operator.accounting.node_intervals import NodeIntervals
from fairlead.operator.accounting.observations import ClaimObserved, SliceObserved
from fairlead.operator.faults import Report


class DeviceCharges:
    """runs: that go on, by their pods' uids. changed: those to be written. live: whether all that exists was observed."""

    def __init__(self, runs: dict[str, Run], changed: dict[str, Run], report: Report) -> None:
        self.claims = ClaimedDevices()
        self.nodes = NodeIntervals(report, self.claims.gpus_of)
        self.live = False
        self._runs, self._changed = runs, changed
        self._besides: dict[str, float] = {}  # a pod's uid -> devices that it holds beside those of claims
        self._own: dict[str, float] = {}  # and those of claims that were made for it

    def load(self, runs: list[Run]) -> None:
        """The rows that went on when the last writer ended."""
        self.claims.rows.load([run for run in runs if is_of_claim(run)])

    def all_listed(self, alive_at: float | None) -> None:
        """Everything is listed: who pays from now on; what went meanwhile ended no later than the last observation."""
        self.live = True
        self.claims.rows.close_others(frozenset(self.claims.keys), alive_at)
        for key in self.claims.keys:
            self.claims.pay(key, self._runs, alive_at or 0.0)

    # -- observations --------------------------------------------------------------------------

    def slice(self, observed: SliceObserved, now: float) -> None:
        """A ResourceSlice came, changed or went."""
        nodes, known = self.claims.slice(observed.name, observed.view)
        for node in nodes:
            self.nodes.devices_changed(node, now)
        for key in known:
            self._charge(key, now)

    def claim(self, observed: ClaimObserved, now: float) -> None:
        """A ResourceClaim came, changed or went."""
        before = self.claims.nodes_of(observed.key)
        self.claims.claim(observed.key, observed.view)
        for node in sorted(before | self.claims.nodes_of(observed.key)):
            self.nodes.devices_changed(node, now)
        self._charge(observed.key, now)

    def _charge(self, key: str, now: float) -> None:
        """What a claim holds may be different: its pod is charged for it, or who pays for it."""
        run = self._runs.get(self.claims.owner_of(key))
        if run is not None:
            self._hold(run)
        elif self.live:
            self.claims.pay(key, self._runs, now)

    # -- runs ----------------------------------------------------------------------------------

    def begun(self, run: Run) -> None:
        """A run began; it has the devices beside those of claims."""
        self._besides[run.uid] = run.gpus
        self._hold(run)
        self._pay_with(run, run.started_at)

    def measured(self, run: Run, besides: float, *, certain: bool, uses_claims: bool) -> None:
        """A run goes on. besides: what it holds beside claims; certain: by the labels of its node, which are known."""
        first = run.uid not in self._besides
        if not certain and not first:
            return
        self._besides[run.uid] = besides
        if first and uses_claims and run.uid not in self._own:
            self._own[run.uid] = max(0.0, run.gpus - besides)  # as the operator before had recorded it
        if certain or uses_claims:
            self._hold(run)

    def ended(self, run: Run, at: float) -> None:
        """A run is over."""
        self._besides.pop(run.uid, None)
        self._own.pop(run.uid, None)
        self._pay_with(run, at)

    def _hold(self, run: Run) -> None:
        """A run holds what its pod's own claims do, as far as that is known, or was, beside what it asks for."""
        own = self.claims.own(run.uid)
        if own is not None:
            self._own[run.uid] = own
        if run.uid in self._besides:
            self._set(run, self._besides[run.uid] + self._own.get(run.uid, 0.0))

    def _set(self, run: Run, gpus: float) -> None:
        if round(gpus, 6) != run.gpus:
            run.gpus = round(gpus, 6)
            self._changed[run.uid] = run

    def _pay_with(self, run: Run, at: float) -> None:
        """It may pay for claims, or no longer."""
        for key in self.claims.shared(run.uid) if self.live else ():
            self.claims.pay(key, self._runs, at)


def is_of_claim(run: Run) -> bool:
    """Whether a row is of a claim that no pod owns, not of a pod."""
    return run.uid.startswith(OF_CLAIM)
