"""Jobs that do not use what they hold are shut down; what is not measured is not idle."""

import msgspec
import pytest
from aiohttp import web

from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster.times import timestamp
from fairlead.observability.prometheus import Prometheus, PrometheusError
from fairlead.operator.jobs.attempt import Given
from fairlead.operator.jobs.defaults import ENDLESS, filled, restarts
from fairlead.operator.jobs.idleness import Idleness, Measured, judge, windows
from fairlead.operator.jobs.plan import plan
from fairlead.operator.jobs.pods import PodSeen
from tests.operator import builders
from tests.operator.builders import T0, worker

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
POLICY = {"minGpuUtilization": 10, "timeWindow": "30m"}


def job(*, active=None, gpus=True, **spec):
    annotations = {"fairlead.dev/last-activity": timestamp(active)} if active is not None else {}
    roles = [worker(2, {"name": "main", **(GPU if gpus else {})})]
    return builders.job(annotations=annotations, **{"roles": roles, **spec})


def pods(*, since=T0, count=2, role="worker", **more):
    return [
        PodSeen(f"bert-{role}-{i}-0", 0, "Running", node="n", role=role, started=timestamp(since), **more) for i in range(count)
    ]


def measured(*uses, window=1800.0, at=T0 + 3600, role="worker"):
    return Measured({window: {("vision", f"bert-{role}-{i}-0"): use for i, use in enumerate(uses)}}, at)


NOW = T0 + 3600


def test_a_job_whose_gpus_are_idle_for_the_window_is_ended():
    idle, _ = judge(job(utilizationPolicy=POLICY), pods(), measured(2.0, 4.0), NOW)
    assert idle == "GPU utilization was at most 4 % within 30m, below 10 %: shut down"


@pytest.mark.parametrize(
    ("uses", "why"),
    [
        ((2.0, 80.0), "one worker is busy"),
        ((2.0,), "the other is not measured"),
        ((), "none is"),
        ((2.0, float("nan")), "NaN is no measurement"),
        ((10.0, 0.0), "the least is reached"),
    ],
)
def test_a_job_is_not_idle_when(uses, why):
    assert judge(job(utilizationPolicy=POLICY), pods(), measured(*uses), NOW)[0] == "", why


def test_nothing_is_idle_that_began_lately_or_was_measured_long_ago_or_does_not_run():
    wanted = job(utilizationPolicy=POLICY)
    assert judge(wanted, pods(since=NOW - 1799), measured(0.0, 0.0), NOW)[0] == ""
    assert judge(wanted, pods(), measured(0.0, 0.0, at=NOW - 121), NOW)[0] == ""
    assert judge(wanted, pods(), None, NOW) == ("", None)
    assert judge(wanted, [], measured(0.0, 0.0), NOW) == ("", None)
    assert judge(wanted, pods(terminating=True), measured(0.0, 0.0), NOW) == ("", None)


def test_members_without_gpus_are_no_matter():
    template = {"spec": {"containers": [{"name": "main"}]}}
    roles = [
        {"name": "worker", "template": {"spec": {"containers": [GPU]}}},
        {"name": "evaluator", "template": template},
    ]
    both = pods(count=1) + pods(count=1, role="evaluator")
    assert judge(job(roles=roles, utilizationPolicy=POLICY), both, measured(0.0), NOW)[0] != ""
    assert judge(job(roles=roles[1:], utilizationPolicy=POLICY), both[1:], measured(0.0), NOW)[0] == "", "it has none at all"


def test_a_session_without_activity_is_shut_down_in_time():
    session = {"workloadType": "Interactive", "idleDuration": "20m"}
    assert judge(job(**session), pods(since=NOW - 600), None, NOW) == ("", 600.0)
    assert judge(job(**session, active=NOW - 60), pods(), None, NOW) == ("", 1140.0)
    assert judge(job(**session, active=NOW - 1200), pods(), None, NOW)[0] == "no activity for 20m: shut down"
    assert judge(job(**session), pods(since=NOW - 1200), None, NOW)[0] != ""
    assert judge(job(idleDuration="20m"), pods(), None, NOW) == ("", None), "a training is no session"


def test_the_use_of_gpus_is_activity_and_so_is_not_to_know():
    session = job(workloadType="Interactive", idleDuration="20m")
    assert judge(session, pods(), measured(0.0, 3.0, window=1200.0), NOW) == ("", 30.0)
    assert judge(session, pods(), measured(0.0, 3.0, window=1200.0, at=NOW - 500), NOW) == ("", 30.0)
    assert judge(session, pods(), measured(0.0, 0.0, window=1200.0), NOW)[0] != ""


@pytest.mark.parametrize(("kind", "phase"), [("Interactive", "Succeeded"), ("Training", "Failed"), ("Inference", "Failed")])
def test_how_a_job_that_is_shut_down_ends(kind, phase):
    decided = plan(job(workloadType=kind), pods(), Given(now=NOW, idle="shut down"))
    assert (decided.status.phase, decided.status.message) == (phase, "shut down")
    assert decided.delete == ("bert-worker-0-0", "bert-worker-1-0")
    assert ("Idle", "shut down", True) in decided.events


def test_a_job_that_was_taken_down_for_its_time_limit_has_failed_and_not_been_interrupted():
    limited = job(timeLimit="1h")
    limited.status = plan(limited, pods(), Given(now=T0 + 10)).status
    assert (limited.status.phase, limited.status.running_since) == ("Running", timestamp(T0))
    early = plan(limited, pods(terminating=True), Given(now=T0 + 3000)).status
    assert (early.phase, early.running_since, early.interruptions) == ("Restarting", None, 1)
    for left in (pods(terminating=True), []):  # they may be gone before the next check
        status = plan(limited, left, Given(now=T0 + 3599)).status
        assert (status.phase, status.message) == ("Failed", "it reached its time limit of 1h")


def test_what_a_job_leaves_to_its_type_and_class():
    classes = {
        name: msgspec.convert({"metadata": {"name": name}, "spec": spec}, ServiceClass)
        for name, spec in {
            "a-closed": {"defaultFor": ["Interactive"], "users": ["ada"]},
            "notebooks": {"defaultFor": ["Interactive"], "idleDuration": "1h", "timeLimit": {"default": "8h", "max": "12h"}},
            "batch": {"utilizationPolicy": POLICY, "timeLimit": {"max": "7d"}},
        }.items()
    }
    session = filled(job(workloadType="Interactive"), classes).spec
    assert (session.service_class, session.idle_duration, session.time_limit) == ("notebooks", "1h", "8h")
    own = filled(job(workloadType="Interactive", idleDuration="5m", timeLimit="1h"), classes).spec
    assert (own.idle_duration, own.time_limit) == ("5m", "1h")
    batch = filled(job(serviceClass="batch"), classes)
    assert (batch.spec.time_limit, list(windows(batch))) == ("7d", [1800.0])
    assert filled(job(), classes).spec.service_class is None
    assert filled(job(serviceClass="none-such"), classes).spec.service_class == "none-such"
    kinds = ("Training", "Inference", "Interactive")
    assert [restarts(job(workloadType=kind)) for kind in kinds] == [3, ENDLESS, 0]
    assert restarts(job(workloadType="Interactive", restart={"limit": 2})) == 2


class Server:
    """A Prometheus as far as it is asked: what it answers, and what it was asked."""

    def __init__(self):
        self.asked = []
        self.answer = {"status": "success", "data": {"resultType": "vector", "result": []}}
        self.code = 200

    async def query(self, request):
        self.asked.append((await request.post())["query"])
        return web.json_response(self.answer, status=self.code)


@pytest.fixture
async def server():
    made = Server()
    application = web.Application()
    application.add_routes([web.post("/api/v1/query", made.query)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def test_measuring(server):
    told = []
    idleness = Idleness(Prometheus(server.url), lambda: NOW, lambda: [1800.0, 1800.0], lambda: told.append(1))
    server.answer["data"]["result"] = [{"metric": {"namespace": "vision", "pod": "bert-worker-0-0"}, "value": [NOW, "7.5"]}]
    await idleness.measure(idleness.prometheus)
    assert server.asked == [
        (
            "max by (namespace, pod) (max_over_time(DCGM_FI_DEV_GPU_UTIL[1800s]))"
            " and on (namespace, pod) count by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL offset 1800s)"
        )
    ]
    assert idleness.measured == Measured({1800.0: {("vision", "bert-worker-0-0"): 7.5}}, NOW)
    assert told == [1]
    server.answer = {"status": "error", "error": "out of memory"}
    await idleness.measure(idleness.prometheus)
    assert (idleness.failures, idleness.measured.at, told) == (1, NOW, [1])


@pytest.mark.parametrize("answer", [[], {"status": "success", "data": {"result": [{"value": [1, "much"]}]}}])
async def test_an_answer_that_is_none(server, answer):
    server.answer = answer
    with pytest.raises(PrometheusError):
        await Prometheus(server.url).query("up", ())


async def test_an_unreachable_prometheus_is_an_error():
    with pytest.raises(PrometheusError, match=r"127\.0\.0\.1:9"):
        await Prometheus("http://127.0.0.1:9", limit=5.0).query("up", ())
