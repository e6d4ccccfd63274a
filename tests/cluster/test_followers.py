"""The annotation that says which pods follow a gang's members: what is written is read, and nothing else is believed."""

import msgspec
import pytest

from fairlead.api.names import FOLLOWERS_ANNOTATION
from fairlead.cluster import convert, followers, views
from fairlead.core.model.groups import Followers
from fairlead.core.model.pods import Closeness

LEADERS = {"batch.kubernetes.io/job-completion-index": "0"}


def group(text, kind="JobSet", **more):
    owner = {"kind": kind, "name": "x", "uid": "u", "controller": True, **more}
    metadata = {"name": "jobset.x", "namespace": "ns", "annotations": {FOLLOWERS_ANNOTATION: text}, "ownerReferences": [owner]}
    return convert.group(msgspec.convert({"metadata": metadata, "spec": {"minMember": 1}}, views.PodGroup))


def form(**more):
    return followers.Form(**{"gang": "jobsetfollowers.x.a", "leaders": LEADERS, "level": "rack", "count": 3, **more})


def test_what_the_annotations_of_kueue_ask_for_is_read():
    asked = {"kueue.x-k8s.io/podset-required-topology": "net/block", "kueue.x-k8s.io/podset-preferred-topology": "net/rack"}
    given = {"metadata": {"annotations": {**asked, "other": "text"}}, "spec": {"containers": [{"name": "main"}]}}
    (found,) = group(followers.written([form(template=followers.template(given))])).followers
    assert found.like.closeness == Closeness(("net/block",), "net/rack")


def test_what_is_written_is_read():
    container = {"name": "main", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "2", "cpu": "4"}}}
    given = {
        "metadata": {"labels": {"app": "x", "fairlead.dev/queue": "q"}, "annotations": {"other": "text"}},
        "spec": {"schedulerName": "fairlead", "nodeSelector": {"kind": "gpu"}, "containers": [container]},
    }
    kept = followers.template(given)
    assert "image" not in str(kept)
    assert "other" not in str(kept)
    (found,) = group(followers.written([form(template=kept)])).followers
    assert (found.gang, found.leaders, found.level, found.count) == ("ns/jobsetfollowers.x.a", tuple(LEADERS.items()), "rack", 3)
    assert dict(found.like.spec.requests) == {"nvidia.com/gpu": 2, "cpu": 4000, "pods": 1}
    assert found.like.spec.node_selector == (("kind", "gpu"),)
    assert found.like.queue == "q"


def test_a_template_with_limits_alone_requests_them():
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "8", "cpu": "4"}}}
    given = followers.template({"spec": {"containers": [container], "initContainers": [{"name": "first"}]}})
    (found,) = group(followers.written([form(template=given)])).followers
    assert dict(found.like.spec.requests) == {"nvidia.com/gpu": 8, "cpu": 1000, "pods": 1}


@pytest.mark.parametrize(
    "template", [None, {"spec": {"containers": "two"}}, {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}]
)
def test_followers_whose_template_is_not_known(template):
    found = group(followers.written([form(template=template)])).followers
    assert found == (Followers("ns/jobsetfollowers.x.a", tuple(LEADERS.items()), "rack", 3),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        followers.written([form(count=0)]),
        followers.written([form(count=10**9)]),
        followers.written([form(leaders={})]),
        followers.written([form(level="")]),
        followers.written([form(gang="")]),
    ],
)
def test_what_cannot_be_is_nothing(text):
    assert group(text).followers == ()


def test_the_annotation_of_another_kinds_group_is_not_believed():
    text = followers.written([form()])
    assert group(text).followers
    assert group(text, kind="AIJob").followers == ()
    assert group(text, controller=False).followers == ()


def test_a_template_that_is_too_long_is_not_written():
    assert followers.template({"metadata": {"labels": {"a": "x" * (40 << 10)}}}) is None
