import json
import os

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.cli.seeds import parse_seeds

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},64000,262144,4,T4\n" for i in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "".join(f"p{i},4000,8192,1,{(1000, 470)[i % 2]}\n" for i in range(20))
JOBS = "submit_time,duration_s,num_gpus,vc\n2017-10-01 00:00:00,60,1,a\n2017-10-01 00:00:10,30,16,b\n"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def files(tmp_path):
    for name, text in (("nodes.csv", NODES), ("pods.csv", PODS), ("jobs.csv", JOBS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_simulate_placement(files):
    done = invoke(
        "simulate", "placement", "--nodes", files / "nodes.csv", "--pods", files / "pods.csv", "--seeds", "1-3", "-o", "json"
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert {"allocation", "unallocated_gpus", "fragmentation", "runs", "pods_per_second"} <= set(result)
    assert len(result["runs"]) == 3
    assert "5" in result["allocation"]
    assert "130" in result["runs"][0]["allocation"]


def test_simulate_jobs(files):
    done = invoke(
        "simulate",
        "jobs",
        "--trace",
        "philly",
        "--jobs",
        files / "jobs.csv",
        "--nodes",
        2,
        "--gpus-per-node",
        8,
        "--policy",
        "sjf",
        "--output",
        "json",
    )
    result = json.loads(done.stdout)
    assert set(result["wait_seconds"]) == {"mean", "p50", "p99", "max"}
    assert result["jobs"] == 2
    assert {"jct_seconds", "utilization", "makespan_seconds"} <= set(result)


@pytest.mark.parametrize("policy", ["fifo", "sjf", "easy-total", "easy", "las", "default"])
def test_simulate_jobs_by_queue_and_as_a_picture(files, policy):
    (files / "queues.csv").write_text("vc,nodes\nabsent,1\nq,3\n")
    (files / "jobs.csv").write_text(
        "submit_time,duration_s,num_gpus,vc\n2017-10-01 00:00:00,60,4,q\n2017-10-01 00:00:05,30,4,dropped\n"
    )
    picture = files / "waits.svg"
    line = ("simulate", "jobs", "--jobs", files / "jobs.csv", "--queues", files / "queues.csv", "--nodes", 2, "--policy", policy)
    done = invoke(*line, "--durations", "learned", "--plot", picture, "-o", "json")
    result = json.loads(done.stdout)
    assert result["jobs"] == 1
    assert {each["name"]: each["quota_gpus"] for each in result["queues"]} == {"absent": 4, "q": 12}
    assert result["window_days"] == 61
    assert "<svg" in picture.read_text()
    assert "worst rho" in invoke(*line).output.replace("\n", " ") or "queues" in invoke(*line).output


def test_simulate_jobs_of_other_months(files):
    line = ("simulate", "jobs", "--jobs", files / "jobs.csv", "--nodes", 2, "--resample", 7)
    done = invoke(*line, "--days", 3, "-o", "json")
    result = json.loads(done.stdout)
    assert result["policy"] == "default"
    assert result["window_days"] == 3
    assert result["jobs"] == 6, "two jobs on each of three days"
    assert [each["policy"] for each in result["comparisons"]] == ["fifo", "sjf", "easy-total", "easy", "las"]
    assert {each["jobs"] for each in result["comparisons"]} == {6}
    assert result == json.loads(invoke(*line, "--days", 3, "-o", "json").stdout)
    alone = json.loads(invoke(*line, "--compare", "none", "-o", "json").stdout)
    assert (alone["window_days"], alone["comparisons"]) == (30, [])
    table = invoke(*line, "--compare", "las, default,las")
    assert "policies on the same jobs" in table.output
    assert [each["policy"] for each in json.loads(invoke(*line, "--compare", "las,las", "-o", "json").stdout)["comparisons"]] == [
        "las"
    ]
    assert json.loads(invoke(*line[:-2], "--policy", "fifo", "-o", "json").stdout)["comparisons"] == []


def test_bench_placement():
    result = json.loads(
        invoke("bench", "placement", "--nodes", 20, "--pods", 100, "--shapes", 2, "--gang", 4, "--output", "json").stdout
    )
    assert result["placed"] == 100
    assert result["transactions"] == 25
    assert result["placements_per_second"] > 0
    assert result["peak_rss_mb"] > 0


@pytest.mark.parametrize(
    ("scenario", "placed", "victims", "refused"),
    [("mixed", 0, 32, 128), ("verdict", 0, 0, 10), ("reclaim", 0, 1, 0), ("hero", 0, 80, 0)],
)
def test_bench_cycle(scenario, placed, victims, refused):
    result = json.loads(invoke("bench", "cycle", "--scenario", scenario, "--nodes", 20, "-o", "json").stdout)
    assert (result["placed"], result["victims"], result["refused"]) == (placed, victims, refused)
    assert result["running"] == 160
    assert result["decision_seconds"] > 0


def test_demo_once():
    result = json.loads(invoke("demo", "--once", "--nodes", 20, "--jobs", 100, "--output", "json").stdout)
    assert result["started"] > 0
    assert invoke("demo", "--once", "--nodes", 20, "--jobs", 50).exit_code == 0


def test_tables_and_yaml(files):
    assert "placements_per_second" in invoke("bench", "placement", "--nodes", 5, "--pods", 9).output
    assert "placed: 9" in invoke("bench", "placement", "--nodes", 5, "--pods", 9, "-o", "yaml").output
    done = invoke("simulate", "placement", "--nodes", files / "nodes.csv", "--pods", files / "pods.csv", "--seeds", "1")
    assert "allocation" in done.output


def test_crds_and_policies():
    assert "kind: CustomResourceDefinition" in invoke("crds").stdout
    assert "ValidatingAdmissionPolicy" in invoke("crds", "--policies").stdout
    assert json.loads(invoke("crds", "--output", "json").stdout)["kind"] == "List"
    chosen = ("--provisioning-class", "small", "--require-scheduler", "--scheduler-name", "mine", "--trust", "ray")
    printed = invoke("crds", "--policies", *chosen, "-o", "json").stdout
    assert "in ['small']" in printed
    assert "must set spec.schedulerName to one of mine" in printed
    assert "username == 'ray'" in printed
    refused = invoke("crds", "--require-scheduler")
    assert refused.exit_code == 2
    assert "need --policies" in refused.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("simulate", "placement", "--nodes", "nodes.csv", "--pods", "pods.csv", "--strategy", "best"), 2),
        (("simulate", "placement", "--nodes", "nodes.csv", "--pods", "pods.csv", "--seeds", "9-1"), 2),
        (("simulate", "placement", "--nodes", "nodes.csv", "--pods", "pods.csv", "--inflate", "nan"), 2),
        (("simulate", "placement", "--nodes", "absent.csv", "--pods", "pods.csv"), 1),
        (("simulate", "placement", "--nodes", "pods.csv", "--pods", "nodes.csv"), 1),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--nodes", 1, "--gpus-per-node", 8, "--policy", "lifo"), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--nodes", 0, "--gpus-per-node", 8), 2),
        (("simulate", "jobs", "--policy", "fifo"), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--policy", "fifo", "--no-time-slicing"), 2),
        (("simulate", "jobs", "--trace", "synthetic", "--jobs", "jobs.csv"), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--durations", "guessed"), 2),
        (("simulate", "jobs", "--trace", "synthetic", "--resample", 1), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--days", 30), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--resample", 1, "--days", 0), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--resample", 1, "--compare", "fifo,lifo"), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--plot", "waits.txt"), 2),
        (("simulate", "jobs", "--jobs", "jobs.csv", "--queues", "nodes.csv"), 1),
        (("bench", "cluster", "--schedulers", "slurm"), 2),
        (("bench", "placement", "--strategy", "none"), 2),
        (("bench", "cycle", "--scenario", "all"), 2),
        (("scheduler", "--kubeconfig", "absent"), 5),
        (("scheduler", "--strategy", "none"), 2),
        (("scheduler", "--log-level", "loud"), 2),
        (("scheduler", "--address", "nowhere"), 2),
        (("scheduler", "--address", "nowhere:99999"), 2),
        (("bench", "decisions", "--record", "/proc/none", "--only", "flat"), 4),
        (("nonsense",), 2),
    ],
)
def test_wrong_usage_has_its_exit_codes(files, arguments, code, monkeypatch):
    monkeypatch.chdir(files)
    done = invoke(*arguments)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["replay", "nowhere.jsonl"], 4, "cannot read nowhere.jsonl: No such file or directory"),
        (["simulate", "jobs", "--jobs", "nowhere.csv"], 1, "nowhere.csv: cannot be read: No such file or directory"),
        (["simulate", "faults", "--seeds", "abc"], 2, "'abc' is neither a number nor a range such as 42-51"),
        (["queue", "--kubeconfig", "nowhere"], 5, "nowhere cannot be read: No such file or directory"),
        (["simulate", "starts", os.devnull], 1, "no start was foretold there"),
    ],
)
def test_what_is_not_there_is_named_in_words(arguments, code, told):
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, told in done.output, "Errno" in done.output) == (code, True, False), done.output


def test_seeds():
    assert parse_seeds("42-44,7") == [42, 43, 44, 7]
    with pytest.raises(ValueError, match="range"):
        parse_seeds("1-99999999")


def test_version():
    assert invoke("--version").stdout.startswith("fairlead ")
