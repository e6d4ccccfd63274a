"""Jobs in the simulated cluster: when they are complete, or have failed, what their pods learn, and when they go."""

import asyncio

import pytest

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.controllers import JOBS
from fairlead.cluster.simulated.resources import PODS
from fairlead.simulation.world import World
from testbed import objects

NS, MERGE = "vision", "application/merge-patch+json"


class Story:
    """A cluster without a scheduler: pods end as they are told."""

    def __init__(self):
        self.world = World(nodes=1, seed=1)
        self.api = self.world.api

    async def create(self, **spec):
        job = objects.job("train")
        job["spec"] = {"template": job["spec"]["template"], **spec}
        self.world.create(job, NS)
        await asyncio.sleep(1.0)

    @property
    def pods(self):
        found = (record.object for key, record in self.api.store.sorted(PODS, NS))
        return [each for each in found if each["status"].get("phase") not in ("Succeeded", "Failed")]

    async def end(self, pod, phase="Succeeded"):
        name = pod["metadata"]["name"]
        self.api.patch(self.api.served("v1", "pods"), NS, name, MERGE, {"status": {"phase": phase}}, subresource="status")
        await asyncio.sleep(1.0)

    @property
    def job(self):
        record = self.api.store.get(JOBS, (NS, "train"))
        return record.object if record is not None else None

    @property
    def ended(self):
        conditions = self.job["status"].get("conditions") or ()
        return [(each["type"], each["reason"]) for each in conditions if each["status"] == "True"]


def play(story):
    async def run():
        await story(Story())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_a_job_has_so_many_completions_and_so_many_pods_at_a_time():
    async def story(made):
        await made.create(completions=3, parallelism=2)
        assert len(made.pods) == 2
        await made.end(made.pods[0])
        assert len(made.pods) == 2
        await made.end(made.pods[0], "Failed")
        await made.end(made.pods[0])
        await made.end(made.pods[0])
        assert (made.ended, made.job["status"]["succeeded"], made.job["status"]["failed"]) == (
            [("Complete", "CompletionsReached")],
            3,
            1,
        )

    play(story)


def test_a_job_without_completions_is_complete_once_one_has_succeeded_and_the_others_have_ended():
    async def story(made):
        await made.create(parallelism=3)
        await made.end(made.pods[0])
        await made.end(made.pods[0], "Failed")
        assert (len(made.pods), made.ended) == (1, []), "no more are created"
        await made.end(made.pods[0], "Failed")
        assert made.ended == [("Complete", "CompletionsReached")]

    play(story)


def test_a_job_that_may_have_no_pod_at_a_time_is_not_complete():
    async def story(made):
        await made.create(completions=2, parallelism=0)
        assert (made.pods, made.ended) == ([], [])

    play(story)


@pytest.mark.parametrize("env", [[], [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]], ids=["set", "given"])
def test_each_pod_of_an_indexed_job_learns_its_index(env):
    async def story(made):
        template = objects.job("x")["spec"]["template"]
        template["spec"]["containers"][0]["env"] = list(env)
        await made.create(completions=3, parallelism=2, completionMode="Indexed", template=template)
        await made.end(made.pods[0], "Failed")
        key = "batch.kubernetes.io/job-completion-index"
        assert sorted(each["metadata"]["annotations"][key] for each in made.pods) == ["0", "1"]
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}}
        for each in made.pods:
            assert each["spec"]["hostname"] == f"train-{each['metadata']['labels'][key]}"
            (found,) = each["spec"]["containers"][0]["env"]
            assert found == (env[0] if env else {"name": "JOB_COMPLETION_INDEX", "valueFrom": source})

    play(story)


def test_a_job_ends_at_its_deadline_which_does_not_run_while_it_is_suspended():
    async def story(made):
        await made.create(parallelism=2, completions=2, activeDeadlineSeconds=100)
        await asyncio.sleep(50.0)
        jobs = made.api.served("batch/v1", "jobs")
        made.api.patch(jobs, NS, "train", MERGE, {"spec": {"suspend": True}})
        await asyncio.sleep(300.0)
        assert made.ended == [("Suspended", "JobSuspended")]
        made.api.patch(jobs, NS, "train", MERGE, {"spec": {"suspend": False}})
        await asyncio.sleep(90.0)
        assert (len(made.pods), made.ended) == (2, [])
        await asyncio.sleep(20.0)
        assert (made.pods, made.ended) == ([], [("Failed", "DeadlineExceeded")])

    play(story)


def test_a_job_goes_with_its_pods_a_while_after_its_end():
    async def story(made):
        await made.create(ttlSecondsAfterFinished=60)
        await made.end(made.pods[0])
        await asyncio.sleep(50.0)
        assert made.job is not None
        await asyncio.sleep(20.0)
        assert made.job is None
        assert not list(made.api.store.records(PODS))

    play(story)
