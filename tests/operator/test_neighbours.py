"""Jobs of a namespace: an index of who waits for whom, against the plain rule over all jobs, and a cluster's node by node."""

import random

import msgspec
import pytest

from fairlead.api.kinds.ai_job import AIJobStatus
from fairlead.cluster.translate import Change
from fairlead.operator.jobs.accepted import over
from fairlead.operator.jobs.cache import Cache
from fairlead.operator.jobs.dependencies import State, judge
from fairlead.operator.jobs.neighbours import Neighbours
from fairlead.operator.jobs.pods import PodSeen
from tests.operator import builders
from tests.operator.worlds import in_a_world

PHASES = ("Pending", "Running", "Succeeded", "Failed")
WHENS = ("afterok", "afternotok", "afterany", "singleton")
LABELS = ("", "nightly", "weekly")


def plain_cycle(name, jobs):
    """Over all jobs, each way by itself."""
    ways, seen = [[name]], {name}
    while ways:
        way = ways.pop()
        for each in jobs[way[-1]].spec.depends_on if way[-1] in jobs else ():
            if each.when == "singleton":
                continue
            if each.job == name:
                return [*way, name]
            if each.job not in seen:
                seen.add(each.job)
                ways.append([*way, each.job])
    return []


def plain_before(job, label, jobs):
    """Of all jobs, the youngest older one of the line that is not over."""

    def user(each):
        return (each.metadata.annotations or {}).get("fairlead.dev/user") or each.metadata.namespace

    def place(each):
        return each.metadata.creation_timestamp or "", each.metadata.name

    older = [
        place(each)
        for each in jobs.values()
        if (each.metadata.labels or {}).get("fairlead.dev/singleton") == label
        and user(each) == user(job)
        and not over(each)
        and place(each) < place(job)
    ]
    return max(older)[1] if older else ""


def drawn(draw, name):
    first = [
        {"job": draw.choice(LABELS[1:]) if when == "singleton" else f"j{draw.randrange(9)}", "when": when}
        for when in draw.choices(WHENS, k=draw.choice((0, 1, 1, 2, 3)))
    ]
    label, user = draw.choice(LABELS), draw.choice(("ann", "eve"))
    return builders.job(
        1,
        name=name,
        uid=name,
        labels={"fairlead.dev/singleton": label} if label else {},
        annotations={"fairlead.dev/user": user},
        created=f"2026-01-0{draw.randrange(1, 6)}T00:00:00Z",
        phase=draw.choice(PHASES),
        dependsOn=first,
    )


@pytest.mark.parametrize("seed", range(40))
def test_an_event_names_all_whose_verdict_it_changes(seed):
    # of a cycle that closes or opens only those that name the job: the others are in it as before
    draw = random.Random(seed)
    jobs, found = {}, Neighbours()
    for _ in range(120):
        name = f"j{draw.randrange(9)}"
        before = {each: judge(job, found) for each, job in jobs.items()}
        if name in jobs and draw.random() < 0.2:
            del jobs[name]
            concerned = found.remove(name)
        else:
            changed = name in jobs and draw.random() < 0.6
            job = (
                msgspec.structs.replace(jobs[name], status=AIJobStatus(phase=draw.choice(PHASES)))
                if changed
                else drawn(draw, name)
            )
            jobs[name] = job
            concerned = found.put(job)
        for each, job in jobs.items():
            now = judge(job, found)
            assert found.cycle(each) == plain_cycle(each, jobs)
            assert (now.state is State.CYCLE) == bool(plain_cycle(each, jobs))
            for label in LABELS[1:]:
                assert found.before(job, label) == plain_before(job, label, jobs)
            was = before.get(each, now)
            if each != name and was != now and not over(job) and State.CYCLE not in (was.state, now.state):
                assert each in concerned, (name, each, was, now)
        assert bool(found) == bool(jobs)


def test_nothing_is_left_of_jobs_that_are_gone():
    draw, found = random.Random(1), Neighbours()
    for number in range(9):
        found.put(drawn(draw, f"j{number}"))
    for number in range(9):
        found.remove(f"j{number}")
    assert [getattr(found, name) for name in ("_jobs", "_relations", "_dependents", "_lines")] == [{}] * 4


@pytest.mark.parametrize("order", [range(3000), reversed(range(3000))])
def test_a_long_chain_is_followed_once(order):
    found = Neighbours()
    jobs = [builders.job(1, name=f"j{each}", uid=f"j{each}", dependsOn=[{"job": f"j{each - 1}"}]) for each in range(3000)]
    for each in order:
        found.put(jobs[each])
    judged = [judge(jobs[each], found).state for each in reversed(range(3000))]
    assert judged == [State.WAITS] * 2999 + [State.MISSING]
    found.put(builders.job(1, name="j-1", uid="first", dependsOn=[{"job": "j2999"}]))
    assert len(found.cycle("j5")) == 3002


def test_a_job_whose_turn_it_is_begins_when_the_one_before_it_is_deleted():
    async def story(_, operator):
        looked = []
        jobs = operator.jobs
        for name in ("run-1", "run-2"):
            first = [{"job": "nightly", "when": "singleton"}]
            job = builders.job(1, name=name, uid=name, labels={"fairlead.dev/singleton": "nightly"}, dependsOn=first)
            jobs.jobs_informer.report([Change(f"vision/{name}", job)])
        jobs._again = looked.append
        jobs.jobs_informer.report([Change("vision/run-1", None)])
        assert looked == ["vision/run-2"]

    in_a_world(story)


def test_counts_and_indexes_follow_jobs_and_pods():
    """A pod is of the job with the UID of its controller: others of that name come and go."""
    draw, cache = random.Random(2), Cache()
    jobs, pods = {}, {}
    for _ in range(600):
        name = f"j{draw.randrange(9)}"
        key = f"vision/{name}"
        if draw.random() < 0.3:
            jobs.pop(key, None)
            cache.remove_job(key)
        else:
            jobs[key] = drawn(draw, name)
            jobs[key].metadata.uid = draw.choice("ab")
            cache.put_job(key, jobs[key])
        pod = f"{name}-{draw.randrange(3)}"
        if draw.random() < 0.4:
            pods.pop(pod, None)
            cache.remove_pod(f"vision/{pod}")
        else:
            pods[pod] = PodSeen(pod, 0, "Running", draw.choice(("", "n1", "n2")), job=draw.choice("ab"))
            cache.put_pod(key, f"vision/{pod}", pods[pod])
        phases = [each.status.phase for each in cache.jobs.values()]
        assert cache.phases() == {phase: phases.count(phase) for phase in set(phases)}
        owned = {key: {} for key in jobs}
        for each in pods.values():
            if (of := jobs.get(f"vision/{each.name[:2]}")) is not None and of.metadata.uid == each.job:
                owned[of.metadata.key][each.name] = each
        assert {key: dict(cache.pods(key)) for key in jobs} == owned
        assert dict(cache.pods_by_job()) == {key: found for key, found in owned.items() if found}
        for node in ("n1", "n2"):
            on = {key: sorted(each.name for each in found) for key, found in cache.pods_on(node).items()}
            wanted = {key: sorted(each.name for each in found.values() if each.node == node) for key, found in owned.items()}
            assert on == {key: found for key, found in wanted.items() if found}
