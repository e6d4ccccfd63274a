"""Writes are counted for each object and hour, so that a loop that writes on and on breaks an invariant."""

import pytest

from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.simulation import chaos
from fairlead.simulation.writes import MOST, Writes

T0 = 1_767_225_600.0


class Story:
    def __init__(self):
        self.now, self.wrong = T0, []
        self.api = ApiServer(Clock(start=T0))
        self.nodes = self.api.served("v1", "nodes")
        self.writes = Writes(self.api.store, lambda: self.now, self.wrong.append)
        for name in ("quiet", "busy"):
            self.api.create(self.nodes, "", {"metadata": {"name": name}})

    def write(self, name, times):
        for number in range(times):
            patch = {"metadata": {"labels": {"number": f"n{int(self.now)}-{number}"}}}
            self.api.patch(self.nodes, "", name, "application/merge-patch+json", patch)


def test_an_object_written_without_end_is_told_once_and_by_name():
    story = Story()
    story.write("quiet", 3)
    story.write("busy", 2 * MOST)
    assert story.wrong == [f"nodes /busy was written {MOST} times within an hour"]
    assert story.writes.busiest == 2 * MOST + 1


@pytest.mark.parametrize(
    ("version", "kind", "bounded"),
    [
        ("v1", "configmaps", True),
        ("v1", "services", True),
        ("events.k8s.io/v1", "events", True),
        ("fairlead.dev/v1alpha1", "serviceclasses", True),
        ("fairlead.dev/v1alpha1", "nodepools", True),
        ("coordination.k8s.io/v1", "leases", False),
    ],
)
def test_every_kind_is_counted_but_heartbeats(version, kind, bounded):
    story = Story()
    table = f"fairlead.dev/{kind}" if "fairlead" in version else story.api.served(version, kind).table
    for _ in range(MOST):
        story.api.store.put(table, ("ns", "x"), {"metadata": {"name": "x"}})
    assert bool(story.wrong) == bounded


def test_as_many_over_several_hours_are_nobodys_loop():
    story = Story()
    for _ in range(4):
        story.write("busy", MOST // 2)
        story.now += 3600.0
    assert not story.wrong


def test_a_day_in_which_elements_pods_are_long_in_going_ends():
    outcome = chaos.run(7108, chaos.Settings(nodes=14, jobs=60, hours=8, workload="aijobs"))
    assert not outcome.violations, outcome.violations[:10]
