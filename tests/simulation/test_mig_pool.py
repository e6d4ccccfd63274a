"""The demo's MIG pool: partitions are asked for, given, shown and given back."""

import asyncio

import pytest

from fairlead.cli import demo
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.scheduler.overview.nodes import lines
from fairlead.simulation import mig_pool
from fairlead.simulation.lab import Lab, quiet
from fairlead.simulation.workload import day


@pytest.mark.parametrize(("nodes", "mig"), [(10, 1), (64, 4), (1000, 62)])
def test_one_of_sixteen_nodes_is_of_the_pool(nodes, mig):
    assert demo._mig(nodes) == mig


def test_interactive_jobs_ask_for_partitions():
    jobs = mig_pool.with_partitions(day(1, 3000, ("h100",)), 1)
    asking = [job for job in jobs if job.claim]
    assert {job.kind for job in asking} == {"interactive"}
    assert {job.claim for job in asking} == set(mig_pool.TEMPLATES)
    assert 40 < len(asking) < 120


def test_partitions_are_given_shown_and_given_back(monkeypatch):
    monkeypatch.setattr(mig_pool, "_PART", 0.5)

    async def story():
        lab = Lab(nodes=10, jobs=90, seed=2, mig=1)
        lab.start()
        most, shown = 0, set()
        for _ in range(24):
            await asyncio.sleep(3600.0)
            (line,) = [each for each in lines(lab.state) if each.name.startswith("mig-")]
            assert line.gpus == mig_pool.MODEL.gpus or not most  # slices are read from the first pod with claims on
            assert sum(1000 - left for left in line.gpu_free_milli) == round(1000 * line.gpus_used)
            assert sum(each.part_milli * each.used for each in line.gpu_parts) == round(1000 * line.gpus_used)
            most = max(most, line.gpus_used)
            shown |= {each.resource for each in line.gpu_parts if each.used}
            demo._pools(lab)
        assert most > 0
        assert shown == {"gpu.nvidia.com/1g.5gb", "gpu.nvidia.com/3g.20gb"}
        wanted = {name for name, run in lab.tenants.runs.items() if run.job.claim}
        assert wanted & lab.tenants.finished
        assert lab.world.kubelet.drivers.refusals == []
        summary = lab.summary()
        assert summary.nodes == 10
        await lab.process.kill()

    quiet()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
