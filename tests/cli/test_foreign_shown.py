"""What the commands show of pods of other schedulers: charged to their queue where the leader reports that it does so."""

import msgspec
import pytest

from fairlead.api.names import DEFAULT_QUEUE_LABEL
from fairlead.cli.explain import full_explanation
from fairlead.cli.snapshot import Snapshot
from fairlead.cluster import views
from fairlead.scheduler.explanations import find
from fairlead.scheduler.overview.queues import shares
from fairlead.scheduler.overview.quotas import quotas

GPU = "nvidia.com/gpu"


def made(name, gpus, scheduler, at="", namespace="team"):
    spec = {
        "schedulerName": scheduler,
        "nodeName": at,
        "containers": [{"name": "main", "resources": {"requests": {GPU: str(gpus), "cpu": "1"}}}],
    }
    labels = {"fairlead.dev/queue": "q"} if scheduler == "fairlead" else {}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod)


def snapshot(charged):
    found = Snapshot(100.0)
    status = {"allocatable": {GPU: "8", "cpu": "64", "memory": "1Ti", "pods": "110"}}
    found.nodes = [msgspec.convert({"metadata": {"name": "n"}, "status": status}, views.Node)]
    queue = {"metadata": {"name": "q"}, "spec": {"resources": [{"name": GPU, "limit": "4"}]}}
    if charged:
        queue["status"] = {"foreign": {GPU: "3"}}
    found.queues = [msgspec.convert(queue, views.Queue)]
    labels = {DEFAULT_QUEUE_LABEL: "q"}
    found.namespaces = [msgspec.convert({"metadata": {"name": "team", "labels": labels}}, views.Namespace)]
    found.pods = [
        made("theirs", 3, "default-scheduler", "n"),
        made("nobodys", 1, "default-scheduler", "n", "lab"),
        made("waits", 2, "fairlead"),
    ]
    return found


@pytest.mark.parametrize("charged", [True, False])
def test_share_quota_and_explain_tell_who_is_charged(charged):
    shown = snapshot(charged)
    (row,) = (each for each in shares(shown.state).queues if each.name == "q")
    (gpus,) = (each for each in row.resources if each.resource == GPU)
    assert (gpus.allocated, gpus.foreign, row.running) == ((3, 3, 1) if charged else (0, 0, 0))
    assert shown.state.belonging.outside()[GPU] == (1000 if charged else 4000)
    (quota,) = (each for each in quotas(shown.state) if each.queue == "q")
    used = {user.user: user.used.get(GPU, 0) for user in quota.users}
    assert used.get("team", 0) == (3 if charged else 0)
    tasks, gang = find(shown.state, "pod", "team", "waits")
    told = full_explanation(shown, "pod/waits", tasks, gang)
    if charged:
        assert told.code == "LimitExceeded"
        assert "holds 3 of at most 4 nvidia.com/gpu (3 of them held by pods of other schedulers)" in told.message
    else:
        assert told.would_start_on == ["n"]
