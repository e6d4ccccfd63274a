"""Gangs on a fabric under all rules: the same arrivals for each, places that are free, a bound that no rule is below."""

import math
from random import Random

import pytest

from fairlead.core.topology.request import Group, Request, Rules, Set, Shape
from fairlead.simulation.topology import fabric, floors, report, rules
from fairlead.simulation.topology.bound import lower_bound
from fairlead.simulation.traces import TraceError
from testbed.topology import solver

HEADER = "ip,DSW,PSW,ASW\n"


def written(folder, sizes):
    """A fabric of two blocks with leaves of these sizes; names of leaves count within their block."""
    path = folder / "topo.csv"
    hosts = [f"h,G,P{at % 2},S{at // 2}" for at, size in enumerate(sizes) for _ in range(size)]
    Random(3).shuffle(hosts)
    path.write_text(HEADER + "\n".join(hosts) + "\n")
    return fabric.read(path)


@pytest.fixture
def small(tmp_path):
    return written(tmp_path, [8, 8, 8, 8, 8, 7, 5, 8, 8, 3, 8, 2, 8, 8, 8, 8])


def test_a_fabric_is_read_by_leaf_and_block(tmp_path):
    read = written(tmp_path, [8, 3, 2, 5])
    assert (read.hosts, read.sizes, read.blocks) == (18, [8, 2, 3, 5], ["P0", "P0", "P1", "P1"])
    assert read.tree.sizes == [2, 4, 18]


@pytest.mark.parametrize("text", ["", HEADER, "ip,PSW\nh,P1\n", HEADER + "h,G,,S1\n", "\x00"])
def test_a_file_that_is_no_fabric_is_refused(tmp_path, text):
    path = tmp_path / "topo.csv"
    path.write_text(text)
    with pytest.raises(TraceError):
        fabric.read(path)
    with pytest.raises(TraceError):
        fabric.read(tmp_path / "none.csv")


def test_all_rules_place_the_same_gangs_at_the_same_moments(small):
    runs = {name: floors.run(small, rule, 5, 0.9, 600) for name, rule in rules.RULES.items() if name != "random"}
    runs["clairvoyant"] = floors.run(small, rules.clairvoyant, 5, 0.9, 600)
    assert len({tuple(run.intervals) for run in runs.values()}) == 1
    bound = lower_bound(small, runs["best-fit"])
    assert all(run.mean >= bound for run in runs.values())
    assert bound >= 1
    assert runs["worst-fit"].mean > runs["best-fit"].mean


@pytest.mark.parametrize("seed", range(30))
def test_fairlead_uses_the_fewest_leaves_that_are_free(small, seed):
    """By the integer program, for free nodes at random."""
    random = Random(seed)
    free = [random.randint(0, size) if random.random() < 0.7 else 0 for size in small.sizes]
    nodes = random.randint(1, max(1, sum(free)))
    if sum(free) < nodes:
        return
    moment = rules.Moment(free, nodes, random, 0.0, 1.0, 1.0, [[] for _ in free])
    labels = [[small.tree.name(level, int(at)) for at in small.tree.domain[level]] for level in range(2)]
    fits = [free[leaf] > at for leaf, size in enumerate(small.sizes) for at in range(size)]
    fewest = solver.fewest(labels, Request((Shape([int(fit) for fit in fits]),), (Set((Group(0, nodes),)),), Rules(preferred=1)))
    assert (
        len(rules.fairlead(small, moment))
        == len(rules.clairvoyant(small, moment))
        == fewest
        <= len(rules.best_fit(small, moment))
    )


def test_the_bound_counts_what_full_leaves_cannot_hold(tmp_path):
    """Two gangs of 8 at once on one full leaf and leaves of 4: one of them has 8 nodes on smaller leaves."""
    read = written(tmp_path, [8, 4, 4])
    run = floors.Run([1.0, 1.0], {8: [1, 2]}, [], [(8, 0.0, 10.0, True), (8, 0.0, 10.0, True)])
    assert lower_bound(read, run) == pytest.approx((2 + 8 * (1 / 7 - 1 / 8)) / 2)
    alone = floors.Run([1.0], {8: [1]}, [], [(8, 0.0, 10.0, True)])
    assert lower_bound(read, alone) == 1


def test_the_report_compares_means(small):
    result = report.compare(small, [1, 2], [0.9], arrivals=300)
    one = result.loads["0.9"]
    assert set(one.mean) == {"random", "first-fit", "worst-fit", "best-fit", "fairlead"}
    assert one.mean["random"] > one.mean["worst-fit"] > one.mean["best-fit"]
    saved = one.mean["best-fit"] - one.mean["fairlead"]
    assert one.way_to_bound == pytest.approx(saved / (one.mean["best-fit"] - one.mean_bound))
    assert one.below_best_fit == sum(
        one.leaves_over_ideal["fairlead"][seed] < one.leaves_over_ideal["best-fit"][seed] for seed in ("1", "2")
    )
    assert all(float(size) <= 64 and math.isfinite(leaves) for size, leaves in one.leaves_by_size["fairlead"].items())


def test_the_protocol_has_the_figures_of_its_baseline(traces):
    """Best fit on the real fabric, seed 1 at 0.92, as the protocol's own program measures it."""
    read = fabric.read(traces / "lingjun2023" / "topo.csv")
    assert floors.run(read, rules.best_fit, 1, 0.92).mean == pytest.approx(1.3013490112836554, abs=1e-12)
    assert (read.hosts, len(read.sizes)) == (847, 119)
