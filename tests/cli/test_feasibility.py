"""`fairlead feasibility` on files. On a live cluster it is tried in test_cluster_commands."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app


def node(name, cpu="4", **metadata):
    return {"metadata": {"name": name, **metadata}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def pod(name, at=None, cpu="1", **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [container], **({"nodeName": at} if at else {}), **spec},
    }


def judge(*cases, text=None):
    given = text if text is not None else "".join(json.dumps(case) + "\n" for case in cases)
    done = CliRunner().invoke(app, ["feasibility", "--cases", "-"], input=given)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_one_line_of_answer_for_each_case():
    case = {"id": 7, "nodes": [node("a"), node("b", cpu="1")], "pods": [pod("r", at="b"), pod("w", cpu="2"), pod("x", cpu="1")]}
    done, answers = judge(case, {"id": "empty"})
    assert done.exit_code == 0, done.output
    assert [each["id"] for each in answers] == [7, "empty"]
    waits, fits = answers[0]["pods"]
    assert waits["pod"] == "ns/w"
    assert waits["feasible"] == fits["feasible"] == ["a"]
    assert waits["rejects"] == fits["rejects"] == {"b": "NodeResourcesFit"}
    assert set(waits["scores"]["a"]) >= {
        "TaintToleration",
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
    }
    assert waits["preempts"] is None
    assert not waits["gated"]
    assert answers[1]["pods"] == []


def test_whom_it_would_preempt():
    pods = [pod("low", at="a", cpu="4"), pod("high", priority=10), pod("meek", priority=10, preemptionPolicy="Never")]
    _, [answer] = judge({"nodes": [node("a")], "pods": pods})
    assert answer["pods"][0]["preempts"] == {"node": "a", "victims": ["ns/low"]}
    assert answer["pods"][1]["preempts"] is None


def test_gated_pods_are_not_judged():
    _, [answer] = judge({"nodes": [node("a")], "pods": [pod("g", schedulingGates=[{"name": "wait"}])]})
    assert answer["pods"] == [
        {"pod": "ns/g", "feasible": [], "rejects": {}, "scores": {}, "preempts": None, "gated": True},
    ]


def test_a_line_that_cannot_be_read_spoils_only_itself():
    done, answers = judge(text='nonsense\n\n{"id": 1, "nodes": 5}\n{"id": 2}\n')
    assert done.exit_code == 1
    assert [answer["id"] for answer in answers] == [2]
    assert "line 1: not a cluster" in done.stderr
    assert "line 3: not a cluster" in done.stderr


def test_null_stands_for_absent():
    waiting = pod("w", affinity=None, nodeSelector=None, priority=None)
    waiting["metadata"] |= {"labels": None, "creationTimestamp": None}
    waiting["spec"]["nodeName"] = None
    _, [answer] = judge({"id": None, "nodes": [node("a", labels=None)], "pods": [waiting], "services": None})
    assert answer["pods"][0]["feasible"] == ["a"]


@pytest.mark.parametrize("cpu", ["9223372036854775807", "10E", "-1", "lots"])
def test_amounts_that_cannot_be_counted(cpu):
    """The pod itself is not placed; where it runs, nothing else is."""
    _, [waits] = judge({"nodes": [node("a")], "pods": [pod("w", cpu=cpu)]})
    assert waits["pods"][0]["rejects"] == {"a": "NodeResourcesFit"}
    _, [runs] = judge({"nodes": [node("a"), node("b")], "pods": [pod("r", at="a", cpu=cpu), pod("w")]})
    assert runs["pods"][0]["feasible"] == ["b"]


def test_a_selector_that_does_not_parse_stops_its_own_pod_only():
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [pod("running", at="a", affinity=affinity), pod("broken", affinity=affinity), pod("fine")]
    _, [answer] = judge({"nodes": [node("a"), node("b")], "pods": pods})
    assert answer["pods"][0]["rejects"] == {"a": "InterPodAffinity", "b": "InterPodAffinity"}
    assert answer["pods"][1]["feasible"] == ["a", "b"]


def test_thousands_of_distinct_labels():
    zone = "topology.kubernetes.io/zone"
    spread = [
        {"topologyKey": zone, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}
    ]
    nodes = [node(f"n{number}", labels={zone: f"z{number % 3}"}) for number in range(30)]
    pods = [pod(f"r{number}", at=f"n{number % 30}", cpu="1m") for number in range(3000)]
    for number, each in enumerate(pods):
        each["metadata"]["labels"] = {f"key-{number}": "v", "app": f"a{number}"}
    waiting = pod("w", topologySpreadConstraints=spread)
    waiting["metadata"]["labels"] = {"app": "x"}
    _, [answer] = judge(
        {
            "nodes": [{**each, "status": {"allocatable": {"cpu": "4", "memory": "1Ti", "pods": "200"}}} for each in nodes],
            "pods": [*pods, waiting],
        }
    )
    assert len(answer["pods"][0]["feasible"]) == 30


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 2), (("pod/x", "--cases", "-"), 2), (("node/x",), 2), (("--cases", "/nowhere/at/all"), 4)],
)
def test_wrong_usage_says_what_to_do(arguments, code):
    done = CliRunner().invoke(app, ["feasibility", *arguments])
    assert done.exit_code == code
    assert done.stderr.startswith("fairlead: ")
