"""Runs the commands of benchmarks/README.md, prints their results as JSON lines, and writes the figures into that page.

`--only WORD` picks some. A figure stands in the page between `<!--NAME-->` and `<!--/-->`, with the date and the commit of its
run; `figures.json` keeps them. Figures without such marks were written by hand, with their circumstances.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairlead.simulation.growth.dimensions import BY_NAME

HERE = Path(__file__).parent
PAGE, KEPT = HERE / "README.md", HERE / "figures.json"
MARKED = re.compile(r"<!--([a-z][^<>]*?)-->(.*?)<!--/-->")

TRACES = os.environ.get("FAIRLEAD_TRACES", "")
OPENB = f"{TRACES}/openb_fgd"
PHILLY = f"{TRACES}/philly"
MISO = f"{TRACES}/miso"
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
    "selectors, differential": "bench cel --differential --seeds 0-4999",
    "selectors": "bench cel --seeds 0-199",
    "devices, differential": "bench dra --differential --seeds 0-1999",
    "devices, hard": "bench dra --hard",
    "devices, gangs": "bench dra --gangs 500",
    "devices, API server": "bench dra --api",
    "GPU sets": "bench gpusets --seeds 1-20 --events 400",
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
    "core, 4,000 shapes": "bench placement --nodes 5000 --queues 1 --pods 4000 --shapes 4000",
    "victims": "bench cycle --scenario hero --nodes 2000",
    "steady": "bench steady",
    "growth": "bench growth",
    "look": "bench look",
    "queues": f"{CLUSTER} --workload queues --nodes 2000 --pods 15000 --schedulers fairlead,bare-binder --repeats 1",
    **{f"job {name}": f"bench job --scenario {name} --repeats 40" for name in ("start", "worker-kill", "suspend")},
    **{f"job {name}": f"bench job --scenario {name}" for name in ("array", "elastic", "operator-kill")},
    "operator": "bench operator",
    "operator, dependent jobs": "bench operator --dependent",
    "history": "bench history",
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
    "takeover": "bench takeover --count 50",
    "upgrade": "bench upgrade",
    "first job": "bench first-job",
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
    "topology": f"simulate topology --fabric {TRACES}/lingjun2023/topo.csv --protocol floors",
    "topology, production": f"simulate topology --fabric {TRACES}/lingjun2023/topo.csv",
    "topology, cluster": "bench topology",
    "sharing": f"simulate sharing --matrix gavel-v100 --known 0.25 --traces {TRACES}",
    "topology, exact": "bench topology --exact",
    "topology, decision": "bench topology --decide",
    "mig": "simulate mig --moves",
    "mig, reconfigured": "bench mig",
    "mig, any profile": f"simulate mig --speeds {MISO}/a100_mig_step_seconds.json",
    **{
        f"openb {name}": f"simulate placement --nodes {OPENB}/openb_node_list_gpu_node.csv --pods {OPENB}/openb_pod_list_{name}{suffix}"
        for name, suffix in (("default", ".csv"), ("gpushare100", ".csv.xz"), ("multigpu50", ".csv.xz"), ("cpu250", ".csv.xz"))
    },
}

FIGURES: dict[str, dict[str, str]] = {
    **{
        name: {name: "{placements_per_second:,.0f}/s"}
        for name in ("core, 1 shape", "core, 500 shapes", "core, 4,000 shapes", "core, 1,000 nodes", "core, 100,000 nodes")
    },
    **{
        f"cycle {name}": {f"cycle {name}": "{decision_seconds:.4f} s"}
        for name in ("mixed", "verdict", "reclaim", "hero", "consolidate")
    },
    "victims": {"victims": "{decision_seconds:.2f} s"},
    "steady": {"steady": "p99 {pass_ms_p99:.0f} ms, {core_cpu:.0f} % of a core, {rss_mb:.0f} MB"},
    "growth": {
        f"growth, {name}": f"{{dimensions[{name}][cost]}} us, exponent {{dimensions[{name}][exponent]:.2f}}" for name in BY_NAME
    },
    "look": {
        f"look, {name}": f"{{commands[{name}][seconds]:.1f}} s, {{commands[{name}][megabytes]:.2f}} MB; by lists "
        f"{{commands[{name}][seconds_by_lists]:.0f}} s, {{commands[{name}][megabytes_by_lists]:.0f}} MB"
        for name in ("queue", "nodes", "share", "top", "explain")
    },
    "lifecycles": {"lifecycles": "{lifecycles_per_second:,.0f}/s"},
    **{name: {name: "idle {idle_core:.2%} of a core, {event_ms:.2f} ms"} for name in ("operator", "operator, dependent jobs")},
    "history": {"history": "lists {list_seconds:.2f} s, cost {cost_seconds:.2f} s"},
}
"""Command -> figure -> how it is written, of the fields of the command's result."""


def read(name: str, result: dict[str, Any]) -> dict[str, str]:
    """The figures of a command's result, as they are written."""
    return {figure: text.format(**result) for figure, text in FIGURES.get(name, {}).items()}


def kept() -> dict[str, dict[str, str]]:
    """Every figure that was measured: its text, command, date and commit."""
    found: dict[str, dict[str, str]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return found


def filled(page: str, figures: dict[str, dict[str, str]]) -> str:
    """The page with its figures."""

    def shown(mark: re.Match[str]) -> str:
        known = figures.get(mark[1])
        text = f"**{known['text']}** ({known['date']}, {known['commit']})" if known else "not measured"
        return f"<!--{mark[1]}-->{text}<!--/-->"

    return MARKED.sub(shown, page)


def keep(name: str, command: str, result: dict[str, Any]) -> None:
    """Write a command's figures into the page."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    date = datetime.now(UTC).date().isoformat()
    figures = kept()
    for figure, text in read(name, result).items():
        figures[figure] = {"text": text, "command": command, "date": date, "commit": commit}
    KEPT.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(filled(PAGE.read_text(), figures))


def main() -> None:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="only those whose names contain this")
    word = parser.parse_args().only
    for name, command in COMMANDS.items():
        if word not in name or (name.startswith(("openb", "philly")) and not TRACES):
            continue
        print(f"{name}: fairlead {command}", file=sys.stderr, flush=True)
        line = [sys.executable, "-m", "fairlead", *command.split(), "--output", "json"]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
        result = json.loads(done.stdout)
        print(json.dumps({"name": name, "command": f"fairlead {command}", "result": result}), flush=True)
        keep(name, f"fairlead {command}", result)


if __name__ == "__main__":
    main()
