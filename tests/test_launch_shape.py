"""Launch shapes: what is accepted, and what is refused before a device sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowgemm.binary.signature import KernelSignature
from lowgemm.errors import BlockSizeError, GridSizeError, LaunchError, SharedMemoryError
from lowgemm.runtime.launch import DeviceLimits, LaunchShape, check_launch

KERNEL = KernelSignature("k", (), registers=32, shared_bytes=1024, stack_bytes=0)
LIMITS = DeviceLimits()


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        (7, (7, 1, 1)),
        ((7,), (7, 1, 1)),
        ((7, 2), (7, 2, 1)),
        ([7, 2, 3], (7, 2, 3)),
        (np.int64(7), (7, 1, 1)),
        ((np.int32(7), 2), (7, 2, 1)),
    ],
)
def test_shape_is_filled_up_with_ones(written: Any, normal: tuple[int, int, int]) -> None:
    """An int or up to three of them is a grid and a block."""
    shape = LaunchShape.of(written, written, written)
    assert shape.grid == shape.block == shape.cluster == normal


@pytest.mark.parametrize("bad", [0, -1, (4, 0), (1, 1, 1, 1), (), 1.0, "4", True, None, (2.0, 1)])
def test_shape_that_means_nothing_is_refused(bad: Any) -> None:
    """An empty, negative, fractional or four-dimensional grid or block raises its own error."""
    with pytest.raises(GridSizeError, match="remedy"):
        LaunchShape.of(bad, 1)
    with pytest.raises(BlockSizeError):
        LaunchShape.of(1, bad)


@pytest.mark.parametrize("bad", [-1, 1.5, None, True])
def test_dynamic_shared_memory_is_a_byte_count(bad: Any) -> None:
    """Dynamic shared memory must be a number of bytes."""
    with pytest.raises(SharedMemoryError):
        LaunchShape.of(1, 1, None, bad)


def test_counts() -> None:
    """A shape knows its blocks and threads."""
    shape = LaunchShape.of((2, 3), (4, 5, 6))
    assert (shape.blocks, shape.threads_per_block) == (6, 120)


def test_largest_block_is_accepted_and_one_more_refused() -> None:
    """The device's limit of threads per block is exact."""
    check_launch(KERNEL, LaunchShape.of(1, (32, 32)), LIMITS)
    with pytest.raises(BlockSizeError, match=r"1056 threads.*1024"):
        check_launch(KERNEL, LaunchShape.of(1, (33, 32)), LIMITS)


def test_block_axis_limit() -> None:
    """The limit along z is refused although the thread count would fit."""
    check_launch(KERNEL, LaunchShape.of(1, (1, 1, 64)), LIMITS)
    with pytest.raises(BlockSizeError, match="along z; the limit is 64"):
        check_launch(KERNEL, LaunchShape.of(1, (1, 1, 65)), LIMITS)


def test_launch_bounds_are_kept() -> None:
    """A block beyond the kernel's launch bounds is refused, with both numbers."""
    bounded = replace(KERNEL, max_threads=256)
    check_launch(bounded, LaunchShape.of(1, 256), LIMITS)
    with pytest.raises(BlockSizeError, match=r"257 threads.*256"):
        check_launch(bounded, LaunchShape.of(1, 257), LIMITS)


def test_required_block_is_kept() -> None:
    """A kernel compiled for one block size takes no other, not even of as many threads."""
    fixed = replace(KERNEL, required_block=(16, 16, 1))
    check_launch(fixed, LaunchShape.of(1, (16, 16)), LIMITS)
    with pytest.raises(BlockSizeError, match=r"\(16, 16, 1\)"):
        check_launch(fixed, LaunchShape.of(1, 256), LIMITS)


def test_grid_limits() -> None:
    """x may be huge, y and z may not."""
    check_launch(KERNEL, LaunchShape.of(2**31 - 1, 1), LIMITS)
    with pytest.raises(GridSizeError, match="along x"):
        check_launch(KERNEL, LaunchShape.of(2**31, 1), LIMITS)
    with pytest.raises(GridSizeError, match="65536 blocks along y; the limit is 65535"):
        check_launch(KERNEL, LaunchShape.of((1, 65536), 1), LIMITS)


def test_static_and_dynamic_shared_memory_count_together() -> None:
    """Static and dynamic shared memory together may reach the opt-in limit and not a byte more."""
    limit = LIMITS.max_shared_bytes_per_block
    check_launch(KERNEL, LaunchShape.of(1, 1, None, limit - 1024), LIMITS)
    with pytest.raises(SharedMemoryError, match=rf"{limit + 1} bytes.*1024 static.*{limit}"):
        check_launch(KERNEL, LaunchShape.of(1, 1, None, limit - 1023), LIMITS)


def test_cluster_needs_hopper() -> None:
    """A cluster is refused on a device that has none, and accepted from 9.0 on."""
    shape = LaunchShape.of(8, 32, 2)
    check_launch(KERNEL, shape, LIMITS)
    with pytest.raises(GridSizeError, match=r"8\.9"):
        check_launch(KERNEL, shape, replace(LIMITS, capability=(8, 9)))


def test_cluster_divides_the_grid() -> None:
    """Each size of the grid must be a multiple of the cluster's."""
    check_launch(KERNEL, LaunchShape.of((4, 6), 32, (2, 3)), LIMITS)
    with pytest.raises(GridSizeError, match="does not divide"):
        check_launch(KERNEL, LaunchShape.of((4, 6), 32, (2, 4)), LIMITS)


def test_cluster_size() -> None:
    """Sixteen blocks in a cluster are allowed, seventeen are not."""
    check_launch(KERNEL, LaunchShape.of(16, 32, 16), LIMITS)
    with pytest.raises(GridSizeError, match="17 blocks"):
        check_launch(KERNEL, LaunchShape.of(17, 32, 17), LIMITS)


def test_cluster_of_the_kernel() -> None:
    """A kernel compiled for a cluster takes no other, and its grid must fit it in any case."""
    fixed = replace(KERNEL, required_cluster=(2, 1, 1))
    check_launch(fixed, LaunchShape.of(4, 32), LIMITS)
    check_launch(fixed, LaunchShape.of(4, 32, 2), LIMITS)
    with pytest.raises(GridSizeError, match=r"compiled for, \(2, 1, 1\)"):
        check_launch(fixed, LaunchShape.of(4, 32, 4), LIMITS)
    with pytest.raises(GridSizeError, match="does not divide"):
        check_launch(fixed, LaunchShape.of(3, 32), LIMITS)


def test_cluster_bound_of_the_kernel() -> None:
    """The third number of __launch_bounds__ limits the cluster."""
    bounded = replace(KERNEL, max_cluster_blocks=4)
    check_launch(bounded, LaunchShape.of(8, 32, 4), LIMITS)
    with pytest.raises(GridSizeError, match=r"8 blocks.*allow 4"):
        check_launch(bounded, LaunchShape.of(8, 32, 8), LIMITS)


def test_errors_are_launch_errors() -> None:
    """One except clause catches every launch that cannot be made."""
    with pytest.raises(LaunchError):
        LaunchShape.of(0, 1)
