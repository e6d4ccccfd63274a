"""`queue` shows the priority with which a job counts, as the core and `explain` have it."""

import msgspec

from fairlead.cli.picture import Picture
from fairlead.cli.queue import jobs
from fairlead.cluster import views
from testbed import objects


def test_the_priority_of_a_class_is_shown_by_queue_and_counts_in_the_core():
    picture = Picture(100.0)
    pod = objects.pod("p", queue="q", labels={"fairlead.dev/service-class": "gold"})
    pod["metadata"] |= {"uid": "u", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:10Z"}
    picture.pods = [msgspec.convert(pod, views.Pod)]
    picture.classes = [msgspec.convert({"metadata": {"name": "gold"}, "spec": {"priorityClassName": "high"}}, views.ServiceClass)]
    picture.priorities = [msgspec.convert({"metadata": {"name": "high"}, "value": 1000}, views.PriorityClass)]
    picture.queues = [msgspec.convert({"metadata": {"name": "q"}, "spec": {}}, views.Queue)]
    (job,) = jobs(picture)
    assert job.priority == 1000 == picture.state.tasks["u"].pod.priority
