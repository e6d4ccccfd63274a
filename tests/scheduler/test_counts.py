"""A status that differs from the last report in counts only is reported again after a pause, not with every pass."""

from itertools import pairwise

from fairlead.cluster.port import Synced, Upsert
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Place
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import GroupStatus
from tests.builders import group, node, pod

T0 = 1000.0


def test_a_group_whose_count_alone_changes_is_told_of_once_a_second():
    outputs = []
    core = CoreLoop(Policy(), outputs.extend)
    core.apply([Upsert(node("n", gpus=64, cpu=10**6)), Upsert(group("g", 2)), Synced()], T0)
    told = []
    for number in range(40):
        now = T0 + number * 0.1
        core.apply([Upsert(pod(f"g-{number}", group="g"))], now)
        outputs.clear()
        core.decide(now)
        for each in outputs:
            if isinstance(each, Place):
                for binding in each.bindings:
                    core.state.pods.bound(binding.pod.uid)
                    core.reports.groups.mark("ns/g")
        outputs.clear()
        core.decide(now)
        told += [(now, each.phase, each.scheduled) for each in outputs if isinstance(each, GroupStatus)]
    kinds = [(phase, scheduled) for _, phase, scheduled in told]
    assert ("Scheduled", 2) in kinds, "what is more than a count is told at once"
    counts = [now for now, phase, _ in told if phase == "Scheduled"]
    assert all(later - earlier >= 0.999 for earlier, later in pairwise(counts))
    assert len(counts) <= 5
    assert core.next_due is not None
    assert core.next_due <= now + 1.0, "the last count is due"
    outputs.clear()
    core.decide(now + 1.1)
    (last,) = [each for each in outputs if isinstance(each, GroupStatus)]
    assert last.scheduled == 40
