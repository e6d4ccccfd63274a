"""`python -m testbed.bare_binder`: lists waiting pods and nodes once and binds round robin.

It uses Fairlead's own HTTP client and decides nothing, so that the ratio of the scheduler to it is
the price of deciding. With --events it writes one Scheduled event per pod behind the bindings. With --victims it
preempts so many pods of each node before it binds there, with the writes of profile kubernetes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools

import msgspec
import uvloop

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import load
from fairlead.cluster.port import Outcome
from fairlead.core.model.transactions import Binding, PodRef


async def _names(client: Client, path: str, **query: str) -> list[views.Metadata]:
    found: list[views.Metadata] = []
    token = ""
    while True:
        page = msgspec.json.decode(
            await client.get(path, limit="500", **query, **({"continue": token} if token else {})), type=views.RawList
        )
        found += [msgspec.json.decode(raw, type=views.OnlyMetadata).metadata for raw in page.items]
        token = page.metadata.continue_
        if not token:
            return found


async def run(kubeconfig: str, in_flight: int, events: bool, victims: int = 0) -> None:
    """Bind everything that waits. victims: how many pods of its node to preempt first for each."""
    async with Client(load(kubeconfig), connections=max(128, in_flight), timeout=60) as client:
        cluster = KubernetesCluster(client, schedulers={"bare-binder": "ai"}, instance="bare-binder")
        nodes = [each.name for each in await _names(client, "/api/v1/nodes")]
        pods = [
            PodRef(each.uid, each.namespace, each.name)
            for each in await _names(client, "/api/v1/pods", fieldSelector="spec.nodeName=")
        ]
        work = iter(zip(pods, itertools.cycle(nodes)))
        running = await _running(client) if victims else {}
        why = Reason(ReasonCode.RESOURCES, f"{victims} pods are preempted for it")

        async def bind() -> None:
            for pod, node in work:
                if victims:
                    await cluster.nominate(pod, node, why)
                    await asyncio.gather(*(cluster.preempt(each) for each in running[node][:victims]))
                outcome, message = await cluster.bind(Binding(pod, node), None)
                if outcome is not Outcome.DONE:
                    raise RuntimeError(f"{pod.key}: {message}")

        async def tell() -> None:
            for pod, node in told:
                for victim in running[node][:victims] if victims else ():
                    await cluster.event(victim, "Preempted", f"Preempted by {pod.key} on node {node}", action="Preempting")
                await cluster.event(pod, "Scheduled", f"Successfully assigned {pod.key}")

        await asyncio.gather(*(bind() for _ in range(in_flight)))
        if events:
            told = iter(zip(pods, itertools.cycle(nodes)))
            await asyncio.gather(*(tell() for _ in range(in_flight)))


async def _running(client: Client) -> dict[str, list[PodRef]]:
    """The pods on each node."""
    running: dict[str, list[PodRef]] = {}
    raw = msgspec.json.decode(await client.get("/api/v1/pods", fieldSelector="spec.nodeName!="), type=views.RawList)
    for pod in (msgspec.json.decode(each, type=views.Pod) for each in raw.items):
        running.setdefault(pod.spec.node_name, []).append(PodRef(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name))
    return running


def main() -> None:
    """Parse the command line and bind."""
    parser = argparse.ArgumentParser(prog="python -m testbed.bare_binder", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--victims", type=int, default=0)
    options = parser.parse_args()
    uvloop.run(run(options.kubeconfig, options.in_flight, options.events, options.victims))


if __name__ == "__main__":
    main()
