"""What the operator reads of pods, as API servers give them."""

import msgspec

from fairlead.operator.jobs.controller import _Pod, _saved, _seen

TERMINATED = {"exitCode": 0, "reason": "Completed", "startedAt": None, "finishedAt": None, "containerID": ""}


def pod(deleted=None, **terminated):
    state = {"waiting": None, "running": None, "terminated": {**TERMINATED, **terminated}}
    container = {"name": "main", "state": state, "lastState": {}, "ready": False, "started": None}
    metadata = {"name": "p", "namespace": "ns", "deletionTimestamp": deleted, "labels": None, "ownerReferences": None}
    status = {"phase": "Failed", "conditions": [], "containerStatuses": [container], "message": None}
    made = {"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": status}
    return msgspec.json.decode(msgspec.json.encode(made), type=_Pod)


def test_fields_without_a_value_are_read():
    assert _seen(pod(exitCode=3), 1, -1).exit_code == 3
    assert _seen(pod(), 1, -1).exit_code is None
    assert _saved(pod(deleted="2026-01-01T00:00:00Z")) == ""


def test_work_counts_as_saved_when_a_pod_that_was_told_to_end_did_so_in_good_order():
    at = "2026-01-01T00:00:09Z"
    assert _saved(pod(deleted=at, finishedAt=at)) == at
    assert _saved(pod(deleted=at, finishedAt=at, exitCode=85)) == at
    assert _saved(pod(deleted=at, finishedAt=at, exitCode=137)) == ""
    assert _saved(pod(finishedAt=at)) == "", "it came to its end by itself"
