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
