"""`queue` shows the priority with which a job counts, as the core and `explain` have it."""

import msgspec

from fairlead.cli.queue import jobs
from fairlead.cli.snapshot import Snapshot
from fairlead.cluster import views
from testbed import objects


def test_the_priority_of_a_class_is_shown_by_queue_and_counts_in_the_core():
    snapshot = Snapshot(100.0)
    pod = objects.pod("p", queue="q", labels={"fairlead.dev/service-class": "gold"})
    pod["metadata"] |= {"uid": "u", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:10Z"}
    snapshot.pods = [msgspec.convert(pod, views.Pod)]
    snapshot.classes = [
        msgspec.convert({"metadata": {"name": "gold"}, "spec": {"priorityClassName": "high"}}, views.ServiceClass)
    ]
    snapshot.priorities = [msgspec.convert({"metadata": {"name": "high"}, "value": 1000}, views.PriorityClass)]
    snapshot.queues = [msgspec.convert({"metadata": {"name": "q"}, "spec": {}}, views.Queue)]
    (job,) = jobs(snapshot)
    assert job.priority == 1000 == snapshot.state.tasks["u"].pod.priority
