"""Lists of nodes as Slurm writes them."""

import random

import pytest

from fairlead.submission.hostlists import MOST_HOSTS, HostlistError, hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[01-04,7]", ["node01", "node02", "node03", "node04", "node7"]),
        ("node[08-11]", ["node08", "node09", "node10", "node11"]),
        ("node[8-11]", ["node8", "node9", "node10", "node11"]),
        ("b,a,b, node[2,1]", ["b", "a", "node2", "node1"]),
        ("rack[1-2]node[3-4]", ["rack1node3", "rack1node4", "rack2node3", "rack2node4"]),
        ("gpu[1-2]-ib.cluster.local", ["gpu1-ib.cluster.local", "gpu2-ib.cluster.local"]),
    ],
)
def test_names(text, names):
    assert hosts(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no node is named: give at least one"),
        (",", "no node is named: give at least one"),
        ("node[1-4", "brackets do not match"),
        ("node1-4]", "brackets do not match"),
        ("node[[1]]", "brackets do not match"),
        ("node[]", "neither a number nor a range"),
        ("node[a-c]", "neither a number nor a range"),
        ("node[4-1]", "not a range of 1 to"),
        ("node[1-999999999]", "not a range of 1 to"),
        ("a[1-40]b[1-40]", f"more than {MOST_HOSTS} nodes"),
        ("/etc/nodes", "a file of names"),
        ("nodes/mine.txt", "a file of names"),
        ("no de", "not a node name"),
        ("node[1-2]-", "not a node name"),
        ("n" * 64, "not a node name"),
    ],
)
def test_what_cannot_be_meant(text, said):
    with pytest.raises(HostlistError, match=said):
        hosts(text)


def _written(numbers, width, draw):
    """Numbers as Slurm would write them, some ranges cut at random."""
    parts, numbers = [], sorted(numbers)
    while numbers:
        run = 1
        while run < len(numbers) and numbers[run] == numbers[0] + run and draw.random() < 0.8:
            run += 1
        first, last = str(numbers[0]).zfill(width), str(numbers[run - 1]).zfill(width)
        parts.append(first if run == 1 and draw.random() < 0.8 else f"{first}-{last}")
        del numbers[:run]
    return ",".join(parts)


@pytest.mark.parametrize("seed", range(100))
def test_random_lists(seed):
    draw = random.Random(seed)
    expected, parts = [], []
    for prefix in draw.sample(["node", "gpu-", "r1n", "a.b"], draw.randint(1, 4)):
        width = draw.randint(1, 4)
        numbers = set(draw.sample(range(10 ** min(width, 2)), draw.randint(1, 8)))
        parts.append(f"{prefix}[{_written(numbers, width, draw)}]")
        expected += [f"{prefix}{str(number).zfill(width)}" for number in sorted(numbers)]
    assert hosts(",".join(parts)) == expected
