import csv
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.simulation import baselines, jobs, production, synthetic
from fairlead.simulation.charges import Charges, Run
from fairlead.simulation.durations import Estimates
from fairlead.simulation.foretold import expected_starts
from fairlead.simulation.pool import Pool
from fairlead.simulation.report import rhos, summarize
from fairlead.simulation.traces import TraceError, TraceJob, read_jobs, read_queues

DAY = 86_400


def job(name, submitted, duration, gpus, queue="q"):
    return TraceJob(name, submitted, duration, gpus, queue)


@pytest.fixture
def philly(traces):
    queues = read_queues(traces / "philly" / "vc_nodes.csv")
    return [each for each in read_jobs(traces / "philly" / "philly_oct_nov.csv.xz") if each.queue in queues], queues


@pytest.mark.parametrize(
    ("policy", "mean", "median", "p99", "longest"),
    [("fifo", 256_218, 158_993, 682_342, 76.1), ("easy-total", 48_321, 14_886, 309_372, 74.9)],
)
def test_the_reference_is_repeated_to_the_second(philly, policy, mean, median, p99, longest):
    table, queues = philly
    assert len(table) == 68_503
    result = jobs.simulate(table, nodes=65, gpus_per_node=8, policy=policy, queues=queues)
    waits = result.wait_seconds
    assert (round(waits.mean), round(waits.p50), round(waits.p99)) == (mean, median, p99)
    assert result.makespan_seconds / DAY == pytest.approx(longest, abs=0.06)
    assert result.suspensions == 0
    assert sum(each.jobs for each in result.queues) == 68_503
    assert sum(each.quota_gpus for each in result.queues) == pytest.approx(520)


def test_fifo_blocks_at_its_head_and_sjf_does_not():
    table = [job("a", 0, 100, 8), job("b", 1, 100, 16), job("c", 2, 10, 1)]
    fifo = jobs.simulate(table, nodes=2, gpus_per_node=8, policy="fifo")
    assert fifo.wait_seconds.mean == pytest.approx((0 + 99 + 198) / 3)
    assert fifo.makespan_seconds == 210
    sjf = jobs.simulate(table, nodes=2, gpus_per_node=8, policy="sjf")
    assert sjf.wait_seconds.mean == pytest.approx((0 + 99 + 0) / 3)
    assert fifo.utilization == pytest.approx((800 + 1600 + 10) / (16 * 210))


def test_easy_reserves_by_node_where_easy_total_counts_fragments():
    # Eight GPUs are free at 50, but on two nodes: by the total the head starts then, by the nodes at 100.
    table = [job("a", 0, 50, 4), job("b", 0, 100, 8), job("c", 0, 100, 4), job("d", 1, 10, 16), job("e", 2, 99, 4)]
    runs = {
        policy: baselines.simulate(
            table, nodes=2, gpus_per_node=8, policy=policy, charges=Charges(), estimates=Estimates(table, "exact")
        )
        for policy in ("easy", "easy-total")
    }
    assert runs["easy"][3].started == 100
    assert runs["easy"][4].started == 110, "it would end after the head's start"


def test_least_attained_service_suspends_jobs_with_more_and_charges_for_it():
    table = [job("old", 0, 4 * 3600, 8), job("new", 3000, 60, 1)]
    (old, new) = baselines.simulate(
        table, nodes=1, gpus_per_node=8, policy="las", charges=Charges(), estimates=Estimates(table, "exact")
    )
    assert new.started == 3000, "an hour of a GPU is long over"
    assert old.suspensions == 1
    # A checkpoint of 1800 s is kept, 1200 s are done again, and the return costs a minute.
    assert old.finished == 3060 + 60 + 4 * 3600 - 1800
    assert old.useful(1e9) == 8 * 4 * 3600


def test_a_job_that_can_never_run_is_counted():
    for policy in jobs.POLICIES:
        result = jobs.simulate([job("huge", 0, 1, 99), job("ok", 5, 1, 1)], nodes=1, gpus_per_node=8, policy=policy)
        assert result.never_started == 1
        assert result.wait_seconds.mean == 0


TABLES = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 9000), st.sampled_from([1, 1, 2, 3, 4, 8, 12, 16])), min_size=1, max_size=40
)


@pytest.mark.parametrize("policy", baselines.BASELINES)
@settings(deadline=None, max_examples=40)
@given(rows=TABLES)
def test_no_policy_gives_a_gpu_twice_or_forgets_a_job(policy, rows):
    table = [job(f"j{number}", at, duration, gpus) for number, (at, duration, gpus) in enumerate(sorted(rows))]
    runs = baselines.simulate(
        table, nodes=3, gpus_per_node=8, policy=policy, charges=Charges(), estimates=Estimates(table, "limit", 3)
    )
    for each, run in zip(table, runs, strict=True):
        assert run.finished >= each.submitted + each.duration
        assert run.useful(1e12) == pytest.approx(each.duration * each.gpus)
    moments = sorted({start for run in runs for start, _ in run.spans})
    for at in moments:
        assert sum(run.gpus for run in runs for start, end in run.spans if start <= at < end) <= 24


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), max_size=30), st.randoms())
def test_the_pool_gives_back_what_it_gave(sizes, draw):
    pool = Pool(4, 8)
    taken = []
    for gpus in sizes:
        if pool.fits(gpus):
            before = min((free for free in pool.free if free >= gpus), default=None)
            place = pool.find(gpus)
            if gpus <= 8:
                assert pool.free[place[0][0]] == before - gpus, "the tightest node"
            taken.append(place)
        elif taken:
            pool.give(taken.pop(draw.randrange(len(taken))))
        assert pool.counts == [pool.free.count(level) for level in range(9)]
        assert pool.total == sum(pool.free)
    for place in taken:
        pool.give(place)
    assert pool.free == [8] * 4


def test_rho_compares_with_an_equal_part_of_the_gpus():
    # Two jobs share 8 GPUs all the time: each would have 4 alone, so the one of 8 is stretched to twice its time.
    table = [job("wide", 0, 100, 8), job("narrow", 0, 100, 4)]
    runs = [Run(each.duration, each.gpus, Charges()) for each in table]
    runs[0].start(0)
    runs[0].finish(100)
    runs[1].start(100)
    runs[1].finish(200)
    found = rhos(table, runs, 8)
    assert found[0] == pytest.approx(100 / (100 * 2))
    assert found[1] == pytest.approx(200 / 100)


def test_the_worst_jobs_are_named_the_worst_first():
    table = [job(f"j{number}", 0, 100, 8) for number in range(12)]
    runs = [Run(each.duration, each.gpus, Charges()) for each in table]
    for number, run in enumerate(runs[:-1]):
        run.start(100.0 * number)
        run.finish(100.0 * (number + 1))
    result = summarize(table, runs, policy="fifo", durations="exact", gpus=8)
    fairness = rhos(table, runs, 8)
    assert len(result.worst_jobs) == 10
    assert [each.rho for each in result.worst_jobs] == sorted(fairness.values(), reverse=True)[:10]
    assert result.worst_jobs[0].rho == result.rho.worst
    last = result.worst_jobs[0]
    assert (last.job, last.gpus, last.submitted, last.started, last.wait_seconds) == ("j10", 8, 0, 1000, 1000)
    assert "j11" not in {each.job for each in result.worst_jobs}, "it has not ended"


def test_learned_durations_come_from_what_ended():
    table = [job(f"j{number}", number, 100 if number % 2 else 10_000, 1 if number % 2 else 8) for number in range(40)]
    learned = Estimates(table, "learned")
    assert learned.of(0) == 3600
    for index in range(30):
        learned.ended(index)
    assert learned.of(31) == pytest.approx(100)
    assert learned.of(32) == pytest.approx(10_000)
    limits = Estimates(table, "limit", 1)
    assert all(limits.of(index) >= table[index].duration for index in range(40))
    assert [limits.of(index) for index in range(40)] == [Estimates(table, "limit", 1).of(index) for index in range(40)]


def test_synthetic_tenants_have_more_to_do_than_their_share():
    table = synthetic.tenants(3, 64)
    assert table == synthetic.tenants(3, 64)
    assert sum(synthetic.shares().values()) == pytest.approx(1)
    for queue, part in synthetic.shares().items():
        work = sum(each.duration * each.gpus for each in table if each.queue == queue)
        assert work > 2 * part * 64 * synthetic.HOURS * 3600


def test_the_order_of_rows_does_not_matter(tmp_path):
    rows = [("2017-10-01 00:00:00", 60 + number % 5, 1 + number % 3, "a") for number in range(30)]
    names = ("submit_time", "duration_s", "num_gpus", "vc")
    tables = []
    for order in (rows, random.Random(1).sample(rows, len(rows))):
        path = tmp_path / "jobs.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *order])
        tables.append([(each.submitted, each.duration, each.gpus) for each in read_jobs(path)])
    assert tables[0] == tables[1]


@pytest.mark.parametrize("text", ["vc,nodes\na,1\na,2\n", "vc,nodes\n,3\n", "vc,nodes\na,0\n", "vc,nodes\na,many\n", "vc\na\n"])
def test_bad_queue_tables_say_what_is_wrong(tmp_path, text):
    path = tmp_path / "queues.csv"
    path.write_text(text)
    with pytest.raises(TraceError):
        read_queues(path)


@pytest.mark.parametrize(
    ("nodes", "hours", "error"),
    [(4, 12, 5), pytest.param(4, 48, 3, marks=pytest.mark.slow), pytest.param(8, 48, 3, marks=pytest.mark.slow)],
)
def test_backlogged_queues_get_their_weights(nodes, hours, error):
    table = synthetic.tenants(1, 8 * nodes, hours)
    result = jobs.simulate(
        table,
        nodes=nodes,
        gpus_per_node=8,
        tree=synthetic.tree(),
        deserved=synthetic.shares(),
        window_days=hours / 24,
    )
    assert result.share_error_points <= error
    assert result.never_started == 0
    assert 0.8 < result.utilization <= 1.0, "turns that wait for checkpoints waste little"
    fifo = jobs.simulate(table, nodes=nodes, gpus_per_node=8, policy="fifo", deserved=synthetic.shares(), window_days=hours / 24)
    assert fifo.share_error_points > 2 * result.share_error_points


@pytest.mark.parametrize(
    ("max_loss", "nodes", "hours"), [(0.0, 1, 12), (60.0, 2, 12), pytest.param(0.0, 2, 48, marks=pytest.mark.slow)]
)
def test_time_slices_do_all_the_work_once(max_loss, nodes, hours):
    table = synthetic.tenants(1, 8 * nodes, hours)
    runs = production.simulate(
        table,
        nodes=nodes,
        gpus_per_node=8,
        queues=synthetic.tree(),
        charges=Charges(),
        estimates=Estimates(table, "exact"),
        service=msgspec.structs.replace(production.BATCH, max_loss=max_loss),
    )
    for each, run in zip(table, runs, strict=True):
        assert run.useful(1e12) == pytest.approx(each.duration * each.gpus)


def test_the_default_policy_lends_takes_back_and_charges_for_it():
    table = [
        job("guest-0", 0, 8 * 3600, 8, "guest"),
        job("guest-1", 0, 8 * 3600, 8, "guest"),
        job("owner", 6 * 3600 + 600, 3600, 8, "owner"),
    ]
    result = jobs.simulate(table, nodes=2, gpus_per_node=8, queues={"owner": 1, "guest": 1})
    assert result.suspensions == 1
    by_name = {each.name: each for each in result.queues}
    assert by_name["owner"].wait_seconds.mean == 0, "its quota comes back at once"
    # The guest waits an hour, works ten minutes again and needs a minute to come back.
    assert by_name["guest"].wait_seconds.max == 3600 + 600 + 60


def test_without_time_slicing_places_are_reserved_and_starts_forecast(philly):
    table, queues = philly
    result = jobs.simulate(
        table[:3000], nodes=65, gpus_per_node=8, policy="default", queues=queues, durations="learned", time_slicing=False
    )
    everybody, *by_size = result.expected_starts
    assert everybody.service_class == "all"
    assert everybody.jobs > 500
    assert everybody.jobs == sum(each.jobs for each in by_size)
    assert everybody.blank == 0
    assert everybody.median_error <= 0.5
    assert everybody.coverage + everybody.early + everybody.late == pytest.approx(1)
    assert everybody.coverage > 0.5
    assert everybody.median_width > 0
    assert everybody.median_wait > 600


def test_coverage_and_width_of_intervals_are_counted_by_size():
    table = [job(f"j{number}", 0, 100, size) for number, size in enumerate((1, 1, 1, 1, 16, 1))]
    runs = [Run(each.duration, each.gpus, Charges()) for each in table]
    told = [(1000, 500, 2000), (1000, 2500, 3000), (1000, 100, 200), (4000, 900, 1500), (2000, 1000, 3000), (100, 0, 50)]
    for run, (started, earliest, latest) in zip(runs, told, strict=True):
        run.asked, run.expected, run.earliest, run.latest = True, 1000, earliest, latest
        run.start(started)
    everybody, one, some, many = expected_starts(table, runs)
    assert (everybody.jobs, one.jobs, some.jobs, many.jobs) == (5, 4, 0, 1), "who starts within ten minutes does not count"
    assert (one.coverage, one.early, one.late) == (0.25, 0.25, 0.5)
    assert (many.coverage, many.median_width, many.median_wait) == (1.0, 2000, 2000)
    assert one.median_wait == 1000


def test_without_time_slicing_a_wide_job_gets_its_place_reserved():
    table = [
        job("first", 0, 3600, 12),
        job("wide", 60, 600, 16),
        *(job(f"small-{index}", 1000, 4 * 3600, 1) for index in range(8)),
    ]
    result = jobs.simulate(table, nodes=2, gpus_per_node=8, policy="default", time_slicing=False)
    assert result.suspensions == 0
    assert result.jct_seconds.max == pytest.approx(3600 + 600 + 4 * 3600 - 1000), "the small ones wait for the wide one"
