"""Architectures, capabilities and occupancy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.errors import ArgumentValueError, UnknownArchitectureError
from lowgemm.hardware import CAPABILITIES, Architecture, capability, occupancy


@pytest.mark.parametrize("spelling", ["sm_90", "90", 90, "9.0", "SM_90", " sm_90 "])
def test_an_architecture_may_be_spelled_in_any_usual_way(spelling: str | int) -> None:
    """Toolchain, number and version spellings mean the same target."""
    assert Architecture.parse(spelling) == Architecture(9, 0)


def test_three_digits_are_major_and_minor() -> None:
    """sm_120 is 12.0 and sm_103a is 10.3 with its suffix."""
    assert Architecture.parse("sm_120") == Architecture(12, 0)
    assert Architecture.parse("sm_103a") == Architecture(10, 3, "a")
    assert str(Architecture.parse("10.3a")) == "sm_103a"


@pytest.mark.parametrize("spelling", ["compute_90", "hopper", "", "sm_9", "sm_90x"])
def test_what_gives_no_machine_code_is_refused(spelling: str) -> None:
    """A virtual or unknown architecture is an error that names real ones."""
    with pytest.raises(UnknownArchitectureError, match="sm_90"):
        Architecture.parse(spelling)


@pytest.mark.parametrize(
    ("target", "device", "runs"),
    [
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
    ],
)
def test_a_cubin_runs_on_its_major_version_from_its_minor_on(
    target: str, device: tuple[int, int], runs: bool
) -> None:
    """Binary compatibility follows CUDA's rule, and 'a' targets run on their own chip alone."""
    assert Architecture.parse(target).runs_on(*device) is runs


def test_the_seed_example_has_three_blocks_and_three_eighths_of_the_warps() -> None:
    """80 registers and 256 threads: 3 blocks, 37.5 %, limited by registers."""
    result = occupancy(capability(8, 0), threads=256, registers=80)
    assert (result.blocks_per_sm, result.fraction, result.limiter) == (3, 0.375, "registers")


def test_shared_memory_limits_with_the_reserve_of_each_block() -> None:
    """32 KiB and the system's 1 KiB fit three times into 100 KiB, and six times into 228 KiB."""
    small = occupancy(capability(8, 6), threads=64, registers=32, shared_bytes=32 * 1024)
    large = occupancy(capability(9, 0), threads=64, registers=32, shared_bytes=32 * 1024)
    assert (small.blocks_per_sm, small.limiter) == (3, "shared memory")
    assert large.blocks_per_sm == 6


def test_named_barriers_limit_from_compute_capability_9_on() -> None:
    """16 barriers per block leave 4 blocks on 9.0, and do not matter on 8.0."""
    assert occupancy(capability(9, 0), threads=32, registers=16, barriers=16).limiter == "barriers"
    assert occupancy(capability(8, 0), threads=32, registers=16, barriers=16).limiter == "blocks"


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"threads": 1025}, {"registers": 256}, {"shared_bytes": -1}]
)
def test_impossible_kernels_have_no_occupancy(wrong: dict[str, int]) -> None:
    """Values that no kernel can have are refused with the value."""
    arguments = {"threads": 128, "registers": 32} | wrong
    with pytest.raises(ArgumentValueError, match=str(abs(next(iter(wrong.values()))))):
        occupancy(capability(9, 0), **arguments)


@given(
    st.sampled_from(sorted(CAPABILITIES)),
    st.integers(1, 1024),
    st.integers(1, 254),
    st.integers(0, 100_000),
)
def test_more_resources_never_give_more_blocks(
    cc: tuple[int, int], threads: int, registers: int, shared: int
) -> None:
    """Occupancy falls with registers and with shared memory, and never passes the SM's warps."""
    limits = capability(*cc)
    base = occupancy(limits, threads=threads, registers=registers, shared_bytes=shared)
    more = occupancy(limits, threads=threads, registers=registers + 1, shared_bytes=shared + 128)
    assert more.blocks_per_sm <= base.blocks_per_sm
    assert base.warps_per_sm <= limits.warps_per_sm


def test_an_unknown_capability_is_named() -> None:
    """A chip without a table is an error that lists those with one."""
    with pytest.raises(UnknownArchitectureError, match=r"6\.1.*\n.*9\.0"):
        capability(6, 1)


def test_volta_and_turing_reserve_no_shared_memory() -> None:
    """Before 8.0 a block may have all shared memory of its SM, handed out in units of 256 bytes."""
    volta, turing = capability(7, 0), capability(7, 5)
    assert volta.shared_bytes_per_block_optin == volta.shared_bytes_per_sm == 96 * 1024
    assert occupancy(turing, threads=32, registers=16, shared_bytes=32 * 1024).blocks_per_sm == 2
    assert occupancy(turing, threads=32, registers=16, shared_bytes=4097).blocks_per_sm == 15
