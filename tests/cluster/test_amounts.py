"""What a pod says of itself is read once per kind of pod: nothing that matters may be missing from what kinds are told by."""

import copy

import msgspec

from fairlead.cluster import pod_specs, views

_PLAIN = {
    "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
    "spec": {
        "containers": [
            {"name": "main", "image": "x:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            {"name": "side", "image": "y:1"},
        ],
        "initContainers": [{"name": "first", "image": "z:1"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
    "status": {},
}

_CHANGES = {
    "nothing": {},
    "requests": {"spec.containers.0.resources.requests.cpu": "2"},
    "devices": {"spec.containers.1.resources": {"requests": {"nvidia.com/gpu": "2"}}},
    "image": {"spec.containers.0.image": "other:1"},
    "port": {"spec.containers.0.ports": [{"containerPort": 80, "hostPort": 80}]},
    "rules": {"spec.containers.0.restartPolicyRules": [{"action": "RestartAllContainers"}]},
    "first": {"spec.initContainers.0.resources": {"requests": {"cpu": "3"}}},
    "sidecar": {"spec.initContainers.0": {"name": "f", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}},
    "whole": {"spec.resources": {"requests": {"cpu": "9"}}},
    "overhead": {"spec.overhead": {"cpu": "250m"}},
    "selector": {"spec.nodeSelector": {"zone": "a"}},
    "toleration": {"spec.tolerations.0.effect": "NoSchedule"},
    "fraction": {"metadata.annotations": {"fairlead.dev/gpu-fraction": "0.5"}},
    "volume image": {"spec.volumes": [{"name": "v", "image": {"reference": "models:1"}}]},
    "claim": {"spec.volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
    "namespaces": {"spec.hostNetwork": True, "spec.hostUsers": False},
    "resized": {"status.containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]},
    "allocated": {"status.containerStatuses": [{"name": "main", "resources": {}, "allocatedResources": {"cpu": "5"}}]},
    "never": {
        "status.containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}],
        "status.conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    },
    "later": {
        "status.containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}],
        "status.conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
    },
}


def _changed(changes):
    raw = copy.deepcopy(_PLAIN)
    for path, value in changes.items():
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place = raw
        for part in way:
            place = place[part]
        place[last] = value
    return msgspec.convert(raw, views.Pod)


def test_each_kind_of_pod_is_read_as_if_it_were_the_only_one():
    together = {name: pod_specs.pod_spec(_changed(changes)) for name, changes in _CHANGES.items()}
    alone = {}
    for name, changes in _CHANGES.items():
        pod_specs._known_amounts.clear()
        alone[name] = pod_specs.pod_spec(_changed(changes))
    assert together == alone
    assert len(set(map(repr, alone.values()))) == len(alone) - 1, "only 'later' is as if nothing were wanted less"
    assert alone["later"] == alone["nothing"]


def test_no_more_is_kept_than_may_be(monkeypatch):
    monkeypatch.setattr(pod_specs, "_MOST_KEPT", 4)
    pod_specs._known_amounts.clear()
    for number in range(20):
        pod_specs.pod_spec(_changed({"spec.containers.0.image": f"x:{number}"}))
        assert len(pod_specs._known_amounts) <= 4
