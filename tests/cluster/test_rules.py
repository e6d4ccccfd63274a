"""Kinds of workloads that an administrator describes."""

from pathlib import Path

import pytest

from fairlead.cluster import convert, grouping, views
from fairlead.cluster.rules import RulesError, load
from fairlead.operator.workloads import WORKLOADS, known

EXAMPLES = Path(__file__).parents[2] / "examples/workloads"
RULE = {
    "apiVersion": "example.com/v1",
    "kind": "Sweep",
    "plural": "sweeps",
    "podLabel": "example.com/sweep",
    "gang": {"name": "sweep-{name}", "minMember": [1, "spec.groups.*.size", "spec.extra|2"]},
    "suspend": {"path": "spec.paused"},
    "schedulerNames": ["spec.groups.*.schedulerName"],
}


@pytest.fixture
def rules(tmp_path):
    def written(**changes):
        import yaml

        path = tmp_path / "rules.yaml"
        path.write_text(yaml.safe_dump({"workloads": [{**RULE, **changes}]}))
        return load(path)

    yield written
    grouping.use(())


def sweep(*sizes, scheduler="fairlead", **spec):
    groups = [{"size": size, "schedulerName": scheduler} for size in sizes]
    return {"metadata": {"name": "lr"}, "spec": {"groups": groups, **spec}}


def test_which_pods_start_together(rules):
    (kind,) = known(rules()).keys() - WORKLOADS.keys()
    workload = known(rules())[kind]
    assert dict(workload.gangs(sweep(3, 4))) == {"sweep-lr": 10}
    assert dict(workload.gangs(sweep(extra=0))) == {"sweep-lr": 1}
    assert dict(workload.gangs(sweep(3, extra="many"))) == {"sweep-lr": 6}, "what is no number is not there"
    assert workload.ours(sweep(1))
    assert not workload.ours(sweep(1, scheduler="default-scheduler"))
    assert known(rules(schedulerNames=[]))[kind].ours(sweep())


def test_its_pods_are_known_by_their_label(rules):
    labels = {"example.com/sweep": "lr"}
    view = views.Pod(views.Metadata(name="p", labels=labels), views.PodSpec(scheduler_name="fairlead"))
    assert convert.pod(view, "default").group == ""
    grouping.use(rules())
    pod = convert.pod(view, "default")
    assert (pod.group, pod.root, pod.owner) == ("sweep-lr", "example.com/v1/Sweep/lr", "Sweep/lr")
    grouping.use(rules(suspend=None))
    assert convert.pod(view, "default").root == ""


def test_it_is_suspended_by_the_field_that_the_rule_names(rules):
    (kind,) = known(rules()).keys() - WORKLOADS.keys()
    workload = known(rules())[kind]
    patch = workload.to_suspend(sweep(1), 3, "g")
    assert patch["spec"] == {"paused": True}
    assert workload.to_suspend(sweep(1, paused=True), 3, "g") is None
    assert workload.to_resume({**sweep(1, paused=True), "metadata": {"name": "lr", **patch["metadata"]}})["spec"] == {
        "paused": False
    }


def test_a_field_that_suspends_may_be_an_annotation(rules):
    made = known(rules(suspend={"path": ["metadata", "annotations", "stopped.example.com"], "suspended": "us", "resumed": None}))
    workload = made["example.com/v1", "Sweep"]
    patch = workload.to_suspend(sweep(1), 3, "g")
    assert patch["metadata"]["annotations"]["stopped.example.com"] == "us"
    assert patch["metadata"]["annotations"]["fairlead.dev/suspended-by"] == "policy"
    suspended = {"metadata": {"name": "lr", **patch["metadata"]}, "spec": {}}
    assert workload.to_suspend(suspended, 4, "g") is None
    resumed = workload.to_resume(suspended)["metadata"]["annotations"]
    assert set(resumed.values()) == {None}
    assert len(resumed) == 4


def test_the_examples():
    found = load(EXAMPLES)
    assert {each.kind for each in found} == {"SparkApplication", "Workflow", "PipelineRun", "Notebook"}
    workflow = known(found)["argoproj.io/v1alpha1", "Workflow"]
    assert workflow.ours({"metadata": {"name": "w"}, "spec": {"templates": [{}, {"schedulerName": "fairlead"}]}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gang": {"name": "all", "minMember": [1]}}, "the same for all objects"),
        ({"gang": {"name": "Sweep_{name}", "minMember": [1]}}, "does not give a valid object name"),
        ({"gang": {"name": "s-{name}", "minMember": []}}, "length"),
        ({"gang": {"name": "s-{name}", "minMember": ["spec.x|many"]}}, "not a number"),
        ({"gang": {"name": "s-{name}", "minMember": [-1]}}, "below 0"),
        ({"suspend": {"path": ""}}, "has an empty step"),
        ({"suspend": {"path": "spec..x"}}, "has an empty step"),
        ({"minMember": 3}, "unknown field `minMember`"),
        ({"kind": 3}, "Expected `str`"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(rules, changes, said):
    with pytest.raises(RulesError, match=said):
        rules(**changes)


def test_files_that_are_none(tmp_path):
    with pytest.raises(RulesError, match="No such file"):
        load(tmp_path / "none.yaml")
    for text, said in (("workloads: [", "rules.yaml"), ("- 1", "Expected `object`"), ("", "Expected `object`")):
        (tmp_path / "rules.yaml").write_text(text)
        with pytest.raises(RulesError, match=said):
            load(tmp_path / "rules.yaml")


def test_two_rules_for_one_kind_are_refused(tmp_path):
    import yaml

    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"workloads": [RULE]}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"workloads": [{**RULE, "podLabel": "example.com/other"}]}))
    with pytest.raises(RulesError, match=r"kind example\.com/v1 Sweep occurs twice"):
        load(tmp_path)
