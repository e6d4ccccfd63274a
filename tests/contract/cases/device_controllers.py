"""What kube-controller-manager does with claims and tainted devices: claims of templates, reservations, deallocation, evictions."""

from __future__ import annotations

from tests.contract.cases.common import EVENTS, MERGE, PODS, bind, case, pod
from tests.contract.cases.devices import CLAIMS, SLICES, TEMPLATES, allocated, claim, result, slice_, status, template

FINALIZER = "resource.kubernetes.io/delete-protection"


def using(name, **claims):
    """A pod that uses claims; those whose value begins with `from-` are made from that template."""
    listed = [
        {"name": each, **({"resourceClaimTemplateName": what[5:]} if what.startswith("from-") else {"resourceClaimName": what})}
        for each, what in claims.items()
    ]
    made = pod(name, resourceClaims=listed)
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": each} for each in claims]
    return made


def made_claims(api, name):
    """The names of a pod's claims, by their names in the pod, once they are noted."""
    return {
        each["name"]: each["resourceClaimName"]
        for each in api.get(f"{PODS}/{name}").ok()["status"].get("resourceClaimStatuses") or ()
    }


def with_claim(api, name, **more):
    """The name of the one claim that is made for a new pod."""
    api.post(TEMPLATES, template(name, **more)).ok(201)
    api.post(PODS, using(name, gpu=f"from-{name}")).ok(201)
    api.until(lambda: made_claims(api, name))
    return made_claims(api, name)["gpu"]


def gone(api, path):
    return api.get(path).status == 404


def consumer(api, name):
    return {"resource": "pods", "name": name, "uid": api.get(f"{PODS}/{name}").ok()["metadata"]["uid"]}


def held(api, name, *pods, device="gpu-0", pool="n1", **more):
    """A claim is allocated, and reserved for pods, as a scheduler does it."""
    api.patch(f"{CLAIMS}/{name}", {"metadata": {"finalizers": [FINALIZER]}}, MERGE).ok()
    taken = allocated(result(device, pool=pool, **more))
    return status(api, name, allocation=taken, reservedFor=[consumer(api, each) for each in pods]).ok()


def ends(api, name):
    api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}, MERGE).ok()


@case
def a_claim_is_made_for_each_template_of_a_pod(api):
    made = template(api.name)
    made["spec"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    api.post(TEMPLATES, made).ok(201)
    owner = api.post(PODS, using(api.name, one=f"from-{api.name}", two=f"from-{api.name}")).ok(201)["metadata"]
    api.until(lambda: len(made_claims(api, api.name)) == 2)
    for name, called in made_claims(api, api.name).items():
        found = api.get(f"{CLAIMS}/{called}").ok()
        metadata = found["metadata"]
        assert metadata["generateName"] == f"{api.name}-{name}-"[: len(metadata["generateName"])]
        assert (metadata["name"][:-5], metadata["labels"]) == (metadata["generateName"], {"team": "a"})
        assert metadata["annotations"] == {"note": "b", "resource.kubernetes.io/pod-claim-name": name}
        assert metadata["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Pod", "name": api.name, "uid": owner["uid"], "controller": True}
        ]
        assert "finalizers" not in metadata
        assert found["spec"] == api.get(f"{TEMPLATES}/{api.name}").ok()["spec"]["spec"]


@case
def long_names_of_claims_keep_a_part_of_both(api):
    api.post(TEMPLATES, template(api.name)).ok(201)
    name, long = f"{api.name}-{'p' * 60}"[:63], "c" * 40
    api.post(PODS, using(name, **{long: f"from-{api.name}"})).ok(201)
    api.until(lambda: made_claims(api, name))
    called = made_claims(api, name)[long]
    base = len(f"{name}-{long}-")
    assert called[:-5] == f"{name[: len(name) * 57 // base]}-{long[: len(long) * 57 // base]}"


@case
def a_missing_template_is_an_event_and_waited_for(api):
    api.post(PODS, using(api.name, gpu=f"from-{api.name}")).ok(201)

    def said():
        found = api.get(f"{EVENTS}?fieldSelector=involvedObject.name={api.name}").ok()["items"]
        return [(each["type"], each["reason"], each["message"]) for each in found]

    missing = f'resourceclaimtemplate.resource.k8s.io "{api.name}" not found'
    message = f'PodResourceClaim gpu: resource claim template "{api.name}": {missing}'
    api.until(lambda: ("Warning", "FailedResourceClaimCreation", message) in said())
    api.post(TEMPLATES, template(api.name)).ok(201)
    api.until(lambda: made_claims(api, api.name))


@case
def a_claim_of_a_template_goes_with_its_pod(api):
    called = with_claim(api, api.name)
    held(api, called, api.name)
    api.delete(f"{PODS}/{api.name}", b'{"gracePeriodSeconds": 0}').ok()
    api.until(lambda: gone(api, f"{CLAIMS}/{called}"))


@case
def a_claim_of_a_template_goes_when_its_pod_has_ended(api):
    called = with_claim(api, api.name)
    held(api, called, api.name)
    ends(api, api.name)
    api.until(lambda: gone(api, f"{CLAIMS}/{called}"))
    assert api.get(f"{PODS}/{api.name}").ok()["status"]["phase"] == "Succeeded"


@case
def a_claim_is_deallocated_when_the_last_of_its_pods_has_ended(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    pods = [f"{api.name}-{number}" for number in range(2)]
    for each in pods:
        api.post(PODS, using(each, gpu=api.name)).ok(201)
    held(api, api.name, *pods)
    ends(api, pods[0])
    api.until(lambda: len(api.get(f"{CLAIMS}/{api.name}").ok()["status"]["reservedFor"]) == 1)
    found = api.get(f"{CLAIMS}/{api.name}").ok()
    assert (found["metadata"]["finalizers"], found["status"]["allocation"]) == ([FINALIZER], allocated())
    ends(api, pods[1])
    api.until(lambda: "finalizers" not in api.get(f"{CLAIMS}/{api.name}").ok()["metadata"])
    assert api.get(f"{CLAIMS}/{api.name}").ok()["status"] == {}


@case
def a_claim_that_was_allocated_otherwise_stays_allocated(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    api.post(PODS, using(api.name, gpu=api.name)).ok(201)
    status(api, api.name, allocation=allocated(), reservedFor=[consumer(api, api.name)]).ok()
    ends(api, api.name)
    api.until(lambda: "reservedFor" not in api.get(f"{CLAIMS}/{api.name}").ok()["status"])
    assert api.get(f"{CLAIMS}/{api.name}").ok()["status"]["allocation"] == allocated()


@case
def reservations_of_pods_that_are_not_there_go_and_those_of_others_stay(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    other = {"apiGroup": "example.com", "resource": "things", "name": "a", "uid": "1"}
    absent = {"resource": "pods", "name": f"{api.name}-absent", "uid": "2"}
    status(api, api.name, allocation=allocated(), reservedFor=[absent, other]).ok()
    api.until(lambda: api.get(f"{CLAIMS}/{api.name}").ok()["status"]["reservedFor"] == [other])


@case
def a_claim_that_is_deleted_in_use_stays_until_its_pod_has_ended(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    api.post(PODS, using(api.name, gpu=api.name)).ok(201)
    held(api, api.name, api.name)
    api.delete(f"{CLAIMS}/{api.name}").ok()
    assert api.get(f"{CLAIMS}/{api.name}").ok()["status"]["allocation"] == allocated()
    ends(api, api.name)
    api.until(lambda: gone(api, f"{CLAIMS}/{api.name}"))


@case
def a_claim_that_is_deleted_unused_and_allocated_goes(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    held(api, api.name)
    api.delete(f"{CLAIMS}/{api.name}").ok()
    api.until(lambda: gone(api, f"{CLAIMS}/{api.name}"))


@case
def a_pod_that_is_bound_without_a_reservation_gets_one(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    status(api, api.name, allocation=allocated()).ok()
    api.post(PODS, using(api.name, gpu=api.name)).ok(201)
    bind(api, api.name).ok(201)
    api.until(lambda: api.get(f"{CLAIMS}/{api.name}").ok()["status"].get("reservedFor") == [consumer(api, api.name)])


@case
def pods_with_tainted_devices_are_evicted_unless_they_tolerate_it(api):
    pool = {"name": api.name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(4)]
    live = api.post(SLICES, slice_(api.name, *devices, pool=pool)).ok(201)
    taint = {"key": "example.com/unhealthy", "effect": "NoExecute"}
    forever = {"key": taint["key"], "operator": "Exists", "effect": "NoExecute"}
    tolerations = {
        "none": [],
        "some": [{**forever, "effect": "NoSchedule"}],
        "soon": [{**forever, "tolerationSeconds": 1}],
        "always": [forever],
    }
    pods = {name: f"{api.name}-{name}" for name in tolerations}
    for number, (name, called) in enumerate(pods.items()):
        api.post(CLAIMS, claim(called)).ok(201)
        api.post(PODS, using(called, gpu=called)).ok(201)
        more = {"tolerations": tolerations[name]} if tolerations[name] else {}
        held(api, called, called, device=f"gpu-{number}", pool=api.name, **more)
        bind(api, called).ok(201)
    live["spec"]["devices"] = [{**each, "taints": [taint]} for each in devices]
    api.put(f"{SLICES}/{api.name}", live).ok()

    def evicted(name):
        return bool(api.get(f"{PODS}/{pods[name]}").ok()["metadata"].get("deletionTimestamp"))

    for name in ("none", "some", "soon"):
        api.until(lambda name=name: evicted(name))
    [condition] = [
        each for each in api.get(f"{PODS}/{pods['none']}").ok()["status"]["conditions"] if each["type"] == "DisruptionTarget"
    ]
    assert (condition["reason"], condition["message"]) == (
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
    )
    assert not evicted("always")
