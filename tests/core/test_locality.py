"""Image locality in strategy `ai`: where nodes are equally good by GPUs, one that has the pod's images goes before others."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from fairlead.core.nodes.name_ranks import NAME_RANK_BITS
from fairlead.core.pods.scores import locality
from tests.builders import cluster, node, placed, pod, run, spec

GIB = 1 << 30
NAMES = ("registry/train:1", "registry/train:2", "registry/side:1")


def with_images(*names, **more):
    return msgspec.structs.replace(spec(**more), images=names, containers=max(len(names), 1))


def test_the_node_that_has_the_image_is_chosen_among_equals():
    nodes = [node("a"), node("b", images=((NAMES[0], 12 * GIB),)), node("c", images=((NAMES[1], 12 * GIB),))]
    state = cluster(
        nodes, pods=[pod("first", spec_=with_images(NAMES[0], gpus=8)), pod("other", spec_=with_images(NAMES[1], gpus=8))]
    )
    assert placed(run(state)) == {"first": "b", "other": "c"}


def test_gpus_are_packed_before_images_count():
    nodes = [node("a", images=((NAMES[0], 12 * GIB),)), node("b")]
    state = cluster(nodes, pods=[pod("there", at="b"), pod("new", spec_=with_images(NAMES[0]))])
    assert placed(run(state)) == {"new": "b"}


def test_images_count_before_thrift_with_cpu():
    nodes = [node("a", cpu=32_000), node("b", cpu=64_000, images=((NAMES[0], 3 * GIB),))]
    state = cluster(nodes, pods=[pod("new", spec_=with_images(NAMES[0], gpus=0)), pod("plain", spec_=spec(gpus=0))])
    assert placed(run(state)) == {"new": "b", "plain": "a"}


def test_a_node_that_pulled_the_image_meanwhile_is_chosen():
    state = cluster([node("a"), node("b"), node("c")], pods=[pod("first", spec_=with_images(NAMES[0], gpus=8))])
    assert placed(run(state)) == {"first": "a"}
    state.upsert_node(node("c", images=((NAMES[0], 9 * GIB),)))
    state.upsert_pod(pod("second", spec_=with_images(NAMES[0], gpus=8)))
    assert placed(run(state)) == {"second": "c"}
    state.upsert_node(node("c"))
    state.remove_pod("uid-second")
    state.upsert_pod(pod("third", spec_=with_images(NAMES[0], gpus=8)))
    assert placed(run(state)) == {"third": "b"}


def drawn_images(draw):
    return tuple((name, draw.choice((1, 300 << 20, 3 * GIB, 9 * GIB, 40 * GIB))) for name in NAMES if draw.random() < 0.4)


@pytest.mark.parametrize("seed", range(30))
def test_scores_follow_what_nodes_have_at_each_moment(seed):
    """Of one row and of many alike, remembered or found anew, and never a node with less of the images among equals."""
    draw = random.Random(seed)
    names = [f"n{number:03d}" for number in range(draw.choice((3, 12, 150)))]
    has = {name: drawn_images(draw) for name in names}
    sizes = {name: draw.choice((2, 4)) for name in names}
    state = cluster([node(name, gpus=sizes[name], images=has[name]) for name in names])
    for step in range(12):
        wanted = tuple(draw.sample(NAMES, draw.randint(1, 2)))
        state.upsert_pod(pod(f"p{step}", spec_=with_images(*wanted)))
        task = state.tasks[f"uid-p{step}"]
        keys = task.ranking.keys()
        count, shape, strategy = state.nodes.count, task.shape, state.shapes.strategy
        states = state.nodes.device[:count]
        many = strategy.rows(shape, slice(0, count), states, shape.fit.costs(states)).tolist()
        assert many == [strategy.row(shape, row) for row in range(count)]
        assert all(key < 0 or key >> NAME_RANK_BITS == score for key, score in zip(keys.tolist(), many, strict=True))
        free = {name: int(state.nodes.devices.total[state.nodes.device.item(row)]) for name, row in state.nodes.rows.items()}
        pulled = {
            name: int(np.searchsorted(locality.STEPS, sum(size for image, size in has[name] if image in wanted), side="right"))
            for name in names
        }
        where = placed(run(state)).get(f"p{step}")
        if where is not None:
            alike = [name for name in names if free[name] == free[where]]
            assert pulled[where] == max(pulled[name] for name in alike)
        changed = draw.choice(names)
        has[changed] = drawn_images(draw)
        state.upsert_node(node(changed, gpus=sizes[changed], images=has[changed]))
