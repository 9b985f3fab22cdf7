"""The shape of a launch and the limits it must keep, checked before anything reaches a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowgemm.errors import BlockSizeError, GridSizeError, LaunchError, SharedMemoryError
from lowgemm.runtime.shapes import shown, whole_number, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.binary.signature import KernelSignature

__all__ = ["DeviceLimits", "LaunchShape", "check_launch"]

_AXES = "xyz"
_MOST = 2**63 - 1  # far beyond every device; numbers up to here can be written into a message


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What one launch may ask of a device. The defaults are compute capability 9.0's.

    ``max_shared_bytes_per_block`` is the opt-in limit of static and dynamic shared memory together;
    the ``reserved_shared_bytes_per_block`` of the system come on top of it. A cluster of up to
    ``max_cluster_blocks`` runs on every GPU of that capability, one of up to
    ``max_cluster_blocks_nonportable`` on some.
    """

    capability: tuple[int, int] = (9, 0)
    max_threads_per_block: int = 1024
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    max_grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_shared_bytes_per_block: int = 227 * 1024
    reserved_shared_bytes_per_block: int = 1024
    max_cluster_blocks: int = 8
    max_cluster_blocks_nonportable: int = 16


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Grid, block and cluster as (x, y, z), and the dynamic shared memory per block.

    Examples
    --------
    >>> LaunchShape.of(10, (16, 16))
    LaunchShape(grid=(10, 1, 1), block=(16, 16, 1), cluster=None, shared_bytes=0)
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0

    @classmethod
    def of(
        cls,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        cluster: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
    ) -> LaunchShape:
        """Normalise what a caller wrote: an int, or one to three of them, filled up with 1.

        Raises
        ------
        GridSizeError, BlockSizeError, SharedMemoryError
            A value is not an integer, is below 1 (``shared_bytes``: below 0), or there are more
            than three.
        """
        return cls(
            _triple(grid, "grid", GridSizeError),
            _triple(block, "block", BlockSizeError),
            None if cluster is None else _triple(cluster, "cluster", GridSizeError),
            _byte_count(shared_bytes),
        )

    @property
    def threads_per_block(self) -> int:
        """The number of threads in a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """The number of blocks in the grid."""
        return math.prod(self.grid)


def _triple(value: object, what: str, error: type[LaunchError]) -> tuple[int, int, int]:
    whole = whole_numbers(value)
    if whole is None or not 1 <= len(whole) <= 3 or max(whole) > _MOST:
        raise error(
            f"{what} {shown(value)} is not an integer or one to three of them",
            f"write {what}=4 or {what}=(4, 2)",
        )
    if min(whole) < 1:
        raise error(
            f"{what} {shown(value)} is empty: each of its sizes must be at least 1",
            "do not launch when there is nothing to do",
        )
    x, y, z = (*whole, 1, 1)[:3]
    return x, y, z


def _byte_count(value: object) -> int:
    count = whole_number(value)
    if count is None or not 0 <= count <= _MOST:
        raise SharedMemoryError(
            f"shared_bytes {shown(value)} is not a number of bytes", "give an integer, 0 or more"
        )
    return count


def check_launch(signature: KernelSignature, shape: LaunchShape, limits: DeviceLimits) -> None:
    """Refuse a launch that the kernel or the device cannot make.

    Raises
    ------
    BlockSizeError
        More threads than the device or the kernel's ``__launch_bounds__`` allow, or not the block
        that the kernel was compiled for.
    GridSizeError
        A grid or cluster beyond the device's limits, or a cluster that does not divide the grid.
    SharedMemoryError
        More static and dynamic shared memory than a block may have.
    """
    _check_block(signature, shape, limits)
    for axis, size, limit in zip(_AXES, shape.grid, limits.max_grid, strict=True):
        if size > limit:
            raise GridSizeError(
                f"the grid {shape.grid} of kernel {signature.name} has {size} blocks along {axis}; "
                f"the limit is {limit}",
                "put the largest dimension along x, or let each block do more",
            )
    total = signature.shared_bytes + shape.shared_bytes
    if total > limits.max_shared_bytes_per_block:
        raise SharedMemoryError(
            f"kernel {signature.name} would use {total} bytes of shared memory per block "
            f"({signature.shared_bytes} static + {shape.shared_bytes} dynamic); a block on this "
            f"device may have {limits.max_shared_bytes_per_block}",
            "make the tiles smaller, or use fewer pipeline stages",
        )
    cluster = shape.cluster or signature.required_cluster
    if cluster is not None:
        _check_cluster(signature, shape.grid, cluster, limits)


def _check_block(signature: KernelSignature, shape: LaunchShape, limits: DeviceLimits) -> None:
    threads = shape.threads_per_block
    what = f"the block {shape.block} of kernel {signature.name}"
    if signature.required_block is not None and shape.block != signature.required_block:
        raise BlockSizeError(
            f"{what} is not the one it was compiled for, {signature.required_block}",
            f"launch it with block={signature.required_block}",
        )
    if signature.max_threads is not None and threads > signature.max_threads:
        raise BlockSizeError(
            f"{what} has {threads} threads; its __launch_bounds__ allow {signature.max_threads}",
            "launch fewer threads per block, or compile it with a larger bound",
        )
    if threads > limits.max_threads_per_block:
        raise BlockSizeError(
            f"{what} has {threads} threads; the device allows {limits.max_threads_per_block}",
            "launch fewer threads per block",
        )
    for axis, size, limit in zip(_AXES, shape.block, limits.max_block, strict=True):
        if size > limit:
            raise BlockSizeError(f"{what} has {size} threads along {axis}; the limit is {limit}")


def _check_cluster(
    signature: KernelSignature,
    grid: tuple[int, int, int],
    cluster: tuple[int, int, int],
    limits: DeviceLimits,
) -> None:
    what = f"the cluster {cluster} of kernel {signature.name}"
    if signature.required_cluster not in (None, cluster):
        raise GridSizeError(
            f"{what} is not the one it was compiled for, {signature.required_cluster}",
            "launch it without a cluster: its own is taken",
        )
    if limits.capability < (9, 0):
        major, minor = limits.capability
        raise GridSizeError(
            f"{what} cannot run: the device has compute capability {major}.{minor}",
            "clusters need compute capability 9.0 or later; launch without one",
        )
    if math.prod(cluster) > limits.max_cluster_blocks_nonportable:
        raise GridSizeError(
            f"{what} has {math.prod(cluster)} blocks; the limit is {limits.max_cluster_blocks} "
            f"({limits.max_cluster_blocks_nonportable} on some GPUs)"
        )
    bound = signature.max_cluster_blocks
    if bound is not None and math.prod(cluster) > bound:
        raise GridSizeError(
            f"{what} has {math.prod(cluster)} blocks; its __launch_bounds__ allow {bound}",
            "use a smaller cluster, or compile it with a larger bound",
        )
    if any(size % part for size, part in zip(grid, cluster, strict=True)):
        raise GridSizeError(
            f"{what} does not divide the grid {grid}",
            "make each size of the grid a multiple of the cluster's",
        )
