"""Extended resources as parts of a GPU."""

import pytest

from fairlead.core.mig.geometry import GEOMETRIES
from fairlead.core.mig.parts import Part, PartCause, UnknownPart, part_of

A100 = "NVIDIA-A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("resource", "product", "compute", "memory"),
    [
        ("nvidia.com/mig-1g.5gb", A100, 142, 125),
        ("nvidia.com/mig-1g.5gb.me", A100, 142, 125),
        ("nvidia.com/mig-1g.5gb+me", A100, 142, 125),
        ("nvidia.com/mig-1g.10gb", A100, 142, 250),
        ("nvidia.com/mig-1g.10gb", "NVIDIA-A100-SXM4-80GB", 142, 125),
        ("nvidia.com/mig-1g.10gb.me", "NVIDIA-H100-80GB-HBM3", 142, 125),
        ("nvidia.com/mig-3g.20gb", A100, 428, 500),
        ("nvidia.com/mig-7g.40gb", A100, 1000, 1000),
        ("nvidia.com/mig-2g.12gb", "NVIDIA-A30", 500, 500),
        ("nvidia.com/gpu", f"{A100}-MIG-1g.5gb", 142, 125),
        ("nvidia.com/gpu", f"{A100}-MIG-1g.5gb.me", 142, 125),
        ("nvidia.com/gpu", f"{A100}-MIG-1g.5gb-SHARED", 142, 125),
        ("nvidia.com/gpu", f"{A100}-SHARED", 1000, 1000),
        ("nvidia.com/mig-1g.5gb", f"{A100}-SHARED", 142, 125),
        ("nvidia.com/gpu", A100, 1000, 1000),
        ("nvidia.com/gpu", "", 1000, 1000),
        ("nvidia.com/gpu", "Tesla-T4", 1000, 1000),
        ("nvidia.com/mig-1g.5gb", "", 142, 125),
        ("nvidia.com/mig-3g.40gb", "", 428, 500),
    ],
)
def test_a_resource_is_a_part(resource, product, compute, memory):
    found = part_of(resource, product)
    assert isinstance(found, Part)
    assert (found.compute_milli, found.memory_milli) == (compute, memory)


@pytest.mark.parametrize(
    ("resource", "product", "cause", "said"),
    [
        ("cpu", A100, PartCause.NOT_A_GPU, "'cpu'"),
        ("cpu.shared", A100, PartCause.NOT_A_GPU, "'cpu.shared'"),
        ("nvidia.com/gpu.shared", A100, PartCause.SHARED, "replicas of nvidia.com/gpu,"),
        ("nvidia.com/gpu.shared", "", PartCause.SHARED, "'nvidia.com/gpu.shared'"),
        ("nvidia.com/mig-1g.5gb.shared", f"{A100}-SHARED", PartCause.SHARED, "replicas of nvidia.com/mig-1g.5gb,"),
        ("nvidia.com/mig-1g.12gb", "NVIDIA-H20-3e", PartCause.UNKNOWN_MODEL, "H20-3e"),
        ("nvidia.com/mig-1g.6gb", A100, PartCause.UNKNOWN_PROFILE, "it has 1g.5gb, 1g.5gb+me"),
        ("nvidia.com/mig-", A100, PartCause.UNKNOWN_PROFILE, "''"),
        ("nvidia.com/mig-9g.99gb", "", PartCause.UNKNOWN_PROFILE, "no known model"),
        ("nvidia.com/mig-1g.5gb", "NVIDIA-L40S", PartCause.UNKNOWN_MODEL, "L40S"),
        ("nvidia.com/gpu", "NVIDIA-L40S-MIG-1g.5gb", PartCause.UNKNOWN_MODEL, "L40S"),
        ("nvidia.com/mig-1g.10gb", "", PartCause.AMBIGUOUS, "A100-40GB, A100-80GB, H100-80GB"),
    ],
)
def test_what_is_no_known_part_has_a_reason(resource, product, cause, said):
    found = part_of(resource, product)
    assert isinstance(found, UnknownPart)
    assert found.cause is cause
    assert said in found.message


@pytest.mark.parametrize("model", GEOMETRIES)
def test_the_parts_of_a_gpu_are_never_more_than_the_gpu(model):
    geometry = GEOMETRIES[model]
    for profile in geometry.profiles:
        part = part_of(f"nvidia.com/mig-{profile.name.replace('+', '.')}", model)
        assert isinstance(part, Part)
        assert part.profile == profile.name
        assert part.model == model
        assert part.compute_milli * profile.limit <= 1000
        assert part.memory_milli * profile.limit <= 1000
        assert part.compute_milli > 1000 * profile.compute / geometry.compute - 1
