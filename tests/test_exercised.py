"""Which rights were used, by an audit log: random roles and requests, and the three rights that have no request of their own."""

from __future__ import annotations

import random

import pytest

from fairlead.install import History, Values, objects
from testbed.exercised import Right, granted, refused, used, why

ALL = Values(image="f", external_metrics=True, history=History(storage="5Gi"), provisioning_classes=["small"])


def event(right, code=200, **more):
    """A request that uses a right, as the API server logs it."""
    kind = "RoleBinding" if right.namespace else "ClusterRoleBinding"
    binding = f"{right.role}/{right.namespace}" if right.namespace else right.role
    of = f'of {kind.removesuffix("Binding")} "{right.role}" to ServiceAccount "{right.role}/fairlead-system"'
    resource, _, subresource = right.resource.partition("/")
    about = {"resource": resource, "name": right.name or "x", **({"apiGroup": right.group} if right.group else {})}
    return {
        "user": {"username": "system:serviceaccount:fairlead-system:fairlead-operator"},
        "verb": right.verb,
        "requestURI": "/",
        "objectRef": about | ({"subresource": subresource} if subresource else {}),
        "responseStatus": {"code": code},
        "annotations": {"authorization.k8s.io/reason": f'RBAC: allowed by {kind} "{binding}" {of}'},
        **more,
    }


def drawn(draw):
    """Roles of a seed: of a namespace or of the whole cluster, some with rules about objects of a name."""
    found = []
    for number in range(draw.randint(1, 4)):
        namespace = draw.choice([{}, {"namespace": "a"}, {"namespace": "b"}])
        rules = [
            {
                "apiGroups": draw.sample(["", "x.dev"], draw.randint(1, 2)),
                "resources": draw.sample(["pods", "pods/status", "jobs"], draw.randint(1, 3)),
                "verbs": draw.sample(["get", "list", "update", "delete"], draw.randint(1, 3)),
                **draw.choice([{}, {"resourceNames": ["one", "two"]}]),
            }
            for _ in range(draw.randint(1, 3))
        ]
        found.append({"metadata": {"name": f"role-{number}", **namespace}, "rules": rules})
    return found


@pytest.mark.parametrize("seed", range(50))
def test_a_right_is_used_by_its_own_requests_and_by_no_others(seed):
    draw = random.Random(seed)
    rights = sorted(set(granted(drawn(draw))))
    assert set(rights) <= used(map(event, rights))
    left_out = draw.choice(rights)
    others = [each for each in rights if each._replace(name="") != left_out._replace(name="")]
    assert left_out not in used(map(event, others))
    elsewhere = left_out._replace(namespace="c")
    assert left_out not in used([event(elsewhere)])
    if left_out.name:
        assert left_out not in used([event(left_out._replace(name="three"))])
    for code in (401, 403, 404, 409, 500):
        assert used([event(left_out, code)]) == set()


def test_an_apply_that_creates_has_needed_create():
    patch = Right("r", "n", "discovery.k8s.io", "endpointslices", "patch", "a")
    assert Right("r", "n", "discovery.k8s.io", "endpointslices", "create") in used([event(patch, 201)])
    assert {each.verb for each in used([event(patch, 200)])} == {"patch"}


def test_an_object_that_blocks_the_deletion_of_its_owner_has_needed_its_finalizers():
    create = Right("r", "", "", "pods", "create")
    owner = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "blockOwnerDeletion": True}
    finalizers = Right("r", "", "fairlead.dev", "aijobs/finalizers", "update")
    for blocks, expected in ((True, True), (False, False)):
        body = {"metadata": {"ownerReferences": [{**owner, "blockOwnerDeletion": blocks}]}}
        assert (finalizers in used([event(create, 201, requestObject=body)])) is expected
    assert finalizers not in used([event(create, 403, requestObject={"metadata": {"ownerReferences": [owner]}})])


def test_what_users_do_by_the_roles_of_kubernetes_counts_for_those_that_these_contain():
    for role, ours in (("view", "fairlead-viewer"), ("edit", "fairlead-user"), ("admin", "fairlead-admin")):
        for namespace in ("", "vision"):
            right = Right(role, namespace, "fairlead.dev", "aijobs", "get")
            assert right._replace(role=ours, namespace="", name="x") in used([event(right)])


def test_who_was_not_allowed_what_is_told():
    right = Right("r", "", "", "pods", "get")
    told = refused([event(right), event(right, 404), event(right, 403, responseStatus={"code": 403, "message": "no"})])
    assert told == ["system:serviceaccount:fairlead-system:fairlead-operator: get /: no"]


def test_each_right_of_an_installation_is_told_with_the_reason_of_its_rule():
    rights = granted(each for each in objects(ALL) if "rules" in each and each["apiVersion"].startswith("rbac."))
    assert len(rights) > 150
    assert [each for each in rights if why(each).startswith("no rule")] == []
    assert why(Right("fairlead-operator", "", "", "secrets", "get")).startswith("no rule")
    [deletes] = [each for each in rights if each[:5] == ("fairlead-operator", "", "", "pods", "delete")]
    assert str(deletes) == "fairlead-operator: delete pods of core: members of jobs"


@pytest.mark.parametrize("verb", ["patch", "update"])
def test_who_writes_the_status_of_a_claim_uses_the_right_to_bind_it(verb):
    status = Right("fairlead-scheduler", "", "resource.k8s.io", "resourceclaims/status", verb)
    found = {each._replace(name="") for each in used([event(status)])}
    assert found == {status, status._replace(resource="resourceclaims/binding")}
    assert used([event(status, 403)]) == set()
