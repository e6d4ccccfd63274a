import itertools
import lzma
import random

import msgspec
import pytest

from fairlead.simulation import bench, placement
from fairlead.simulation.events import EventQueue
from fairlead.simulation.lab import record
from fairlead.simulation.traces import TraceError, TraceNode, TracePod, read_jobs, read_nodes, read_pods

NODES = [TraceNode(f"n{i}", 64_000, 262_144, 4, "T4") for i in range(8)]
PODS = [TracePod(f"p{i:02d}", 4000, 8192, 1, milli) for i, milli in enumerate([1000, 500, 250, 810, 470] * 8)]


def test_arrivals_reach_the_target_and_stop_before_it():
    order = placement.arrivals(PODS, 32_000, 1.3, seed=1)
    total = sum(pod.gpus * pod.gpu_milli for pod in order)
    assert 1.3 * 32_000 - 1000 <= total <= 1.3 * 32_000
    assert sorted(pod.name for pod in order[: len(PODS)]) == [pod.name for pod in PODS]
    assert len({pod.name for pod in order}) == len(order)
    assert order == placement.arrivals(random.Random(0).sample(PODS, len(PODS)), 32_000, 1.3, seed=1)


def test_arrivals_above_the_target_are_thinned():
    order = placement.arrivals(PODS, 10_000, 1.0, seed=1)
    assert sum(pod.gpus * pod.gpu_milli for pod in order) <= 10_000


def test_the_overshoot_test_is_upstreams():
    big = [TracePod("big", 1, 1, 8, 1000)]
    assert len(placement.arrivals(big, 16_000, 1.0, seed=1)) == 2
    assert sum(p.gpus * p.gpu_milli for p in placement.arrivals(big, 9_000, 1.0, seed=1)) == 16_000


@pytest.mark.parametrize("strategy", ["ai", "fgd", "binpack", "spread"])
def test_allocation_rises_to_a_ceiling(strategy):
    result = placement.simulate(NODES, PODS, strategy=strategy, seeds=[1, 2], inflate=1.3)
    assert next(iter(result.allocation)) == "5"
    assert list(result.allocation)[-1] == "130"
    values = list(result.allocation.values())
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(values))
    assert values[-1] <= 100
    assert result.unallocated_gpus["130"] == pytest.approx((100 - values[-1]) * 32 / 100)
    assert all(0 <= value <= 100 for value in result.fragmentation.values())
    assert [run.seed for run in result.runs] == [1, 2]


def test_names_of_nodes_do_not_matter_much_and_order_not_at_all():
    shuffled = random.Random(3).sample(NODES, len(NODES))
    first = placement.simulate(NODES, PODS, strategy="ai", seeds=[1], inflate=1.3)
    second = placement.simulate(shuffled, PODS, strategy="ai", seeds=[1], inflate=1.3)
    assert first.allocation == second.allocation


def test_the_published_lists(traces):
    folder = traces / "openb_fgd"
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    least = {
        "default.csv": (95.5, 95.7),
        "gpushare100.csv.xz": (0, 87.3),
        "multigpu50.csv.xz": (0, 97.2),
        "cpu250.csv.xz": (0, 93.4),
    }
    for file, (at_100, at_130) in least.items():
        pods = read_pods(folder / f"openb_pod_list_{file}")
        result = placement.simulate(nodes, pods, strategy="ai", seeds=[42], inflate=1.3)
        assert result.allocation["100"] >= at_100
        assert result.allocation["130"] >= at_130


def test_fgd_repeats_its_published_figure(traces):
    folder = traces / "openb_fgd"
    nodes, pods = read_nodes(folder / "openb_node_list_gpu_node.csv"), read_pods(folder / "openb_pod_list_default.csv")
    result = placement.simulate(nodes, pods, strategy="fgd", seeds=[42], inflate=1.3)
    assert result.allocation["130"] == pytest.approx(95.39, abs=0.35)


def restricted(pods, models, seed):
    """A third of the GPU pods allow one to three models, drawn at random."""
    rng = random.Random(seed)
    with_gpus = [pod.name for pod in pods if pod.gpus]
    chosen = set(rng.sample(with_gpus, len(with_gpus) // 3))
    return [
        msgspec.structs.replace(pod, models=tuple(sorted(rng.sample(models, rng.randint(1, 3))))) if pod.name in chosen else pod
        for pod in pods
    ]


@pytest.mark.parametrize("seed", range(10))
def test_where_pods_allow_some_models_only_more_is_placed_than_by_fgd(traces, seed):
    folder = traces / "openb_fgd"
    every = read_nodes(folder / "openb_node_list_gpu_node.csv")
    nodes = every[seed % 8 :: 8]
    models = sorted({node.model for node in every})
    pods = restricted(read_pods(folder / "openb_pod_list_default.csv")[seed % 4 :: 4], models, seed)
    ours, fgd = (placement.simulate(nodes, pods, strategy=each, seeds=[seed], inflate=1.3) for each in ("ai", "fgd"))
    assert ours.allocation["100"] > fgd.allocation["100"] + 3
    # On so few nodes single pods decide what the last percents are; on all of them it is above on every seed (benchmarks/README.md).
    assert ours.allocation["130"] > fgd.allocation["130"] - 0.5
    assert [run.wrong_model for run in (*ours.runs, *fgd.runs)] == [0, 0]


def test_models_are_read_from_gpu_spec(tmp_path):
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    (tmp_path / "pods.csv").write_text(header + "a,1,1,1,1000,\nb,1,1,1,500,V100M32|G2\nc,1,1,0,0,T4\nd,1,1,1,1000, G3 ||G3\n")
    assert [pod.models for pod in read_pods(tmp_path / "pods.csv")] == [(), ("G2", "V100M32"), (), ("G3",)]


def test_pods_are_placed_on_the_models_that_they_allow():
    nodes = [TraceNode(f"n{i}", 64_000, 262_144, 4, "T4" if i % 2 else "G2") for i in range(8)]
    pods = [msgspec.structs.replace(pod, models=("T4",)) for pod in PODS]
    result = placement.simulate(nodes, pods, strategy="ai", seeds=[1, 2], inflate=1.3)
    assert 40 < result.allocation["130"] <= 50
    assert [run.wrong_model for run in result.runs] == [0, 0]
    nowhere = [msgspec.structs.replace(pod, models=("A10",)) for pod in PODS]
    assert placement.simulate(nodes, nowhere, strategy="ai", seeds=[1], inflate=1.3).allocation["130"] == 0


def test_events_come_in_order_of_time_then_entry():
    queue = EventQueue()
    for at, name in ((5, "c"), (1, "a"), (1, "b")):
        queue.push(at, name)
    assert [queue.pop() for _ in range(3)] == ["a", "b", "c"]
    assert queue.now == 5


def test_the_lab_is_the_same_each_time_and_its_accounts_balance(tmp_path):
    summaries = [record(tmp_path / "log", nodes=20, jobs=250, seed=3, hours=24) for _ in range(2)]
    assert summaries[0] == summaries[1]
    assert summaries[0].gangs_started > 0
    assert 0 < summaries[0].gpu_utilization <= 1


@pytest.mark.parametrize(("shapes", "gang"), [(1, 1), (30, 1), (3, 16)])
def test_the_bench_places_everything(shapes, gang):
    result = bench.placement(nodes=50, pods=400, shapes=shapes, gang=gang)
    assert result.placed == 400
    assert result.transactions == 400 // gang


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (read_pods, "name,cpu_milli\nx,1\n"),
        (read_pods, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,2,500\n"),
        (read_pods, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,-1,1,1,500\n"),
        (read_pods, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1e999,1,1,500\n"),
        (read_pods, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1\n"),
        (read_nodes, "sn,cpu_milli,memory_mib,gpu\nx,much,1,1\n"),
        (read_jobs, "submit_time,duration_s,num_gpus\nyesterday,1,1\n"),
        (read_jobs, "submit_time,duration_s,num_gpus\n"),
    ],
)
def test_bad_tables_say_where(tmp_path, reader, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(TraceError):
        reader(path)


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        read_nodes(tmp_path / "absent.csv")
    broken = tmp_path / "broken.csv.xz"
    broken.write_bytes(b"not xz")
    with pytest.raises(TraceError, match="cannot be read"):
        read_nodes(broken)
    good = tmp_path / "good.csv.xz"
    good.write_bytes(lzma.compress(b"sn,cpu_milli,memory_mib,gpu,model\nn,1000,10,2,T4\n"))
    assert read_nodes(good) == [TraceNode("n", 1000, 10, 2, "T4")]
