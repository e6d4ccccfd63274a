"""Members that have nodes and do not start: when a job is stopped for that, and what it reports."""

import msgspec
import pytest

from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster import views
from fairlead.cluster.starting import Trouble, bound_at, trouble_of
from fairlead.operator.jobs.defaults import filled
from fairlead.operator.jobs.members import group
from fairlead.operator.jobs.starting import Starting
from tests.operator.builders import CONTAINER, Story, job

PULLS = 'container main: ImagePullBackOff: Back-off pulling image "trian:1"'


def stuck(story, which, reason="ImagePullBackOff", message=PULLS, since=None):
    """A member's container reports why it does not start."""
    story.set(which, starting=Starting(Trouble(reason, message), story.now if since is None else since))


def bind(story, which=None):
    story.set(which, node="n", bound=story.now, starting=Starting(Trouble("", "the kubelet has not started it yet"), story.now))


def condition(story):
    return next((each for each in story.job.status.conditions if each.type == "Started"), None)


def test_a_job_is_stopped_at_its_deadline_and_fails_when_its_restarts_are_used_up():
    story = Story(job(restart={"limit": 1, "backoff": "10s"}, startTimeout="5m"))
    story.look()
    story.now += 3600.0
    bind(story)
    story.set("0", phase="Running", starting=None)
    stuck(story, "1")
    assert story.look().recheck_after == 300.0
    assert (story.phase, story.look(299.0).recheck_after) == ("Starting", 1.0)
    decided = story.look(1.0)
    assert (story.phase, decided.delete) == ("Restarting", ("bert-worker-0-0", "bert-worker-1-0"))
    assert story.job.status.message == f"bert-worker-1-0 did not start within 5m: {PULLS}: restart 1 of 1 in 10 s"
    assert (story.job.status.restarts, condition(story).status, condition(story).reason) == (1, "False", "ImagePullBackOff")
    assert not decided.blamed  # an image that cannot be pulled is no evidence about the node
    story.look(11.0)
    bind(story)
    stuck(story, "1")
    story.look()
    assert condition(story).status == "False"
    story.look(300.0)
    assert (story.phase, story.job.status.attempt) == ("Failed", 1)
    assert story.job.status.message.startswith(f"bert-worker-1-1 did not start within 5m: {PULLS}")


def test_what_starts_in_time_is_no_failure_and_what_has_run_once_has_started():
    story = Story(job())
    story.look()
    bind(story)
    story.look(899.0)
    story.set(phase="Running", starting=None)
    story.look(1.0)
    assert story.phase == "Running"
    assert condition(story) is None
    story.look(86_400.0)
    assert story.phase == "Running"


def test_the_deadline_counts_from_when_the_last_of_the_gang_has_a_node():
    story = Story(job())
    story.look()
    bind(story, "0")
    stuck(story, "0")
    story.look(2000.0)
    assert story.phase == "Pending"
    bind(story, "1")
    story.set("1", phase="Running", starting=None)
    story.look(899.0)
    assert story.phase == "Starting"
    story.look(1.0)
    assert story.phase == "Restarting"


def test_a_resumption_begins_it_anew():
    story = Story(job())
    story.look()
    bind(story)
    stuck(story, "0")
    story.look(800.0)
    story.policy = True
    story.look(10.0)
    story.policy = False
    story.look(10.0)
    bind(story)
    stuck(story, "0")
    story.look(890.0)
    assert story.phase == "Pending"
    story.look(10.0)
    assert story.phase == "Restarting"


def test_an_image_name_that_cannot_be_parsed_ends_the_job_at_once():
    story = Story(job(restart={"limit": 3}))
    story.look()
    bind(story)
    stuck(story, "1", "InvalidImageName", "container main: InvalidImageName: couldn't parse image name")
    story.look(1.0)
    assert (story.phase, story.job.status.restarts) == ("Failed", 0)
    assert "bert-worker-1-0 can never start: container main: InvalidImageName" in story.job.status.message


def test_a_configuration_that_is_missing_is_given_one_more_start():
    story = Story(job(restart={"limit": 3}))
    for attempt, after in ((0, "Restarting"), (1, "Failed")):
        story.look(2.0)
        bind(story)
        stuck(story, "0", "CreateContainerConfigError", 'container main: CreateContainerConfigError: secret "key" not found')
        assert story.look(10.0).recheck_after == 20.0
        story.look(20.0)
        assert (story.phase, story.job.status.attempt) == (after, 1), attempt
    assert 'secret "key" not found' in story.job.status.message
    assert condition(story).reason == "CreateContainerConfigError"


def test_a_start_that_succeeds_ends_the_count_of_hopeless_ones():
    story = Story(job(restart={"limit": 5, "backoff": "1s"}))
    for _ in range(2):
        story.look(3.0)
        bind(story)
        stuck(story, "0", "CreateContainerConfigError", "no", since=story.now - 31.0)
        story.look()
        assert story.phase == "Restarting"
        story.look(9.0)
        story.run()
        assert condition(story).status == "True"
        story.set("0", phase="Failed", exit_code=1)
        story.look()
    assert story.job.status.restarts == 4


def elastic():
    template = {"spec": {"containers": [CONTAINER]}}
    roles = [{"name": "worker", "replicas": 2, "minReplicas": 2, "maxReplicas": 4, "template": template}]
    story = Story(job(roles=roles, restart={"limit": 0}))
    story.look()
    bind(story)
    for which in "01":
        story.set(which, phase="Running", starting=None)
    return story


@pytest.mark.parametrize(
    ("reason", "after"), [("ImagePullBackOff", 900.0), ("CreateContainerConfigError", 30.0), ("InvalidImageName", 1.0)]
)
def test_members_beyond_the_minimum_that_do_not_start_are_given_up_alone(reason, after):
    """What is hopeless at once: its startTimeout is for what may come about."""
    story = elastic()
    stuck(story, "3", reason)
    story.set("2", phase="Running", starting=None)
    assert after == 1.0 or story.look(after - 1.0).delete == ()
    decided = story.look(1.0)
    assert decided.delete == ("bert-worker-3-0",)
    assert (story.phase, story.job.status.restarts) in (("Running", 0), ("Resizing", 0))
    assert story.job.status.starts.failed == 1


def test_one_that_is_hopeless_is_given_up_while_those_that_are_needed_start_still():
    template = {"spec": {"containers": [CONTAINER]}}
    roles = [{"name": "worker", "replicas": 2, "minReplicas": 2, "maxReplicas": 3, "template": template}]
    story = Story(job(roles=roles))
    story.look()
    bind(story)
    stuck(story, "2", "InvalidImageName", "no name")
    assert story.look(1.0).delete == ("bert-worker-2-0",)
    assert (story.phase, story.job.status.restarts) == ("Pending", 0)


def test_members_that_were_given_up_come_back_ever_later():
    """Until one starts, or finds no capacity for ten minutes; a new attempt begins again."""
    story = elastic()
    story.set("2", phase="Running", starting=None)
    story.look()
    waits = []
    for _ in range(8):
        stuck(story, "3", "InvalidImageName", "no name")
        assert story.look(1.0).delete == ("bert-worker-3-0",)
        since = story.now
        while "bert-worker-3-0" not in story.pods:
            story.look(1.0)
        waits.append(story.now - since)
        bind(story, "3")
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    assert (story.job.status.starts.failed, "no name" in story.job.status.starts.message) == (8, True)
    story.set("3", phase="Running", starting=None)
    story.look(1.0)
    assert story.job.status.starts is None
    stuck_again = story.pods["bert-worker-3-0"]
    story.pods["bert-worker-3-0"] = msgspec.structs.replace(stuck_again, phase="Pending")
    stuck(story, "3", "InvalidImageName", "no name")
    story.look(1.0)
    assert story.job.status.starts.failed == 1
    story.policy = True
    story.look(1.0)
    assert story.job.status.starts is None


def test_a_needed_member_that_does_not_start_stops_nothing_where_enough_others_run():
    story = elastic()
    story.set("2", phase="Running", starting=None)
    story.set("3", phase="Running", starting=None)
    story.look()
    story.pods["bert-worker-1-0"] = msgspec.structs.replace(
        story.pods["bert-worker-1-0"], phase="Pending", bound=story.now, starting=Starting(Trouble("X", "x"), story.now)
    )
    story.look(1000.0)
    assert story.phase in ("Running", "Resizing")
    assert "bert-worker-1-0" not in story.pods


def test_members_that_have_succeeded_are_not_waited_for():
    story = Story(job(startTimeout="1m"))
    story.look()
    bind(story)
    story.set("0", phase="Succeeded", starting=None, done=True)
    stuck(story, "1")
    story.look(59.0)
    assert story.phase == "Starting"
    story.look(1.0)
    assert story.phase == "Restarting"


def test_the_class_gives_the_timeout_where_the_job_does_not():
    made = {"metadata": {"name": "c"}, "spec": {"startTimeout": "2m"}}
    classes = {"c": msgspec.convert(made, ServiceClass)}
    assert filled(job(serviceClass="c"), classes).spec.start_timeout == "2m"
    given = filled(job(serviceClass="c", startTimeout="1h"), classes)
    assert given.spec.start_timeout == "1h"
    assert group(given)["spec"]["startTimeout"] == "1h"
    assert "startTimeout" not in group(filled(job(), classes))["spec"]


def container(name="main", **fields):
    return msgspec.convert({"name": name, **fields}, views.ContainerStatus)


def waiting(reason, message="", name="main", **fields):
    return container(name, state={"waiting": {"reason": reason, "message": message}}, **fields)


def conditions(**states):
    return [msgspec.convert({"type": kind, "status": status}, views.Condition) for kind, status in states.items()]


RUNS = {"running": {}}
ENDED = {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("phase", "containers", "init", "told"),
    [
        ("Running", [waiting("CrashLoopBackOff")], [], None),
        ("Pending", [container(state=RUNS)], [], None),
        ("Pending", [waiting("ImagePullBackOff", lastState=ENDED)], [], None),
        ("Pending", [waiting("ImagePullBackOff", restartCount=1)], [], None),
        ("Pending", [waiting("ImagePullBackOff", "no"), container("b", state=RUNS)], [], "container main: ImagePullBackOff: no"),
        ("Pending", [], [], "the kubelet has not started it yet"),
        ("Pending", [waiting("PodInitializing")], [container("stage", state=RUNS)], "init container stage is still running"),
        ("Pending", [waiting("PodInitializing")], [waiting("ErrImagePull", name="i")], "init container i: ErrImagePull"),
        (
            "Pending",
            [waiting("ContainerCreating")],
            [],
            "container main: its image is being pulled, or the container is being created",
        ),
    ],
)
def test_a_pod_has_started_once_each_of_its_containers_has_run(phase, containers, init, told):
    found = trouble_of(phase, [], containers, init)
    assert (found.message if found is not None else None) == told


def test_a_volume_that_cannot_be_mounted_is_told_by_the_sandbox():
    found = trouble_of("Pending", conditions(PodReadyToStartContainers="False"), [waiting("ContainerCreating")])
    assert "volumes" in found.message


def test_when_a_pod_got_its_node():
    when = "2026-01-01T00:00:10Z"
    scheduled = [msgspec.convert({"type": "PodScheduled", "status": "True", "lastTransitionTime": when}, views.Condition)]
    assert bound_at(scheduled, None, "2026-01-01T00:00:00Z") == bound_at([], when, None) == 1_767_225_610.0
