"""What a container is as a process: its command, environment, files, and what cannot be had without a container."""

import base64
import random
from itertools import combinations
from pathlib import Path

import pytest

from fairlead.agent.devices import WHOLE, Devices, links_here, links_in
from fairlead.agent.recipe import RecipeError, recipe, volumes
from fairlead.core.links.matrix import LinksError, by_place
from fairlead.simulation.gpusets.machines import machines

METADATA = {"name": "p", "namespace": "vision", "uid": "u", "labels": {"a": "b"}, "annotations": {}}
DATA = {
    ("configmaps", "script"): {"script": "#!/bin/sh\necho hi\n", "other": "x"},
    ("secrets", "token"): {"key": base64.b64encode(b"s3cret").decode()},
}


def lookup(kind, name):
    return DATA.get((kind, name))


def cook(folder, container, pod_volumes=(), outside=None, **spec):
    pod = {"metadata": METADATA, "spec": {"nodeName": "n", "volumes": list(pod_volumes), **spec}}
    mounted = volumes(pod, folder, lookup)
    return recipe(pod, {"name": "main", "command": ["run"], **container}, folder, mounted, lookup, outside or {}, 4711)


def test_a_script_from_a_config_map_is_found_where_it_is_laid_out(tmp_path):
    made = cook(
        tmp_path,
        {
            "command": ["/fairlead/script", "--data=/data/set", "/fairleader"],
            "env": [{"name": "HOME_OF", "value": "/fairlead/script:/data"}],
            "volumeMounts": [{"name": "s", "mountPath": "/fairlead"}, {"name": "d", "mountPath": "/data", "subPath": "in"}],
        },
        [{"name": "s", "configMap": {"name": "script", "defaultMode": 0o755}}, {"name": "d", "hostPath": {"path": "/mnt/d"}}],
    )
    script = tmp_path / "volumes/s/script"
    assert made.command == [str(script), "--data=/mnt/d/in/set", "/fairleader"]
    assert made.env["HOME_OF"] == f"{script}:/mnt/d/in"
    assert script.read_text() == "#!/bin/sh\necho hi\n"
    assert script.stat().st_mode & 0o777 == 0o755


def test_the_environment_is_what_kubernetes_would_make_of_it(tmp_path):
    env = [
        {"name": "ONE", "value": "1"},
        {"name": "TWO", "value": "$(ONE)2 $$(ONE) $(NOBODY)"},
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}},
        {"name": "MAYBE", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": True}}},
    ]
    given = {"command": ["sh", "-c", "$(TWO)"], "env": env, "envFrom": [{"configMapRef": {"name": "script"}, "prefix": "X_"}]}
    made = cook(tmp_path, given, outside={"PATH": "/bin", "SECRET_OF_THE_HOST": "no"})
    assert made.env["TWO"] == "12 $(ONE) $(NOBODY)"
    assert (made.env["WHO"], made.env["LABEL"], made.env["SECRET"], made.env["X_other"]) == ("p", "b", "s3cret", "x")
    assert made.env["PATH"] == "/bin"
    assert not {"MAYBE", "SECRET_OF_THE_HOST"} & set(made.env)
    assert made.command[2] == "12 $(ONE) $(NOBODY)"


def test_members_of_a_job_find_each_other_on_this_host(tmp_path):
    env = [
        {"name": "MASTER_ADDR", "value": "worker-0.bert.vision.svc"},
        {"name": "MASTER_PORT", "value": "29500"},
        {"name": "PET_RDZV_ENDPOINT", "value": "worker-0.bert.vision.svc:29500"},
        {"name": "OTHER", "value": "worker-0.ernie.vision.svc:29500 https://example.org:29500"},
    ]
    made = cook(tmp_path, {"env": env}, subdomain="bert")
    assert (made.env["MASTER_ADDR"], made.env["MASTER_PORT"]) == ("127.0.0.1", "4711")
    assert made.env["PET_RDZV_ENDPOINT"] == "127.0.0.1:4711"
    assert made.env["OTHER"] == env[3]["value"]


@pytest.mark.parametrize(
    ("container", "pod_volumes", "complaint"),
    [
        ({"command": []}, (), "no command"),
        ({}, [{"name": "v", "nfs": {"server": "s"}}], "is a nfs"),
        ({}, [{"name": "v", "configMap": {"name": "none"}}], "'none' does not exist"),
        (
            {},
            [{"name": "v", "configMap": {"name": "script", "items": [{"key": "other", "path": "../../x"}]}}],
            "points outside of",
        ),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.whatever"}}}]}, (), "spec.whatever"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "token", "key": "no"}}}]}, (), "no key 'no'"),
        ({"resources": {"limits": {"memory": "much"}}}, (), "memory limit 'much'"),
    ],
)
def test_what_cannot_be_run_says_why(tmp_path, container, pod_volumes, complaint):
    with pytest.raises(RecipeError, match=complaint):
        cook(tmp_path, container, pod_volumes)


def test_directories_and_limits(tmp_path):
    assert cook(tmp_path, {}).directory == tmp_path
    made = cook(tmp_path, {"workingDir": "/somewhere", "resources": {"limits": {"memory": "1Gi"}}})
    assert (made.directory, made.memory) == (Path("/somewhere"), 1 << 30)


def test_devices_are_given_whole_or_shared_and_come_back():
    devices = Devices(3)
    assert devices.take("a", 2) == [0, 1]
    assert devices.take("a", 2) == [0, 1], "the same again"
    assert devices.take("b", 1, 400) == [2]
    assert devices.take("c", 1, 500) == [2], "the fullest that fits"
    assert devices.take("d", 1) is None
    devices.give_back("a")
    assert devices.take("d", 1) == [0]
    devices.give_back("nobody")


@pytest.mark.parametrize("seed", range(20))
def test_devices_are_the_best_connected_of_those_that_are_free(seed):
    draw = random.Random(seed)
    links = next(each.links for each in machines() if each.name == "dgx-1-volta")
    devices, running = Devices(8, links), {}
    for number in range(60):
        free = [index for index, left in enumerate(devices.free) if left == WHOLE]
        if draw.random() < 0.6 and free:
            count = draw.randint(1, len(free))
            found = devices.take(str(number), count)
            best = max(_bandwidth(links, each) for each in combinations(free, count))
            assert _bandwidth(links, found) == best
            assert set(found) <= set(free)
            running[str(number)] = found
        elif running:
            devices.give_back(ended := draw.choice(sorted(running)))
            del running[ended]


def _bandwidth(links, chosen):
    return sum(links.weights[one][two] for one, two in combinations(chosen, 2))


def test_a_fraction_takes_a_device_that_is_shared_before_it_takes_a_pair_apart():
    links = by_place(["a", "a", "b", "b"], [None] * 4)
    devices = Devices(4, links)
    assert devices.take("a", 1, 400) == [0]
    assert devices.take("b", 1, 400) == [0]
    assert devices.take("c", 1, 400) == [1], "the other pair stays whole"
    assert devices.take("d", 2) == [2, 3]


def test_halves_are_beside_the_partner_that_is_named_whatever_comes_first():
    devices = Devices(3)
    assert devices.take_half("a", "alone") == [0]
    assert devices.take_half("c", "b") == [1], "its partner has not come yet"
    assert devices.take_half("b", "alone") == [1]
    assert devices.take_half("d", "a") == [0]
    assert devices.take_half("d", "a") == [0], "the same again"
    assert devices.take_half("e", "alone") == [2], "no half that nobody named"
    assert devices.take_half("f", "gone") is None, "its partner has ended, and none is free"
    devices.give_back("a")
    assert devices.take_half("g", "d") == [0]
    for uid in "bcdeg":
        devices.give_back(uid)
    assert devices.free == [WHOLE] * 3


def test_a_pod_that_is_bound_anew_beside_a_third_is_not_beside_the_one_that_named_it_before():
    devices = Devices(3)
    assert devices.take_half("early", "late") == [0]
    assert devices.take_half("third", "alone") == [1]
    assert devices.take_half("late", "third") == [1]
    assert devices.take_half("first", "second") == [2]
    assert devices.take_half("second", "gone") == [2], "its partner ended before it came, and it was named since"


def test_a_report_of_other_gpus_is_refused():
    text = "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n"
    assert links_in(text, 2).gpus == 2
    with pytest.raises(LinksError, match="it has 2 GPUs, and this node 4"):
        links_in(text, 4)


def test_where_the_report_of_the_host_cannot_be_had_devices_are_chosen_without(monkeypatch):
    monkeypatch.setattr("fairlead.agent.devices.found", lambda: 2)
    monkeypatch.setattr("fairlead.agent.devices._REPORT", ("/no/such/program",))
    assert links_here() is None
    monkeypatch.setattr("fairlead.agent.devices._REPORT", ("echo", "no matrix"))
    assert links_here() is None
    monkeypatch.setattr("fairlead.agent.devices._REPORT", ("printf", r"\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n"))
    assert links_here() == links_in("\tGPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n", 2)
