"""What autoscalers added: replicas beyond the minimum, moment by moment."""

import pytest

from fairlead.observability.history import Job, Run, Scaler, Stay
from fairlead.observability.scaling import scaled

HOUR = 3600.0


def scaler(least, start=0.0, end=None, kind="Deployment", target="serve"):
    return Scaler(
        uid=f"{target}/{start}",
        namespace="lab",
        name="grows",
        kind=kind,
        target=target,
        min_replicas=least,
        max_replicas=9,
        started_at=start,
        ended_at=end,
    )


def stay(price=8_000_000, start=0.0, end=None):
    return Stay(
        uid=f"n/{start}",
        node="n",
        node_uid="n",
        pool="p",
        gpus=8.0,
        cpus=64.0,
        price=price,
        currency="USD",
        kind="OnDemand",
        started_at=start,
        ended_at=end,
    )


def replica(uid, start, end, *, owner="serve-5d9c", kind="ReplicaSet", namespace="lab"):
    run = Run(
        uid=uid,
        job=owner,
        namespace=namespace,
        name=uid,
        queue="q",
        service_class="",
        user="ann",
        node="n",
        gpus=1.0,
        cpus=1.0,
        started_at=start * HOUR,
        ended_at=None if end is None else end * HOUR,
    )
    return run, Job(uid=owner, namespace=namespace, kind=kind, name=owner, submitted_at=0.0)


def told(scalers, runs, stays=None, until=10 * HOUR):
    return scaled(scalers, [stay()] if stays is None else stays, runs, 0.0, until, 1e12)


def test_those_who_came_first_would_be_there_anyway():
    [line] = told([scaler(2)], [replica("a", 0, 10), replica("b", 0, 10), replica("c", 2, 5), replica("d", 3, 4)])
    assert (line.name, line.target, line.most) == ("lab/grows", "Deployment/serve", 4)
    assert (line.replica_hours, line.added_replica_hours) == (24.0, 4.0)
    assert (line.cost["USD"], line.added_cost["USD"]) == (pytest.approx(24.0), pytest.approx(4.0))


def test_one_of_the_minimum_that_ends_is_replaced_by_one_that_was_added():
    [line] = told([scaler(1)], [replica("a", 0, 4), replica("b", 2, 10)])
    assert line.added_replica_hours == pytest.approx(2.0), "from two to four there were two"


def test_a_minimum_that_changes_counts_from_then_on_and_prices_do_too():
    scalers = [scaler(1, 0.0, 5 * HOUR), scaler(2, 5 * HOUR)]
    stays = [stay(8_000_000, 0.0, 4 * HOUR), stay(80_000_000, 4 * HOUR)]
    [line] = told(scalers, [replica("a", 0, 10), replica("b", 0, 10)], stays)
    assert line.added_replica_hours == pytest.approx(5.0)
    assert line.added_cost == {"USD": pytest.approx(4 * 1.0 + 1 * 10.0)}
    assert line.cost == {"USD": pytest.approx(2 * (4 * 1.0 + 6 * 10.0))}


def test_only_the_targets_own_pods_count_whatever_rollouts_there_were():
    runs = [
        replica("old", 0, 5),
        replica("new", 5, None, owner="serve-77ff"),
        replica("other", 0, 10, owner="server-5d9c"),
        replica("elsewhere", 0, 10, namespace="else"),
        replica("lone", 0, 10, owner="serve", kind="Pod"),
    ]
    [line] = told([scaler(0)], runs)
    assert line.replica_hours == line.added_replica_hours == pytest.approx(10.0)


def test_other_workloads_are_named_as_they_are():
    [line] = told([scaler(1, kind="StatefulSet", target="db")], [replica("db-0", 0, 10, owner="db", kind="StatefulSet")])
    assert (line.replica_hours, line.added_replica_hours) == (pytest.approx(10.0), 0.0)


def test_without_pods_or_prices_there_is_no_cost():
    [line] = told([scaler(1)], [])
    assert (line.most, line.cost) == (0, {})
    [line] = told([scaler(1)], [replica("a", 0, 10)], [stay(None)])
    assert (line.gpu_hours, line.cost) == (pytest.approx(10.0), {})
