"""Random pods over the whole schema against running worlds: fixed seeds here, 100,000 pods in `make soak`."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.cluster import convert, views
from fairlead.core import explain
from fairlead.core.actions import serve
from fairlead.core.model.pods import Pod
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.snapshot import snapshot
from fairlead.simulation.fuzzing import judge
from fairlead.simulation.fuzzing.pods import PodWriter
from fairlead.simulation.fuzzing.run import fuzz
from fairlead.simulation.fuzzing.world import World


def clean(result):
    assert (result.failed_passes, result.set_aside, result.starved, result.broken, result.untold) == (0, 0, 0, 0, 0), (
        result.faults
    )


def test_no_pod_stops_a_pass_and_none_starves_another():
    result = fuzz(4000, seed=0)
    clean(result)
    assert result.pods >= 4000


@pytest.mark.slow
def test_100_000_random_pods():
    clean(fuzz(100_000, seed=1_000_000))


@pytest.mark.parametrize(
    "seed",
    [1097, 1147, 1241, 10_307, 20_060, 1000, 1094, 100_386, 300_370, 1_000_736, 9_000_101, 21_000_644, 21_000_116, 23_000_121],
)
def test_worlds_that_failed_once(seed):
    clean(fuzz(10_000, seed=seed, worlds=1))


def told(world):
    """Everything that can be seen of a world at its end."""
    return world._objects, snapshot(world.loop.state), world.faults, world.starved


def test_a_seed_says_everything():
    first, second = World(3, 60), World(3, 60)
    first.run()
    second.run()
    assert told(first) == told(second)


def test_what_fails_is_found_with_its_seed(monkeypatch):
    """An exception that some pods reach, as it might be tomorrow."""
    allocate = serve.allocate

    def fails(state, unit, *more):
        if len(unit.tasks[0].pod.spec.tolerations) == 2:
            raise ZeroDivisionError("planted")
        return allocate(state, unit, *more)

    monkeypatch.setattr(serve, "allocate", fails)
    result = fuzz(2000, seed=50)
    assert result.failed_passes == 0, "what one unit's data raises is contained"
    assert result.set_aside > 0
    assert result.starved == 0
    assert any("planted" in str(each["what"]) and each["seed"] >= 50 for each in result.faults)


def test_what_ends_a_pass_is_counted_as_such(monkeypatch):
    """An exception outside every guard."""
    begin = ClusterState.begin

    def fails(self, now):
        if len(self.tasks) == 20:
            raise ZeroDivisionError("planted")
        begin(self, now)

    monkeypatch.setattr(ClusterState, "begin", fails)
    result = fuzz(500, seed=50)
    assert result.failed_passes > 0
    assert any("planted" in str(each["what"]) for each in result.faults)


def test_starved_pods_are_found(monkeypatch):
    """The judge has rules of its own: a scheduler that passes canaries over is caught."""
    whole = serve._serve

    def passes_over(state, unit, now):
        if judge.is_canary(unit.tasks[0].pod.uid):
            state.queues.waiting.mark_unschedulable(unit.pending_class, explain.no_node(state, unit.tasks[0].ranking))
            return
        yield from whole(state, unit, now)

    monkeypatch.setattr(serve, "_serve", passes_over)
    assert fuzz(2000, seed=0).starved > 0


def test_lost_pods_starve_too(monkeypatch):
    take = ClusterState.upsert_pod
    monkeypatch.setattr(ClusterState, "upsert_pod", lambda self, pod: None if judge.is_canary(pod.uid) else take(self, pod))
    assert fuzz(500, seed=0).starved > 0


def on(node, **requests):
    containers = [{"resources": {"requests": requests}}]
    return {"metadata": {"name": "x", "uid": "x"}, "spec": {"nodeName": node, "containers": containers}}


def test_the_judge_counts_what_is_there():
    node = dict(judge.surroundings())["node"]
    name = node["metadata"]["name"]
    waits = judge.canary(0, 0.0)

    def starved(*pods, changed=None, **more):
        given = {**node, **(changed or {})}
        return judge.starved(
            {"node": {name: given}, "pod": {"canary-0": waits, **{str(key): pod for key, pod in enumerate(pods)}}, **more}, 0.0
        )

    assert starved() == [f"canary-0 waits, {name} have free capacity"]
    assert starved(on(name, cpu="31"))
    assert not starved(on(name, cpu="31500m"))
    assert not starved(on(name, memory="127.5Gi"))
    assert not starved(on(name, cpu="banana"))
    assert starved(on("other", cpu="banana"))
    assert not starved(*[on(name, cpu="1m")] * 110)
    assert not starved(changed={"spec": {"unschedulable": True}})
    assert not starved(changed={"spec": {"taints": [{"key": "a"}]}})
    window = {"w": {"spec": {"end": "2030-01-01T00:00:00Z"}}}
    assert not starved(reservation=window)
    alone = on(name, cpu="1")
    alone["spec"]["affinity"] = {"podAntiAffinity": {judge._REQUIRED: [{}]}}
    assert not starved(alone)

    def offers(gpus, pods):
        return {"status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": str(pods), "amd.com/gpu": str(gpus)}}}

    assert starved(changed=offers(2, 3))
    assert not starved(changed=offers(2, 2)), "a slot is kept for each GPU"
    assert not starved(changed=offers(32, 110)), "and a CPU"


@given(st.randoms(use_true_random=False), st.integers(0, 5))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_pod_that_can_be_decoded_is_translated(random, number):
    """Whatever the schema takes: no exception, amounts within exact integers, and a reason wherever something is not read."""
    written = msgspec.json.encode(PodWriter(random).pod(number, 1.8e9))
    try:
        view = msgspec.json.decode(written, type=views.Pod)
    except msgspec.DecodeError:
        return  # of another type than the schema's: an API server lets none of these by
    pod = convert.pod(view, "default")
    assert isinstance(pod, Pod)
    assert all(0 < amount <= 1 << 60 for _, amount in pod.spec.requests)
    assert pod.error is not None or not pod.unsized
    assert 0 <= pod.spec.gpus <= 1024
    if pod.error is not None:
        assert len(pod.error.message) < 5000
    assert msgspec.json.decode(msgspec.json.encode(pod), type=Pod) == pod, "the decision log tells the same pod"
