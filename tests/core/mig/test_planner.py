"""The planner of MIG configurations against exhaustive search on small pools."""

import random
from itertools import permutations, product

import pytest

from fairlead.core.mig import planner
from fairlead.core.mig.planner import Cause, Config, ConfigState, DuplicateNodeError, Node, Waiting, plan
from fairlead.core.mig.supply import Demand, Serving, served

PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "gpu")


def matched(pods, supply):
    """The sets of pods that can be served at once, by trying every order: an independent judge of small cases."""
    found = set()

    def extend(number, left, chosen):
        if number == len(pods):
            found.add(chosen)
            return
        extend(number + 1, left, chosen)
        for profile in set(pods[number].profiles):
            if left.get(profile, 0):
                extend(number + 1, {**left, profile: left[profile] - 1}, chosen | {number})

    extend(0, dict(supply), frozenset())
    return found


def random_pool(rng):
    models = ("A100-40GB", "A30")[: rng.randint(1, 2)]
    configs = [
        Config(f"c{number}", model, tuple((profile, rng.randint(1, 3)) for profile in rng.sample(PROFILES, rng.randint(1, 2))))
        for model in models
        for number in range(rng.randint(1, 3))
    ]
    nodes = []
    for number in range(rng.randint(1, 4)):
        model = rng.choice(models)
        config = rng.choice([each for each in configs if each.model == model])
        running = rng.choice([0, 0, 0, 2])
        state = rng.choice([ConfigState.SUCCESS] * 6 + [ConfigState.PENDING, ConfigState.FAILED])
        free = (
            config.partitions if not running else tuple((profile, rng.randint(0, count)) for profile, count in config.partitions)
        )
        nodes.append(Node(f"n{number}", model, config.name, state, free, running))
    waiting = [Waiting(f"p{number}", tuple(rng.sample(PROFILES, rng.randint(1, 2)))) for number in range(rng.randint(0, 5))]
    return nodes, configs, waiting


def offers(nodes, configs, chosen):
    """The partitions of all nodes, where `chosen` (node -> config) is applied."""
    supply = {}
    for node in nodes:
        config = next(
            (each for each in configs if each.model == node.model and each.name == chosen.get(node.name, node.config)), None
        )
        if node.name in chosen or node.state in (ConfigState.PENDING, ConfigState.REBOOTING):
            partitions = config.partitions
        else:
            partitions = node.free if node.state is ConfigState.SUCCESS else ()
        for profile, count in partitions:
            supply[profile] = supply.get(profile, 0) + count
    return supply


@pytest.mark.parametrize("seed", range(150))
def test_no_plan_is_better(seed):
    rng = random.Random(seed)
    nodes, configs, waiting = random_pool(rng)
    heads = rng.randint(0, 2)
    found = plan(nodes, configs, waiting, heads=heads)
    assert found.exact
    idle = [node for node in nodes if not node.running and node.state is ConfigState.SUCCESS]
    choices = [[None, *(c.name for c in configs if c.model == node.model and c.name != node.config)] for node in idle]
    best = None
    for names in product(*choices):
        chosen = {node.name: name for node, name in zip(idle, names, strict=True) if name is not None}
        for pods in matched(waiting, offers(nodes, configs, chosen)):
            value = (sum(number < heads for number in pods), len(pods), -len(chosen))
            best = value if best is None else max(best, value)
    numbers = [number for number, pod in enumerate(waiting) if pod.name in found.served]
    assert (sum(number < heads for number in numbers), len(numbers), -len(found.changes)) == best


@pytest.mark.parametrize("seed", range(150))
def test_a_plan_can_be_carried_out(seed):
    nodes, configs, waiting = random_pool(random.Random(seed + 1000))
    found = plan(nodes, configs, waiting)
    by_name = {node.name: node for node in nodes}
    chosen = {}
    for change in found.changes:
        node = by_name[change.node]
        assert not node.running
        assert node.state is ConfigState.SUCCESS
        assert change.before == node.config != change.config
        assert node.name not in chosen
        chosen[node.name] = change.config
    numbers = frozenset(number for number, pod in enumerate(waiting) if pod.name in found.served)
    assert numbers in matched(waiting, offers(nodes, configs, chosen))
    excluded = {each.node: each.cause for each in found.excluded}
    for node in nodes:
        if node.state is ConfigState.FAILED:
            assert excluded[node.name] is Cause.FAILED
        elif node.state is not ConfigState.SUCCESS:
            assert excluded[node.name] is Cause.CHANGING
        elif node.running:
            assert excluded[node.name] is Cause.RUNNING
    assert all(each.node in each.message for each in found.excluded)


@pytest.mark.parametrize("seed", range(40))
def test_the_order_of_the_input_does_not_matter(seed):
    nodes, configs, waiting = random_pool(random.Random(seed + 2000))
    first = plan(nodes, configs, waiting)
    for order in list(permutations(nodes))[:6]:
        assert plan(order, configs[::-1], waiting) == first


@pytest.mark.parametrize("seed", range(100))
def test_served_pods_are_as_many_as_can_be(seed):
    rng = random.Random(seed)
    pods = [Waiting(f"p{number}", tuple(rng.sample(PROFILES, rng.randint(1, 3)))) for number in range(rng.randint(0, 6))]
    supply = {profile: rng.randint(0, 2) for profile in PROFILES}
    counts = served([Demand(pod.profiles, 1) for pod in pods], supply)
    sets = matched(pods, supply)
    assert sum(counts) == max(map(len, sets))
    for first in range(len(pods) + 1):  # as many of each beginning of the line as is possible at all
        assert sum(counts[:first]) == max(sum(number < first for number in each) for each in sets)


def test_beyond_its_work_the_best_plan_so_far_is_returned():
    configs = [Config(f"all-{profile}", "A100-40GB", ((profile, 7 - number),)) for number, profile in enumerate(PROFILES)]
    nodes = [Node(f"n{number:02}", "A100-40GB", "off", ConfigState.SUCCESS, (), 0) for number in range(12)]
    waiting = [Waiting(f"p{number}", (PROFILES[number % 5], PROFILES[(number + 2) % 5])) for number in range(60)]
    found = plan(nodes, configs, waiting, work=300)
    assert not found.exact
    assert found.changes
    assert plan(nodes, configs, waiting, work=300) == found


def every_node_differs(nodes, pods):
    profiles = (*PROFILES, "gpu")
    configs = [
        Config(f"c{number}", "A100-40GB", tuple((each, (7 * number + 3 * at) % 5) for at, each in enumerate(profiles)))
        for number in range(5)
    ]
    idle = [
        Node(f"n{number:04}", "A100-40GB", "c0", ConfigState.SUCCESS, ((profiles[0], number), (profiles[1], number // 7 % 3)), 0)
        for number in range(nodes)
    ]
    return idle, configs, [Waiting(f"p{number}", (profiles[number % 6], profiles[number % 4])) for number in range(pods)]


@pytest.mark.parametrize(("nodes", "pods"), [(400, 300), (300, 3000)])
def test_the_work_of_a_plan_is_bounded_where_every_node_differs(nodes, pods, monkeypatch):
    searches = []
    monkeypatch.setattr(planner, "Serving", lambda demands: searches.append(Serving(demands)) or searches[-1])
    found = plan(*every_node_differs(nodes, pods), work=100_000)
    assert found.changes
    assert not found.exact
    assert searches[0].steps < 160_000


def test_a_plan_that_serves_all_is_found_within_little_work():
    nodes, configs, waiting = every_node_differs(400, 300)
    assert len(plan(nodes, configs, waiting, work=20_000).served) == 300


@pytest.mark.parametrize("seed", range(60))
def test_amounts_are_served_as_pods_one_by_one(seed):
    rng = random.Random(seed)
    demands = [Demand(tuple(rng.sample(PROFILES, rng.randint(1, 3))), rng.randint(0, 9)) for _ in range(rng.randint(0, 9))]
    supply = {profile: rng.randint(0, 12) for profile in PROFILES}
    alone = served([Demand(demand.profiles, 1) for demand in demands for _ in range(demand.count)], supply)
    at = 0
    for demand, count in zip(demands, served(demands, supply), strict=True):
        assert sum(alone[at : at + demand.count]) == count
        at += demand.count


def test_two_small_pods_need_one_change_not_two():
    configs = [
        Config("all-1g.5gb", "A100-40GB", (("1g.5gb", 7),)),
        Config("balanced", "A100-40GB", (("1g.5gb", 2), ("2g.10gb", 1), ("3g.20gb", 1))),
    ]
    nodes = [Node(name, "A100-40GB", "all-disabled", ConfigState.SUCCESS, (("gpu", 1),), 0) for name in ("a", "b")]
    found = plan(nodes, configs, [Waiting("x", ("1g.5gb",)), Waiting("y", ("3g.20gb",))])
    assert [(change.node, change.config) for change in found.changes] == [("a", "balanced")]
    assert found.served == ("x", "y")


def test_the_first_pod_is_served_before_many_others():
    configs = [Config("all-1g.5gb", "A100-40GB", (("1g.5gb", 7),)), Config("all-7g.40gb", "A100-40GB", (("7g.40gb", 1),))]
    nodes = [Node("a", "A100-40GB", "off", ConfigState.SUCCESS, (), 0)]
    waiting = [Waiting("large", ("7g.40gb",)), *(Waiting(f"s{number}", ("1g.5gb",)) for number in range(7))]
    assert plan(nodes, configs, waiting).served == ("large",)
    assert len(plan(nodes, configs, waiting, heads=0).served) == 7


def test_a_node_that_is_changing_counts_with_what_it_will_offer():
    configs = [Config("all-1g.5gb", "A100-40GB", (("1g.5gb", 7),))]
    nodes = [
        Node("a", "A100-40GB", "all-1g.5gb", ConfigState.PENDING, (), 0),
        Node("b", "A100-40GB", "off", ConfigState.SUCCESS, (), 0),
    ]
    found = plan(nodes, configs, [Waiting("x", ("1g.5gb",))])
    assert found.changes == ()
    assert found.served == ("x",)


def test_two_nodes_of_one_name_are_refused():
    node = Node("a", "A100-40GB", "off", ConfigState.SUCCESS, (), 0)
    with pytest.raises(DuplicateNodeError, match="'a' is given more than once"):
        plan([node, Node("b", "A100-40GB", "off", ConfigState.SUCCESS, (), 0), node], [], [])


@pytest.mark.parametrize("state", ConfigState)
def test_a_state_may_be_the_plain_value_of_the_label(state):
    configs = [Config("all-1g.5gb", "A100-40GB", (("1g.5gb", 7),))]
    plain, typed = (
        plan([Node("a", "A100-40GB", "off", each, (), 0)], configs, [Waiting("x", ("1g.5gb",))]) for each in (state.value, state)
    )
    assert plain == typed
