"""Shares that were divided again only where something changed are those of a division of everything, after every event."""

import random

import pytest

from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.queues.division import Claim, divide
from fairlead.core.queues.sibling_shares import SiblingShares, weights_of
from tests.builders import GPU, cluster, confirm, node, pod, run, spec
from tests.core.test_requests import plainly as asked_plainly

LEAVES = ["a", "b", "c", "d", "e", "f"]


def policy(draw, name, *, plain):
    """A queue with a quota, and perhaps a weight, or anything else that shares depend on."""
    parent = draw.choice(["", "top", "mid"]) if name in LEAVES else ("top" if name == "mid" and draw.random() < 0.5 else "")
    resources = []
    for resource, unit in ((GPU, 1000), ("cpu", 1000)):
        if draw.random() < (0.9 if resource == GPU else 0.3):
            weight = draw.choice([None, 1, 2, 5]) if plain == "some" else draw.randint(1, 3)
            percent = 20_000 if not plain and draw.random() < 0.2 else None
            limit = draw.randint(4, 20) * unit if not plain and draw.random() < 0.2 else None
            resources.append(
                QueueResource(
                    resource, draw.randint(0, 6) * unit, limit, weight=None if percent else weight, weight_percent=percent
                )
            )
    return Queue(name, parent, draw.choice([0, 0, 0, 1]), tuple(resources))


def plainly(state):
    """The shares of all queues, level by level, each resource by itself."""
    tree, fair, requests, found, children = state.queues.tree, state.queues.fair, asked_plainly(state), {}, {}
    for name, each in sorted(tree.queues.items()):
        if requests[name]:
            children.setdefault(each.parent, []).append(each)
    if sum(map(bool, requests.values())) < 2:
        return found
    for resource in {"cpu", "memory", GPU, *(name for each in tree.queues.values() for name in each.quota)}:
        pending = [(None, tree.usable(resource) - fair.foreign(resource, children.get(None, ())))]
        while pending:
            parent, amount = pending.pop()
            siblings = children.get(parent, [])
            claims = [
                Claim(
                    each.name,
                    request := requests[each.name].get(resource, 0),
                    quota := each.quota.get(resource),
                    limit := each.limits.get(resource),
                    max(0, (request if limit is None else min(request, limit)) - (quota or 0)) if weight is None else weight,
                    each.policy.priority,
                    floor=max(0, each.foreign.get(resource, 0)),
                )
                for each, weight in zip(siblings, weights_of(siblings, resource), strict=True)
            ]
            enough = sum(claim.demand for claim in claims) <= amount
            shares = {} if enough else divide(amount, claims, tree.scale(resource), 0.0)
            for each, claim in zip(siblings, claims, strict=True):
                if claim.request and not enough:
                    found.setdefault(each.name, {})[resource] = shares[each.name]
                own = each.used.get(resource, 0) - sum(below.used.get(resource, 0) for below in children.get(each, ()))
                pending.append((each, (claim.demand if enough else shares[each.name]) - own))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_shares_are_those_of_a_division_of_everything(seed):
    draw = random.Random(seed)
    plain = draw.choice(["all", "all", "some", ""])  # "": limits and percentages, too; "some": not all have a weight
    guests = draw.choice([0.0, 0.1, 0.5])  # of other schedulers
    queues = [policy(draw, name, plain=plain) for name in ["top", "mid", *LEAVES]]
    state = cluster([node(f"n{number}", gpus=draw.choice([4, 8])) for number in range(3)], queues)
    fair, known, divided = state.queues.fair, [], 0
    for number in range(90):
        now, chance, where = 1000.0 + 7.0 * number, draw.random(), draw.choice([*LEAVES, "top"])
        if chance < 0.5:
            known.append(f"p{number}")
            wanted = spec(draw.choice([0, 1, 1, 2, 4, 32]), cpu=draw.choice([1000, 8000, 30_000]))
            foreign = draw.random() < guests
            at = f"n{draw.randrange(3)}" if foreign else ""
            state.upsert_pod(pod(f"p{number}", where, draw.choice([0, 0, 5]), created=now, spec_=wanted, at=at, ours=not foreign))
        elif chance < 0.58:
            state.upsert_group(Group("ns", f"g{number}", 2, created=now))
            for member in range(draw.choice([2, 4])):
                known.append(f"g{number}-{member}")
                state.upsert_pod(pod(f"g{number}-{member}", where, group=f"g{number}", created=now))
        elif chance < 0.85 and known:
            state.remove_pod(f"uid-{known.pop(draw.randrange(len(known)))}")
        elif chance < 0.92:
            state.upsert_node(node(f"n{draw.randrange(4)}", gpus=draw.choice([4, 8]), unschedulable=draw.random() < 0.2))
        elif chance < 0.96:
            state.upsert_queue(policy(draw, where, plain=plain))
        if draw.random() < 0.8:
            confirm(state, run(state, now))
        before = fair.share, {name: dict(scarce) for name, scarce in fair.share.items()}
        state.settle(now)
        fair.touch()
        state.queues.settle(now)
        assert fair.share == plainly(state), number
        assert (fair.share, fair.entitled, fair.disputed) == fair._divided(now), number
        assert before[0] == before[1], "shares that were made before are as they were"
        divided += bool(fair.share)
    assert divided


@pytest.mark.parametrize("seed", range(20))
def test_what_a_failed_division_left_is_not_gone_on_from(seed, monkeypatch):
    draw, known = random.Random(seed), SiblingShares._share_out
    queues = [policy(draw, name, plain="all") for name in ["top", "mid", *LEAVES]]
    state = cluster([node(f"n{number}", gpus=4, cpu=20_000) for number in range(2)], queues)
    fair, failed = state.queues.fair, 0
    for number in range(60):
        left = draw.choice([None, None, 0, 1, 2, 3])  # so many groups are divided before one fails

        def share_out(*arguments):
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise RuntimeError
            return known(*arguments)

        state.upsert_pod(pod(f"p{number}", draw.choice(LEAVES), created=1.0 * number, gpus=draw.choice([0, 1, 2]), cpu=4000))
        state.settle(1.0 * number)
        fair.touch()
        monkeypatch.setattr(SiblingShares, "_share_out", share_out)
        try:
            state.queues.settle(1.0 * number)
        except RuntimeError:
            failed += 1
        monkeypatch.setattr(SiblingShares, "_share_out", known)
        fair.touch()
        state.queues.settle(1.0 * number)
        assert (fair.share, fair.entitled, fair.disputed) == fair._divided(1.0 * number), number
        if draw.random() < 0.3:
            confirm(state, run(state, 1.0 * number))
    assert failed


def test_a_deep_tree_is_divided_queue_by_queue(monkeypatch):
    known, divided, queues, parent = SiblingShares._share_out, [], [], ""
    for number in range(12):
        queues += [Queue(f"{side}{number}", parent, resources=(QueueResource(GPU, 1000),)) for side in "xy"]
        parent = f"x{number}"
    leaves = [each.name for each in queues if each.name.startswith("y")] + [parent]
    pods = [pod(f"{name}-{number}", name, created=1.0) for name in leaves for number in range(40)]
    state = cluster([node("n", gpus=64)], queues, pods)
    for now in (1.0, 2.0):
        state.upsert_pod(pod(f"new-{now}", parent, created=now))
        state.begin(now)
        state.settle(now)
        if now > 1:
            monkeypatch.setattr(SiblingShares, "_share_out", lambda *arguments: divided.append(arguments) or known(*arguments))
        state.queues.settle(now)
    assert 0 < len(divided) <= 3 * 12
