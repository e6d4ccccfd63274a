"""The index of disruption budgets finds those that asking every budget finds, and guards count alike."""

import random

import pytest

from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.selectors import Requirement, matches
from fairlead.core.pods.tasks import Task
from fairlead.core.state.budgets import Guard
from tests.builders import cluster, node, pod

KEYS, VALUES = ("app", "tier"), ("a", "b", "c")


def selector(rnd):
    if rnd.random() < 0.1:
        return None
    chosen = []
    for _ in range(rnd.choice([0, 1, 1, 1, 2])):
        operator = rnd.choice(["In", "In", "NotIn", "Exists", "DoesNotExist"])
        values = tuple(rnd.sample(VALUES, rnd.choice([1, 2]))) if operator.endswith("In") else ()
        chosen.append(Requirement(rnd.choice(KEYS), operator, values))
    return tuple(chosen)


class Plain:
    """Every budget is asked about every pod."""

    def __init__(self, budgets):
        self.budgets = list(budgets)
        self.left = {each.key: each.allowed for each in budgets}

    def keeping(self, task):
        labels = dict(task.pod.labels)
        return {
            each.key
            for each in self.budgets
            if each.namespace == task.pod.namespace and matches(each.selector, labels) and task.pod.name not in each.disrupted
        }

    def admits(self, tasks):
        needed = {}
        for task in tasks:
            for key in self.keeping(task):
                needed[key] = needed.get(key, 0) + 1
        if any(self.left[key] < count for key, count in needed.items()) or any(len(self.keeping(task)) > 1 for task in tasks):
            return False
        for key, count in needed.items():
            self.left[key] -= count
        return True


@pytest.mark.parametrize("seed", range(60))
def test_what_the_index_finds_is_what_asking_all_finds(seed):
    rnd = random.Random(f"budget index {seed}")
    state = cluster([node("n", gpus=64)])
    for number in range(20):
        labels = tuple((key, rnd.choice(VALUES)) for key in KEYS if rnd.random() < 0.6)
        state.upsert_pod(pod(f"p{number}", at="n", labels=labels))
    tasks: list[Task] = list(state.tasks.values())
    for _ in range(40):
        name = f"b{rnd.randint(0, 6)}"
        if rnd.random() < 0.25:
            state.remove_budget(f"ns/{name}")
        else:
            disrupted = tuple(task.pod.name for task in rnd.sample(tasks, rnd.choice([0, 0, 2])))
            namespace = rnd.choice(["ns", "ns", "ns", "other"])
            state.upsert_budget(DisruptionBudget(namespace, name, selector(rnd), rnd.choice([0, 1, 1, 3, 9]), disrupted))
        guard, plain = state.budgets.guard(), Plain(state.budgets.known.values())
        assert isinstance(guard, Guard)
        for task in tasks:
            assert {each.key for each in guard.keeping(task)} == plain.keeping(task)
        for _ in range(10):
            together = rnd.sample(tasks, rnd.choice([1, 1, 2, 3]))
            trial, before = guard.copy(), dict(plain.left)
            admitted = guard.admits(together)
            assert admitted == plain.admits(together)
            assert trial.admits(together) == admitted, "a copy counts by itself"
            assert admitted or plain.left == before
