"""What the operator reads of pods, as API servers give them."""

import msgspec

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


def test_work_counts_as_saved_when_a_pod_that_was_told_to_end_did_so_in_good_order():
    at = "2026-01-01T00:00:09Z"
    assert saved_at(pod(deleted=at, finishedAt=at)) == at
    assert saved_at(pod(deleted=at, finishedAt=at, exitCode=85)) == at
    assert saved_at(pod(deleted=at, finishedAt=at, exitCode=137)) == ""
    assert saved_at(pod(finishedAt=at)) == "", "it came to its end by itself"
