"""What is put down of jobs and their pods."""

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.observability.history import HistoryError, Run, State, Wanted
from fairlead.observability.store import History
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.observations import JobObserved
from tests.operator.observed import at, entries, gone, job, pod


def test_a_pod_by_itself(history):
    accounting = Accounting(history)
    accounting.apply([pod("lone")], 6.0)
    accounting.write(6.0)
    assert entries(history) == []  # it has had no place yet
    accounting.apply([pod("lone", node="a", bound=10, phase="Running")], 11.0)
    accounting.write(11.0)
    (entry,) = entries(history, now=40.0)
    assert (entry.job.kind, entry.job.state, entry.job.queue, entry.job.user) == ("Pod", State.RUNNING, "research", "vision")
    assert (entry.job.submitted_at, entry.job.started_at, entry.gpu_seconds, entry.cpu_seconds) == (5.0, 10.0, 30.0, 60.0)
    accounting.apply([pod("lone", node="a", bound=10, phase="Succeeded", ended=20)], 25.0)
    accounting.write(25.0)
    (entry,) = entries(history)
    assert (entry.job.state, entry.job.exit_code, entry.gpu_seconds) == (State.SUCCEEDED, 0, 10.0)
    accounting.apply([gone("lone")], 300.0)  # cleaned up
    accounting.write(300.0)
    assert entries(history) == [entry]


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 3)])
def test_how_a_sidecar_ends_is_not_how_its_pod_ended(history, phase, code):
    accounting = Accounting(history)
    accounting.apply([pod("one", node="a", bound=10, phase="Running")], 11.0)
    ended = pod("one", node="a", bound=10, phase=phase, ended=20, exit_code=code)
    sidecar = {"name": "proxy", "state": {"terminated": {"exitCode": 143, "finishedAt": at(21)}}}
    ended.view.status.init_container_statuses = [msgspec.convert(sidecar, views.ContainerStatus)]
    accounting.apply([ended], 25.0)
    accounting.write(25.0)
    (entry,) = entries(history)
    assert (entry.job.state, entry.job.exit_code, history.runs("uid-one")[0].exit_code) == (State[phase.upper()], code, code)


def test_a_pod_that_is_deleted_while_it_runs_was_cancelled_and_one_that_is_evicted_was_evicted(history):
    accounting = Accounting(history)
    accounting.apply([pod("one", node="a", bound=10, phase="Running"), gone("one")], 30.0)
    told = [{"type": "DisruptionTarget", "status": "True"}]
    accounting.apply([pod("two", node="a", bound=10, phase="Running", conditions=told), gone("two")], 30.0)
    accounting.write(30.0)
    assert {entry.job.name: entry.job.state for entry in entries(history)} == {"one": State.CANCELLED, "two": State.CANCELLED}
    assert {each: history.runs(f"uid-{each}")[0].outcome for each in ("one", "two")} == {"one": "Deleted", "two": "Evicted"}


def test_a_jobs_pods_are_one_job_and_a_retry_goes_on_with_it(history):
    accounting = Accounting(history)
    accounting.apply([pod("j-1", node="a", bound=10, phase="Running", owner="Job/j"), pod("j-2", owner="Job/j")], 12.0)
    accounting.apply([pod("j-1", node="a", bound=10, phase="Failed", ended=20, exit_code=3, owner="Job/j"), gone("j-2")], 21.0)
    accounting.write(21.0)
    (entry,) = entries(history)
    assert (entry.job.kind, entry.job.name, entry.job.state, entry.job.exit_code) == ("Job", "j", State.FAILED, 3)
    accounting.apply([pod("j-3", node="b", bound=30, phase="Running", owner="Job/j")], 31.0)
    accounting.apply([gone("j-1"), pod("j-3", node="b", bound=30, phase="Succeeded", ended=40, owner="Job/j")], 41.0)
    accounting.write(41.0)
    (entry,) = entries(history)
    assert (entry.job.state, entry.job.exit_code, entry.runs, entry.gpu_seconds) == (State.SUCCEEDED, 0, 2, 20.0)


def test_a_gang_is_the_object_behind_its_group_or_the_group(history):
    owned = {"name": "jobset-js", "namespace": "vision", "uid": "uid-g1"}
    owned["ownerReferences"] = [{"kind": "JobSet", "name": "js", "uid": "uid-js", "controller": True}]
    plain = {"name": "g", "namespace": "vision", "uid": "uid-g2"}
    groups = {
        f"vision/{each['name']}": msgspec.convert({"metadata": each, "spec": {"minMember": 2, "queue": "gangs"}}, views.PodGroup)
        for each in (owned, plain)
    }
    accounting = Accounting(history, groups.get)
    accounting.apply(
        [pod(f"a{i}", node="a", bound=10, phase="Running", owner="Job/js-w", group="jobset-js") for i in range(2)], 12.0
    )
    accounting.apply([pod(f"b{i}", node="a", bound=10, phase="Running", group="g") for i in range(2)], 12.0)
    accounting.write(12.0)
    found = {(each.job.kind, each.job.name): (each.job.queue, each.runs) for each in entries(history)}
    assert found == {("JobSet", "js"): ("gangs", 2), ("PodGroup", "g"): ("gangs", 2)}


def test_an_aijob_says_itself_where_it_stands(history):
    accounting = Accounting(history)
    accounting.apply([job("Pending")], 4.0)
    accounting.write(4.0)
    assert [entry.job.state for entry in entries(history)] == [State.PENDING]
    member = {"owner": "AIJob/bert", "group": "bert", "node": "a", "bound": 10}
    accounting.apply([job("Running", startedAt=at(11)), pod("bert-worker-0-0", phase="Running", **member)], 12.0)
    accounting.apply([pod("bert-worker-0-0", phase="Failed", ended=20, exit_code=7, **member)], 20.0)
    accounting.apply([job("Restarting", startedAt=at(11), restarts=1)], 20.0)
    accounting.write(20.0)
    (entry,) = entries(history)
    assert (entry.job.state, entry.job.restarts, entry.job.exit_code) == (State.RUNNING, 1, 7)
    accounting.apply([job("Failed", startedAt=at(11), finishedAt=at(50), restarts=1, interruptions=2, message="no more")], 51.0)
    accounting.apply([JobObserved("vision/bert", None), gone("bert-worker-0-0")], 52.0)
    accounting.write(52.0)
    (entry,) = entries(history)
    assert (entry.job.state, entry.job.ended_at, entry.job.exit_code, entry.job.message) == (State.FAILED, 50.0, 7, "no more")
    assert (entry.job.interruptions, entry.runs, entry.gpu_seconds) == (2, 1, 10.0)


def test_an_aijob_that_is_deleted_before_its_end_was_cancelled_and_its_name_may_come_again(history):
    accounting = Accounting(history)
    accounting.apply([job("Running", startedAt=at(11)), JobObserved("vision/bert", None), job("Pending", uid="uid-again")], 12.0)
    accounting.write(12.0)
    assert {each.job.uid: each.job.state for each in entries(history)} == {
        "uid-bert": State.CANCELLED,
        "uid-again": State.PENDING,
    }
    accounting.apply([job("Succeeded", uid="uid-third", finishedAt=at(20))], 21.0)  # the end of the second was not observed
    accounting.write(21.0)
    assert {each.job.uid: each.job.state for each in entries(history)}["uid-again"] == State.CANCELLED


def test_nothing_counts_twice_after_a_restart(history):
    first = Accounting(history)
    seen = [
        pod("ends", node="a", bound=10, phase="Running"),
        pod("goes", node="a", bound=10, phase="Running"),
        pod("ended", node="a", bound=10, phase="Failed", owner="Job/j"),  # without a word about when
        job("Running", startedAt=at(11)),
    ]
    first.apply(seen, 100.0)
    first.write(100.0)
    second = Accounting(history)
    second.apply([pod("ends", node="a", bound=10, phase="Succeeded", ended=160), seen[2]], 500.0)
    second.close_others()
    second.write(500.0)
    runs = {run.name: run for entry in entries(history) for run in history.runs(entry.job.uid)}
    assert (runs["ends"].ended_at, runs["ended"].ended_at) == (160.0, 100.0)
    assert (runs["goes"].ended_at, runs["goes"].outcome) == (100.0, "Lost")  # no later than the last observation
    states = {entry.job.name: entry.job.state for entry in entries(history)}
    assert states == {"ends": State.SUCCEEDED, "goes": State.LOST, "j": State.FAILED, "bert": State.LOST}


def test_a_suspended_workload_is_not_cancelled(history):
    group = {"metadata": {"name": "job-j", "namespace": "vision"}, "spec": {}, "status": {"target": {"state": "Suspended"}}}
    accounting = Accounting(history, {"vision/job-j": msgspec.convert(group, views.PodGroup)}.get)
    accounting.apply([pod("j-1", node="a", bound=10, phase="Running", owner="Job/j"), gone("j-1")], 30.0)
    accounting.write(30.0)
    assert [(entry.job.state, entry.job.ended_at) for entry in entries(history)] == [(State.SUSPENDED, None)]


def test_pods_of_other_schedulers_are_not_ours(history):
    observed = pod("lone", node="a", bound=10, phase="Running")
    observed.view.spec.scheduler_name = "default-scheduler"
    accounting = Accounting(history)
    accounting.apply([observed], 12.0)
    accounting.write(12.0)
    assert entries(history) == []


def test_a_name_that_comes_again_at_once_is_another_run(history):
    accounting = Accounting(history)
    accounting.apply([pod("web-0", node="a", bound=10, phase="Running", owner="StatefulSet/web")], 12.0)
    accounting.apply([pod("web-0", uid="second", node="a", bound=30, phase="Running", owner="StatefulSet/web")], 31.0)
    accounting.write(31.0)
    assert [(run.uid, run.ended_at) for run in history.runs("uid-web")] == [("uid-web-0", 31.0), ("second", None)]


def test_what_could_not_be_written_is_written_next_time(history, monkeypatch):
    accounting = Accounting(history)
    accounting.apply([pod("lone", node="a", bound=10, phase="Running")], 12.0)
    with monkeypatch.context() as patched:

        def fails(*_, **__):
            raise HistoryError("disk full")

        patched.setattr(history, "write", fails)
        with pytest.raises(HistoryError):
            accounting.write(12.0)
    assert accounting.write(13.0) == 2
    assert len(entries(history)) == 1


def test_which_jobs_are_shown(history):
    accounting = Accounting(history)
    accounting.apply([pod("early", node="a", bound=10, phase="Succeeded", ended=20)], 21.0)
    accounting.apply([pod("late", node="a", bound=500, phase="Running", creationTimestamp=at(400))], 501.0)
    accounting.write(501.0)

    def shown(**wanted):
        return [entry.job.name for entry in history.jobs(Wanted(**wanted), 600.0)]

    assert shown() == ["late", "early"]
    assert shown(since=100.0) == ["late"]
    assert shown(until=100.0) == ["early"]
    assert shown(states=["Succeeded"]) == ["early"]
    assert shown(user="vision", queue="research", namespace="vision", name="late") == ["late"]
    assert shown(user="somebody") == shown(queue="other") == shown(namespace="other") == []
    assert shown(limit=1) == ["late"]


def test_what_ended_long_ago_is_forgotten_with_its_runs(history):
    accounting = Accounting(history)
    accounting.apply([pod("early", node="a", bound=10, phase="Succeeded", ended=20), pod("late", node="a", bound=10)], 21.0)
    accounting.write(21.0)
    assert history.forget(15.0) == 0
    assert history.forget(30.0) == 1
    assert [entry.job.name for entry in entries(history)] == ["late"]
    assert history.runs("uid-early") == []


def test_more_than_a_statement_takes(history):
    runs = [
        Run(
            uid=f"r{i}",
            job="j",
            namespace="n",
            name=f"p{i}",
            queue="q",
            service_class="",
            user="u",
            node="a",
            gpus=1.0,
            cpus=1.0,
            started_at=1.0,
        )
        for i in range(2500)
    ]
    history.write([], runs)
    history.write([], runs)
    assert len(history.runs("j")) == len(history.written([], [run.uid for run in runs])[1]) == 2500


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////nowhere/at/all/history.db", "unable to open database file"),
        ("no url", "Could not parse"),
        ("postgresql+nothing://me:secret@host/db", r"postgresql\+nothing://me:\*\*\*@host/db"),
    ],
)
def test_a_database_that_cannot_be_opened_is_said_without_its_password(url, said):
    with pytest.raises(HistoryError, match=said) as caught:
        History(url)
    assert "secret" not in str(caught.value)


def test_who_only_reads_makes_nothing(tmp_path):
    with pytest.raises(HistoryError, match="no such file"):
        History(f"sqlite:///{tmp_path}/none.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_another_versions_database_is_refused(tmp_path):
    import sqlite3

    History(f"sqlite:///{tmp_path}/history.db").close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("update history_version set version_num = '99'")
    connection.close()
    with pytest.raises(HistoryError, match="version 99"):
        History(f"sqlite:///{tmp_path}/history.db")
