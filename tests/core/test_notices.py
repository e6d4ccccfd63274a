"""The last reason reported for a pod is why it waits now, in whatever order policies and pods were observed."""

import random

import pytest

from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Refuse
from tests.builders import cluster, group, node, pod, queue, run

WORLDS = 300


def told(state, decided):
    """Pod -> the code of the last refusal, of those that wait."""
    last = {ref.name: str(each.reason.code) for each in decided if isinstance(each, Refuse) for ref in each.pods}
    return {name: code for name, code in last.items() if state.tasks[f"uid-{name}"].row < 0}


def test_a_class_observed_after_its_pods_leaves_no_older_reason():
    state = cluster([node("n", gpus=1)], [Queue("q")])
    for name in ("a", "b"):
        state.upsert_pod(pod(name, queue="q", service_class="late", created=float(name == "b")))
    state.upsert_class(ServiceClass("late"))
    assert told(state, run(state)) == {"b": "Resources"}


def test_a_queue_removed_after_its_pods_were_observed_is_the_reason():
    state = cluster([node("n", gpus=1)], [Queue("q"), Queue("p")])
    state.upsert_pod(pod("a", queue="q", service_class="none"))
    state.upsert_class(ServiceClass("none"))
    state.remove_queue("q")
    decided = run(state)
    assert told(state, decided) == {"a": "UnknownQueue"}
    assert sum(isinstance(each, Refuse) for each in decided) == 1, "one reason, told once"


def some(source):
    """Changes as (rank in the settled order, what to call with which object); later changes of one object win."""
    queues, classes = ["q", "r"], ["c", "d", ""]
    changes = [(0, "upsert_node", node("n", gpus=source.randint(0, 2)))]
    for name in queues:
        if source.random() < 0.7:
            users = source.choice([None, ("ann",), ("ann", "bob")])
            made = queue(name, limit=source.choice([None, 0, 1]))
            changes.append((1, "upsert_queue", Queue(name, resources=made.resources, users=users)))
    known = [name for name in classes[:2] if source.random() < 0.7]
    changes += [(2, "upsert_class", ServiceClass(name, users=source.choice([None, ("bob",)]))) for name in known]
    groups = range(source.randint(0, 2))
    changes += [(3, "upsert_group", group(f"g{number}", source.randint(1, 3), source.choice(queues))) for number in groups]
    for number in range(source.randint(1, 7)):
        made = pod(
            f"p{number}",
            queue=source.choice(queues),
            service_class=source.choice(classes),
            user=source.choice(["ann", "bob"]),
            group=source.choice(["", "", "g0", "g1"]),
            gated=source.random() < 0.1,
            created=float(number),
            gpus=source.randint(1, 2),
        )
        changes.append((4, "upsert_pod", made))
    return changes


@pytest.mark.parametrize("worlds", range(0, WORLDS, 50))
def test_the_order_in_which_things_are_observed_changes_no_reason(worlds):
    spoken = set()
    for seed in range(worlds, worlds + 50):
        source = random.Random(seed)
        changes = some(source)
        answers = []
        for order in (sorted(changes, key=lambda each: each[0]), source.sample(changes, len(changes))):
            state = cluster()
            decided = []
            for _, call, about in order:
                getattr(state, call)(about)
            decided += run(state)
            answers.append(told(state, decided))
        assert answers[0] == answers[1], seed
        spoken |= set(answers[0].values())
    assert len(spoken) >= 4, spoken
