"""Bad hardware: what is noted on a node, and when that is enough."""

from fairlead.operator.jobs.hardware import LOST, Failure, Rules, noted, quarantines, shown
from fairlead.operator.jobs.members import members, pod
from tests.operator.test_plan import CONTAINER, T0, Story, job

RULES = Rules(failures=3, jobs=2, window=3600.0)


def test_what_is_noted_reads_back():
    failures = [Failure(T0, "vision/a"), Failure(T0 + 60, LOST)]
    assert shown(failures) == "2026-01-01T00:00:00Z vision/a,2026-01-01T00:01:00Z (lost)"
    assert noted(shown(failures)) == failures
    assert noted("rubbish, 2026-01-01T00:00:00Z,,x y") == []
    assert len(noted(shown([Failure(T0 + i, "vision/a") for i in range(50)]))) == 20, "the latest"


def test_several_failures_of_several_jobs_are_enough_and_one_jobs_alone_never():
    ours = [Failure(T0 + i, "vision/a") for i in range(9)]
    assert not quarantines(ours, T0 + 10, RULES)
    assert quarantines([*ours, Failure(T0 + 10, "vision/b")], T0 + 10, RULES)
    assert not quarantines([*ours, Failure(T0 + 10, "vision/b")], T0 + 3700, RULES), "only the last is within the window"
    assert not quarantines([Failure(T0, LOST), Failure(T0 + 90, "vision/b")], T0 + 90, RULES)
    assert quarantines([Failure(T0 + 100 * i, LOST) for i in range(3)], T0 + 300, RULES), "it comes and goes"


def test_who_failed_by_itself_blames_its_node_and_who_was_taken_down_with_it_does_not():
    story = Story(job(workers=3)).run()
    story.set("worker-1", phase="Failed", exit_code=1, node="bad")
    story.set("worker-2", phase="Failed", disrupted=True, node="other")
    (blame,) = story.look().blamed
    assert (blame.node, blame.why, blame.lost) == ("bad", "bert-worker-1-0: exit code 1", False)
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", reason="NodeLost", disrupted=True, node="gone")
    (blame,) = story.look().blamed
    assert (blame.node, blame.lost) == ("gone", True)
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", disrupted=True, exit_code=143, node="n")
    assert story.look().blamed == (), "it was evicted"


def test_gangs_are_kept_off_quarantined_nodes_beside_what_their_template_says():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                    {"matchFields": []},
                ]
            }
        }
    }
    template = {"spec": {"affinity": affinity, "containers": [CONTAINER]}}
    gang = job(roles=[{"name": "worker", "replicas": 2, "template": template}])
    made = pod(gang, gang.spec.roles[0], members(gang)[0], 0)
    terms = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    off = {"key": "fairlead.dev/quarantined", "operator": "DoesNotExist"}
    assert [term["matchExpressions"][-1] for term in terms] == [off, off]
    assert terms[0]["matchExpressions"][0]["key"] == "zone"
    single = job(workers=1)
    assert "affinity" not in pod(single, single.spec.roles[0], members(single)[0], 0)["spec"]
