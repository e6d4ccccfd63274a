"""When `fairlead run` shows the job's message: unless the output of a member that failed explains the end."""

import pytest

from fairlead.cli.run import failed_by_itself


def member(code, *, phase="Failed", **more):
    conditions = [{"type": "DisruptionTarget", "status": "True"}] if more.get("evicted") else []
    metadata = {"name": "p", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if more.get("deleted") else {})}
    statuses = [{"state": {"terminated": {"exitCode": code}}}]
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses}}


def job(*, message="", started=None):
    conditions = [] if started is None else [{"type": "Started", "status": started}]
    return {"status": {"phase": "Failed", "message": message, "conditions": conditions}}


@pytest.mark.parametrize("message", ["", "p failed with exit code 3", "it reached its time limit of 1h"])
def test_fields_decide_and_no_words(message):
    assert failed_by_itself(job(message=message), [member(0, phase="Succeeded"), member(3)])
    assert failed_by_itself(job(message=message, started="True"), [member(3)])
    assert not failed_by_itself(job(message=message, started="False"), [member(3)])
    assert not failed_by_itself(job(message=message), [member(137, evicted=True)])
    assert not failed_by_itself(job(message=message), [member(143, deleted=True)])
    assert not failed_by_itself(job(message=message), [member(0)])
    assert not failed_by_itself(job(message=message), [])
    assert not failed_by_itself({}, [{"metadata": {}, "status": {"phase": "Failed"}}])
