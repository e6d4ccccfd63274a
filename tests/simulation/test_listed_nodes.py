"""Scripts that list nodes: their members are on these, one on each, and on none that is excluded."""

import pytest

from fairlead.simulation import aijobs
from fairlead.submission.directives import asked, options_of
from fairlead.submission.jobs import Profile, ai_job
from tests.simulation.lives import Live, live


def submitted(world, line, name="train"):
    made = ai_job(name, "vision", asked(options_of(f"#SBATCH {line}")), Profile({"image": "i"}), ["run"], scripted=False)
    made["metadata"]["namespace"] = "vision"
    world.create(made, "vision")


def nodes(world):
    return sorted(pod["spec"].get("nodeName", "") for pod in aijobs.pods(world))


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("-w n[0-2] --gpus-per-node=1", ["n0", "n1", "n2"]),
        ("-w n1,n3 -N 2", ["n1", "n3"]),
        ("-x n[0-1],n3 -N 3 --gpus-per-node=1", ["n2", "n2", "n2"]),
        ("-w n[2-3] --array=0-1 --gpus-per-node=1", ["n2", "n2", "n3", "n3"]),
        ("-w n9 -N 1", [""]),
    ],
)
def test_members_are_where_the_script_says(line, where):
    async def story():
        found = Live(kills=False)
        for name in ("n2", "n3"):
            found.world.create(aijobs.node(name, 4))
        for record in [record for _, record in found.world.api.store.records("nodes")]:
            name = record.object["metadata"]["name"]
            labels = {"metadata": {"labels": {"kubernetes.io/hostname": name}}}
            found.world.api.patch(found.world.api.served("v1", "nodes"), "", name, "application/merge-patch+json", labels)
        submitted(found.world, line)
        await found.until(lambda: nodes(found.world) == where, 100)

    live(story)
