"""What the operator reads of pods, as API servers give them."""

import msgspec
import pytest

from fairlead.cluster.times import seconds
from fairlead.operator.jobs.pods import PodView, saved_at, seen

TERMINATED = {"exitCode": 0, "reason": "Completed", "startedAt": None, "finishedAt": None, "containerID": ""}


def pod(deleted=None, **terminated):
    state = {"waiting": None, "running": None, "terminated": {**TERMINATED, **terminated}}
    container = {"name": "main", "state": state, "lastState": {}, "ready": False, "started": None}
    metadata = {"name": "p", "namespace": "ns", "deletionTimestamp": deleted, "labels": None, "ownerReferences": None}
    status = {"phase": "Failed", "conditions": [], "containerStatuses": [container], "message": None}
    made = {"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": status}
    return msgspec.json.decode(msgspec.json.encode(made), type=PodView)


def test_fields_without_a_value_are_read():
    assert seen(pod(exitCode=3), 1, -1).exit_code == 3
    assert seen(pod(), 1, -1).exit_code is None
    assert saved_at(pod(deleted="2026-01-01T00:00:00Z")) == ""


def containers(*ended):
    """Statuses of containers that ended with a code at a second; a code of None: it has not begun."""
    waits = {"waiting": {"reason": "PodInitializing"}}
    return [
        {
            "name": f"c{number}",
            "state": waits if code is None else {"terminated": {"exitCode": code, "finishedAt": f"2026-01-01T00:00:{at:02}Z"}},
        }
        for number, (code, at) in enumerate(ended)
    ]


@pytest.mark.parametrize(
    ("main", "init", "code", "second"),
    [
        ([(42, 5)], [(0, 1), (143, 7)], 42, 5),
        ([(0, 5)], [(143, 7)], None, 5),
        ([(1, 9), (42, 5)], [], 42, 5),
        ([(None, 0)], [(0, 1), (3, 2)], 3, 2),
        ([(None, 0), (None, 0)], [], None, None),
    ],
    ids=["a sidecar is ended after it", "also where it succeeds", "the first that fails", "an init container", "nothing ended"],
)
def test_a_pod_has_failed_as_the_container_that_failed_it(main, init, code, second):
    view = pod()
    status = {"phase": "Failed", "containerStatuses": containers(*main), "initContainerStatuses": containers(*init)}
    view.status = msgspec.convert(status, type(view.status))
    found = seen(view, 1, -1)
    assert found.exit_code == code
    assert found.ended == (seconds(f"2026-01-01T00:00:{second:02}Z") if second else 0.0)


def test_work_counts_as_saved_when_a_pod_that_was_told_to_end_did_so_in_good_order():
    at = "2026-01-01T00:00:09Z"
    assert saved_at(pod(deleted=at, finishedAt=at)) == at
    assert saved_at(pod(deleted=at, finishedAt=at, exitCode=85)) == at
    assert saved_at(pod(deleted=at, finishedAt=at, exitCode=137)) == ""
    assert saved_at(pod(finishedAt=at)) == "", "it came to its end by itself"
