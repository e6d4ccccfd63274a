"""The policies that fence off a scheduler whose lease is over."""

from __future__ import annotations

from tests.contract.cases.common import PODS, bind, case, pod


@case
def an_old_epoch_is_refused(api):
    lease = {"metadata": {"name": "fairlead-scheduler"}, "spec": {"holderIdentity": "new", "leaseTransitions": 5}}
    api.put("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler", lease)
    api.policies()

    def refused():
        name = api.fresh()
        api.post(PODS, pod(name)).ok(201)
        return bind(api, name, annotations={"fairlead.dev/epoch": "4"}).status == 403

    api.until(refused)
    name = api.fresh()
    api.post(PODS, pod(name)).ok(201)
    answer = bind(api, name, annotations={"fairlead.dev/epoch": "4"})
    answer.no(403, "Forbidden", "denied request: stale scheduler: binding of epoch 4 after the lease moved on")
    bind(api, name, annotations={"fairlead.dev/epoch": "5"}).ok(201)


@case
def a_binding_of_another_release_is_judged_by_its_own_lease(api):
    """It names that Lease; one that names none is the first release's."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    for name, transitions in (("fairlead-scheduler", 5), ("blue-scheduler", 2)):
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": "new", "leaseTransitions": transitions}}
        api.put(f"{leases}/{name}", lease)
    api.policies()

    def answer(**annotations):
        name = api.fresh()
        api.post(PODS, pod(name)).ok(201)
        return bind(api, name, annotations={f"fairlead.dev/{key}": value for key, value in annotations.items()})

    api.until(lambda: answer(epoch="4").status == 403)
    api.until(lambda: answer(epoch="1", lease="blue-scheduler").status == 403)
    answer(epoch="2", lease="blue-scheduler").ok(201)
    answer(epoch="1", lease="green-scheduler").ok(201)  # which has no policy
    answer(epoch="4", lease="fairlead-scheduler").no(403, "Forbidden", "stale scheduler: binding of epoch 4")
    answer(epoch="5", lease="fairlead-scheduler").ok(201)
