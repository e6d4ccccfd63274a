"""The workload of `bench topology`: the same gangs for both schedulers, and a judge of where they are."""

import random

from fairlead.api import names
from testbed import workloads
from testbed.topology import racks

_THEIRS = "default-scheduler"


def placed(number, node):
    return {"metadata": {"name": f"pod-{number:06d}"}, "spec": {"nodeName": f"node-{node:05d}"}}


def test_a_gang_in_two_racks_is_found_wherever_it_is():
    for seed in range(50):
        draw = random.Random(seed)
        nodes, gang, gangs = 50 * draw.randint(1, 8), draw.randint(2, 6), draw.randint(1, 20)
        per_rack = nodes // racks.RACKS
        homes = [draw.randrange(racks.RACKS) for _ in range(gangs)]
        where = [homes[number // gang] * per_rack + draw.randrange(per_rack) for number in range(gang * gangs)]
        pods = [placed(number, node) for number, node in enumerate(where)]
        assert not racks.problems(pods, gang, nodes), seed
        astray = draw.randrange(len(where))
        elsewhere = draw.choice([rack for rack in range(racks.RACKS) if rack != homes[astray // gang]])
        pods[astray] = placed(astray, elsewhere * per_rack)
        (found,) = racks.problems(pods, gang, nodes)
        assert found.startswith(f"gang {astray // gang} is in racks"), seed


def test_labels_of_nodes_agree_with_the_judge():
    for number in range(0, 400, 7):
        label = racks.node(number, 400)["metadata"]["labels"][racks.LABEL]
        assert label == f"rack-{number * racks.RACKS // 400:02d}"


def test_both_schedulers_get_the_same_pods_and_gangs():
    ours, theirs = (workloads.pod("racks", 5, name, "gang-00001") for name in (names.SCHEDULER_NAME, _THEIRS))
    assert ours["spec"]["containers"] == theirs["spec"]["containers"]
    assert ours["metadata"]["labels"][names.POD_GROUP_LABEL] == theirs["spec"]["schedulingGroup"]["podGroupName"] == "gang-00001"
    mine, upstream = (workloads.group("racks", "gang-00001", 4, name) for name in (names.SCHEDULER_NAME, _THEIRS))
    assert mine["spec"]["minMember"] == upstream["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4
    (pool,) = workloads.before("racks", 50, 4, names.SCHEDULER_NAME)
    level = next(each for each in pool["spec"]["topologyLevels"] if each["name"] == mine["spec"]["topology"]["required"])
    assert [{"key": level["label"]}] == upstream["spec"]["schedulingConstraints"]["topology"]
    assert workloads.before("racks", 50, 4, _THEIRS) == []
