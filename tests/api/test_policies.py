"""What the printed policies are as a whole; what they do is tried on the real API server (tests/e2e/test_policies_*.py)."""

import json

import pytest

from fairlead.api.policies import fencing, policies
from fairlead.api.policies.objects import GANG_LABELS
from fairlead.cluster import grouping


def test_each_policy_is_bound_once_and_refuses_what_it_cannot_evaluate() -> None:
    made = policies(["system:serviceaccount:ray:operator"])
    for kind in ("Validating", "Mutating"):
        bound = [each["spec"]["policyName"] for each in made if each["kind"] == f"{kind}AdmissionPolicyBinding"]
        rules = [each for each in made if each["kind"] == f"{kind}AdmissionPolicy"]
        assert bound == [each["metadata"]["name"] for each in rules]
        assert len(set(bound)) == len(bound)
        assert {each["spec"]["failurePolicy"] for each in rules} == {"Fail"}
    assert made[: len(fencing())] == fencing()


def test_bindings_of_pods_meet_fencing_alone() -> None:
    """Nothing new stands between a decision and its binding."""
    for each in policies():
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] != "fairlead-fencing":
            resources = [name for rule in each["spec"]["matchConstraints"]["resourceRules"] for name in rule["resources"]]
            assert not {"pods/binding", "*/*", "pods/*"} & set(resources), each["metadata"]["name"]


@pytest.mark.parametrize("name", ["o'brien", "back\\slash", "quote'); true || ('"])
def test_names_are_quoted(name: str) -> None:
    made = json.dumps(policies([name], provisioning_classes=[name]))
    quoted = json.dumps("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'")[1:-1]
    assert f"username == {quoted}" in made
    assert f" in [{quoted}]" in made


def test_labels_that_make_a_gang_are_those_that_the_scheduler_goes_by() -> None:
    for label in GANG_LABELS:
        if label != grouping.LWS_GROUP:
            assert grouping.group_of({label: "x"}), label
    known = (grouping.JOBSET_NAME, grouping.LWS_NAME, grouping.LWS_GROUP, grouping.TRAINING_NAME, grouping.RAY_CLUSTER)
    assert set(GANG_LABELS) == set(known)
