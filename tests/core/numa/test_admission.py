"""Admission as kubelets do it: compared with recorded verdicts of the kubelet's own managers, and by hand where that is plain."""

from pathlib import Path

import pytest

from fairlead.core.numa.admission import Refused, admit, release
from fairlead.core.numa.cpus import take
from fairlead.core.numa.hints import Hint, merge
from fairlead.core.numa.model import ContainerNeed, Machine, Zone, unused
from testbed import build
from testbed.numa import differential

GPU = "nvidia.com/gpu"
RECORDED = differential.recorded(Path(__file__).parent / "verdicts.json.gz")


def machine(policy="single-numa-node", gpus=(4, 4), cpus=8, **more):
    zones = tuple(Zone(f"node-{at}", cpus, 0, at, (("memory", 100),), ((GPU, count),)) for at, count in enumerate(gpus))
    return Machine(zones, policy, **more)


def gpus(count, **more):
    return (ContainerNeed(devices=((GPU, count),), **more),)


def test_the_verdicts_are_of_the_kubelet_that_the_testbed_has():
    assert RECORDED.judge == build.KUBERNETES_VERSION
    refused = sum(not each["admitted"] for one in RECORDED.verdicts for each in one)
    assert refused > 200  # they can fail


@pytest.mark.parametrize("block", range(8))
def test_the_kubelet_does_what_is_predicted(block):
    """Every verdict, and what is free by NUMA node afterwards, of machines and pods from seeds."""
    for seed in range(block, len(RECORDED.verdicts), 8):
        wrong, _ = differential.compare(seed, RECORDED.verdicts[seed])
        assert not wrong, wrong[0]


def test_all_results_of_a_choice_that_is_not_known_are_kept():
    """Five of eight GPUs: a plugin may take 4+1, 3+2, 2+3 or 1+4."""
    found = admit(machine("restricted"), unused(machine()), gpus(5))
    assert isinstance(found, list)
    assert sorted(each.free.devices[0] for each in found) == [(0, 3), (1, 2), (2, 1), (3, 0)]


def test_devices_are_given_back():
    of = machine("restricted", static=True, memory_static=True)
    need = (ContainerNeed(3, (("memory", 60),), ((GPU, 2),)), ContainerNeed(4, (("memory", 30),), ((GPU, 1),)))
    found = admit(of, unused(of), need)
    assert isinstance(found, list)
    assert all(release(of, each.free, each.held) == unused(of) for each in found)


def test_one_numa_node_holds_no_more_than_it_has():
    of = machine()
    assert admit(of, unused(of), gpus(5)) is Refused.AFFINITY
    assert isinstance(admit(of, unused(of), gpus(4)), list)


def test_scope_pod_adds_containers_up():
    need = gpus(3) + gpus(3)
    of = machine(scope="container")
    assert isinstance(admit(of, unused(of), need), list)
    of = machine(scope="pod")
    assert admit(of, unused(of), need) is Refused.AFFINITY


def test_whole_cores_only():
    of = machine(static=True, full_cores=True, threads=2)
    assert admit(of, unused(of), (ContainerNeed(3),)) is Refused.CORES
    assert isinstance(admit(of, unused(of), (ContainerNeed(4),)), list)


def test_cpus_are_taken_from_the_numa_node_with_the_fewest_that_are_free():
    of = machine(static=True, threads=2)
    assert take(of, ((2, 2, 2, 2), (2, 1, 0, 0)), 2) == {(1, 0): 2}
    assert take(of, ((2, 2, 2, 2), (2, 1, 0, 0)), 12) is None


def test_hints_of_one_mask_are_preferred():
    of = machine("restricted")
    hints = [[Hint(1, True), Hint(2, True), Hint(3, False)], [Hint(2, True), Hint(3, False)]]
    assert merge(of, hints) == Hint(2, True)
    assert merge(of, [[Hint(1, True)], [Hint(2, True)]]) == Hint(3, False)
