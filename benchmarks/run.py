"""Runs the commands of benchmarks/README.md and prints their results as JSON lines; `--only WORD` picks some."""

from __future__ import annotations

import json
import os
import subprocess
import sys

TRACES = os.environ.get("FAIRLEAD_TRACES", "")
OPENB = f"{TRACES}/openb_fgd"
PHILLY = f"{TRACES}/philly"
CLUSTER = "bench cluster"
COMMANDS = {
    "api-server, 5,000 nodes": f"{CLUSTER} --nodes 5000 --pods 10000 --schedulers fairlead,kube-scheduler,bare-binder,bare-binder-events",
    "api-server, 500 nodes": f"{CLUSTER} --nodes 500 --pods 4000 --schedulers fairlead,kube-scheduler,bare-binder,bare-binder-events,bare-binder-go",
    "writes without events": f"{CLUSTER} --nodes 500 --pods 4000 --schedulers fairlead --no-events",
    "gangs": f"{CLUSTER} --nodes 500 --pods 4000 --gang 16 --schedulers fairlead",
    "arrivals": f"{CLUSTER} --nodes 5000 --pods 6000 --arrival-rate 200 --schedulers fairlead",
    "memory": f"{CLUSTER} --nodes 5000 --pods 50000 --workload relist --schedulers fairlead --repeats 1",
    **{
        name: f"{CLUSTER} --workload {name} --nodes 5000 --pods 2000 --schedulers fairlead,kube-scheduler,bare-binder"
        for name in ("spread", "anti-affinity", "affinity", "preferred-affinity")
    },
    "unschedulable": f"{CLUSTER} --workload unschedulable --nodes 5000 --pods 10000 --schedulers fairlead",
    "preempt": f"{CLUSTER} --workload preempt --nodes 1000 --pods 500 --schedulers fairlead,kube-scheduler,bare-binder-events",
    "differential": "bench differential --seeds 0-49999",
    "fuzz": "bench fuzz --pods 100000",
    "worlds, evictions": "bench worlds --kind evictions --seeds 0-1999",
    "worlds, victims": "bench worlds --kind victims --seeds 0-1999",
    "core, 1 shape": "bench placement --nodes 5000 --shapes 1",
    "core, 500 shapes": "bench placement --nodes 5000 --shapes 500",
    "core, 1,000 nodes": "bench placement --nodes 1000 --pods 8000 --shapes 20",
    "core, 100,000 nodes": "bench placement --nodes 100000 --pods 8000 --shapes 20",
    **{
        f"cycle {name}": f"bench cycle --scenario {name} --nodes {nodes}"
        for name, nodes in (("mixed", 500), ("verdict", 500), ("reclaim", 500), ("hero", 1000), ("consolidate", 500))
    },
    **{f"answers {name}": f"bench answers --scenario {name}" for name in ("verdict", "reclaim")},
    "queues": f"{CLUSTER} --workload queues --nodes 2000 --pods 15000 --schedulers fairlead,bare-binder --repeats 1",
    **{f"job {name}": f"bench job --scenario {name} --repeats 40" for name in ("start", "worker-kill", "suspend")},
    **{f"job {name}": f"bench job --scenario {name}" for name in ("array", "elastic", "operator-kill")},
    "fair shares": "simulate jobs --trace synthetic --nodes 16",
    "expected starts": f"simulate jobs --jobs {PHILLY}/philly_oct_nov.csv.xz --queues {PHILLY}/vc_nodes.csv --durations learned --no-time-slicing",
    "metrics": "bench metrics --queues 1000 --jobs 10000",
    "hpa, cpu": "bench hpa --metric cpu",
    "hpa, queue": "bench hpa --metric queue",
    "defaults": "bench platform --scenario defaults",
    "quota": "bench platform --scenario quota",
    "alerts": "bench platform --scenario alerts",
    "cost": "bench cost --days 30 --seed 1",
    "contract": "bench contract",
    "seeds": "simulate faults --seeds 1-100",
    "many seeds": "simulate faults --seeds 1000-2999",
    "kills": "bench kills --count 3",
    "many kills": "bench kills --count 100 --seed 2",
    "attacks": "bench attacks",
    "replay": "bench replay",
    "decisions": "bench decisions --record .cache/decisions/present --replay .cache/decisions/present",
    "first picture": "bench demo",
    "lifecycles": "bench lifecycles",
    "blame": "bench blame --seeds 0-99",
    "blame, flaky jobs": "bench blame --seeds 0-19 --flaky 0.2",
    **{
        f"philly {policy}": f"simulate jobs --jobs {PHILLY}/philly_oct_nov.csv.xz --queues {PHILLY}/vc_nodes.csv --policy {policy}"
        for policy in ("fifo", "easy-total", "easy", "sjf", "las", "default")
    },
    **{
        f"philly month {seed}, {nodes} nodes": f"simulate jobs --jobs {PHILLY}/philly_oct_nov.csv.xz --queues {PHILLY}/vc_nodes.csv "
        f"--durations learned --resample {seed} --days 30 --nodes {nodes} --compare las,easy"
        for seed in (1, 2, 3, 4)
        for nodes in (60, 70)
    },
    **{
        f"openb {name}": f"simulate placement --nodes {OPENB}/openb_node_list_gpu_node.csv --pods {OPENB}/openb_pod_list_{name}{suffix}"
        for name, suffix in (("default", ".csv"), ("gpushare100", ".csv.xz"), ("multigpu50", ".csv.xz"), ("cpu250", ".csv.xz"))
    },
}


def main() -> None:
    """Run them one after the other."""
    word = sys.argv[2] if sys.argv[1:2] == ["--only"] else ""
    for name, command in COMMANDS.items():
        if word not in name or (name.startswith(("openb", "philly")) and not TRACES):
            continue
        print(f"{name}: fairlead {command}", file=sys.stderr, flush=True)
        line = [sys.executable, "-m", "fairlead", *command.split(), "--output", "json"]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
        print(json.dumps({"name": name, "command": f"fairlead {command}", "result": json.loads(done.stdout)}), flush=True)


if __name__ == "__main__":
    main()
