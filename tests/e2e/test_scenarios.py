"""The scenarios of administrators on the real API server."""

import pytest

from tests.scenarios.runner import FILES, Story

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(cluster, file):
    cluster.scheduler("--no-leader-elect")
    Story(file, cluster.plane.request, cluster.create).run()
    assert not cluster.over_allocated()
