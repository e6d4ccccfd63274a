"""Reports of `nvidia-smi topo -m`: as the tool prints them, and such that cannot be used."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.links.matrix import PATHS, FaultKind, LinksError
from fairlead.core.links.report import LONGEST, read

H100 = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNV18\tNV18\tPXB\tNODE\tSYS\t0-63,128-191\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tNODE\tPXB\tSYS\t0-63,128-191\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tSYS\tPIX\t64-127,192-255\t1\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tSYS\tPIX\t64-127,192-255\t1\t\tN/A
NIC0\tPXB\tNODE\tSYS\tSYS\t X \tNODE\tSYS\t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
PLAIN = "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"


def test_a_report_of_an_nvswitch_node_has_its_cards_roots_and_numa_nodes():
    links = read(H100)
    assert links.weights[0] == (0, 1800 + PATHS["NODE"], 1800 + PATHS["SYS"], 1800 + PATHS["SYS"])
    assert links.roots[0] == links.nics[0]
    assert links.roots[1] == links.nics[1]
    assert links.roots[2] == links.roots[3] == links.nics[2]
    assert len({links.roots[0], links.roots[1], links.roots[2]}) == 3


def test_two_links_of_a_pair_count_both():
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV2+PHB\t0-3\nGPU1\tPHB+NV2\tX\t0-3\n"
    assert read(text).weights == ((0, 230), (230, 0))


def test_one_gpu_is_an_interconnect():
    assert read("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-19\t0\n").weights == ((0,),)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("", FaultKind.EMPTY, "no line with the columns GPU0"),
        ("GPU0 X NV1\nGPU1 NV1 X", FaultKind.EMPTY, "no line with the columns GPU0"),
        ("\tGPU0\tGPU2\nGPU0\tX\tSYS\nGPU2\tSYS\tX", FaultKind.WRONG_SIZE, "its columns are GPU0, GPU2: expected GPU0 to GPU1"),
        ("\tGPU0\tGPU1\nGPU0\tX\tSYS", FaultKind.WRONG_SIZE, "its rows are GPU0, and its columns GPU0, GPU1"),
        ("\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS", FaultKind.WRONG_SIZE, "the row of GPU1 has 1 columns, and the header 2"),
        (PLAIN + "GPU1\tSYS\tX\n", FaultKind.WRONG_SIZE, "GPU1 has two rows"),
        (PLAIN.replace("GPU1\tSYS", "GPU1\tNV1"), FaultKind.ASYMMETRIC, "GPU1 to GPU0 is 100, and GPU0 to GPU1 is 10"),
        (PLAIN.replace("SYS", "XXX"), FaultKind.UNKNOWN_LINK, "GPU0 to GPU1 is 'XXX'"),
        (PLAIN.replace("SYS", "NV0"), FaultKind.UNKNOWN_LINK, "expected NV1 to NV64"),
        (PLAIN.replace(" X ", "SYS"), FaultKind.UNKNOWN_LINK, "GPU0 to itself is 'SYS'"),
        ("x" * (LONGEST + 1), FaultKind.TOO_LONG, f"{LONGEST} are read"),
    ],
)
def test_a_report_that_cannot_be_used_is_refused_with_its_place(text, kind, message):
    with pytest.raises(LinksError) as refused:
        read(text)
    assert message in str(refused.value)
    assert refused.value.kind is kind


CELLS = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "X", "NV1", "SYS", "PIX+NV2", "CPU Affinity", "NUMA Affinity", "0", "0-3", "N/A", ""]
)


@given(st.lists(st.lists(CELLS, max_size=6), max_size=5) | st.text())
@settings(max_examples=200, deadline=None)
def test_no_text_is_more_than_refused(lines):
    text = lines if isinstance(lines, str) else "\n".join("\t".join(line) for line in lines)
    with suppress(LinksError):
        links = read(text)
        assert all(links.weights[one][two] == links.weights[two][one] for one in range(links.gpus) for two in range(one))
