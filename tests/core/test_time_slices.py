"""Who goes first by attained service: one rule, for evictions, for what keeps them from going round, and for forecasts."""

from __future__ import annotations

import pytest

from fairlead.core.model.service_classes import ServiceClass

SLICED = ServiceClass("sliced", levels=(10.0, 20.0))
EXPRESS = ServiceClass("express", levels=(10.0, 20.0), express=1)


@pytest.mark.parametrize(
    ("service", "level", "other", "near", "takes"),
    [
        (SLICED, 0, 1, True, True),
        (SLICED, 0, 1, False, False),
        (SLICED, 1, 1, True, False),
        (EXPRESS, 0, 1, False, True),
        (EXPRESS, 1, 2, False, False),
        (ServiceClass("plain"), 0, 1, True, False),
    ],
)
def test_less_attained_service_goes_first(service, level, other, near, takes):
    assert service.preempts_by_service(level, other, near=near) is takes
