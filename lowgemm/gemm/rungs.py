"""The ladder as data: a record per rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lowgemm.errors import SourceNotFoundError, UnknownRungError
from lowgemm.gemm.problem import GemmProblem
from lowgemm.hardware import Architecture, capability
from lowgemm.runtime import Device

__all__ = ["RUNG_NAMES", "Rung", "RungLaunch", "check_names", "kernel_directory", "ladder", "rung"]


@dataclass(frozen=True, slots=True)
class RungLaunch:
    """How a rung's kernel is launched for a problem: ``kernel.launch(*arguments, **geometry)``."""

    arguments: tuple[Any, ...]
    geometry: Mapping[str, Any]


#: What a kernel is launched with, in its order, for a problem with A, B and C on a device.
Arguments = Callable[["Rung", Device, GemmProblem, Any, Any, Any], tuple[Any, ...]]


def matrices(
    rung: Rung, device: Device, problem: GemmProblem, a: Any, b: Any, c: Any
) -> tuple[Any, ...]:
    """``LOWGEMM_GEMM_PARAMETERS``: M N K, then each matrix and its leading dimension."""
    p = problem
    return (p.m, p.n, p.k, a, p.lda, b, p.ldb, c, p.ldc)


def _workspace(rung: Rung, device: Device, problem: GemmProblem) -> tuple[Any, Any]:
    """Room for a tile a block, and a flag a block: zeros, and zeros again after each launch."""
    blocks = rung.grid(problem, device.multiprocessors)
    return device.empty(blocks * rung.bm * rung.bn), device.zeros(blocks, np.uint32)


def with_workspace(
    rung: Rung, device: Device, problem: GemmProblem, a: Any, b: Any, c: Any
) -> tuple[Any, ...]:
    """The matrices, then sums and flags that blocks leave for each other."""
    first = matrices(rung, device, problem, a, b, c)
    return (*first, *_workspace(rung, device, problem))


def tensor_maps(
    rung: Rung, device: Device, problem: GemmProblem, a: Any, b: Any, c: Any
) -> tuple[Any, ...]:
    """M N K, tensor maps of A and B, C and its leading dimension, then as with a workspace."""
    p = problem
    maps = (
        device.tensor_map(each, box, shape=shape, strides_bytes=(4 * pitch, 4))
        for each, box, shape, pitch in (
            (a, (rung.bm, rung.bk), (p.m, p.k), p.lda),
            (b, (rung.bk, rung.bn), (p.k, p.n), p.ldb),
        )
    )
    return (p.m, p.n, p.k, *maps, c, p.ldc, *_workspace(rung, device, problem))


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: its file, its tile, its geometry and what it teaches.

    ``bm``, ``bn``, ``bk`` is the block tile, ``tm`` x ``tn`` the thread tile, ``block`` the thread
    block's shape. ``defines`` are the macros handed to the compiler. ``has_float4`` says that
    the kernel is a template over ``Vec4``: the instance for aligned rows moves float4s, the other
    works for any pointer and leading dimension. ``k_steps`` is how many steps along k an iteration
    of the hot loop computes, None where that is left to the compiler. ``shared_bytes`` is the
    dynamic shared memory of a launch. ``is_rewritten`` says that :mod:`lowgemm.rewrite` makes the
    hot loop of the instance for aligned rows anew; what it refuses stays as the compiler made it.
    ``arguments`` makes what the kernel is launched with. A persistent rung has at most a block a
    multiprocessor. ``unaligned`` is the rung that stands in where rows are not aligned, None where
    the kernel has an instance for them.
    """

    name: str
    source: str
    kernel: str
    idea: str
    block: tuple[int, int, int]
    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    has_float4: bool = False
    k_steps: int | None = None
    defines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    shared_bytes: int = 0
    is_rewritten: bool = False
    arguments: Arguments = matrices
    is_persistent: bool = False
    unaligned: Rung | None = None

    @property
    def path(self) -> Path:
        """The ``.cu`` file."""
        return kernel_directory() / self.source

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def name_expressions(self) -> tuple[str, ...]:
        """The instances to compile; the first is the one for aligned rows."""
        if self.has_float4:
            return (f"{self.kernel}<true>", f"{self.kernel}<false>")
        return (self.kernel,)

    def instance(self, *, aligned: bool) -> str:
        """The name expression of the instance for aligned rows, or for any."""
        return self.name_expressions[0 if aligned else -1]

    def tiles(self, problem: GemmProblem) -> int:
        """Block tiles of C."""
        return -(-problem.m // self.bm) * -(-problem.n // self.bn)

    def k_tiles(self, problem: GemmProblem) -> int:
        """Tiles along k for each of them."""
        return -(-problem.k // self.bk)

    def grid(self, problem: GemmProblem, multiprocessors: int) -> int:
        """Blocks of a launch: the grid is one-dimensional, row by row over the tiles of C.

        A persistent rung has no more than multiprocessors, nor than k-tiles in all.
        """
        tiles = self.tiles(problem)
        if not self.is_persistent:
            return tiles
        return min(multiprocessors, tiles * self.k_tiles(problem))

    def launch(self, device: Device, problem: GemmProblem, a: Any, b: Any, c: Any) -> RungLaunch:
        """What the kernel is launched with on a device.

        Parameters
        ----------
        device
            Where it runs.
        problem
            The sizes.
        a, b, c
            One-dimensional float32 arrays of the device, large enough for the problem.
        """
        return RungLaunch(
            self.arguments(self, device, problem, a, b, c),
            {
                "grid": self.grid(problem, device.multiprocessors),
                "block": self.block,
                "shared_bytes": self.shared_bytes,
            },
        )


def _square(side: int) -> tuple[int, int, int]:
    return (side, side, 1)


def _defines(**values: int) -> Mapping[str, int]:
    return MappingProxyType(values)


_WARP_TILED = {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8}

_EX12 = Rung(
    "ex12", "ex12_branch_free.cu", "ex12_branch_free", "a main loop without branches",
    (256, 1, 1), 256, 128, 8, 8, 16, has_float4=True, defines=_defines(STAGES=4), k_steps=8,
    shared_bytes=64 << 10,
)  # fmt: skip

_FIXED = (
    Rung(
        "ex3", "ex3_naive.cu", "ex3_naive", "one thread, one element",
        _square(16), 16, 16, 1, 1, 1,
    ),
    Rung(
        "ex4_16", "ex4_tiled.cu", "ex4_tiled", "shared-memory tile of 16",
        _square(16), 16, 16, 16, 1, 1, defines=_defines(TILE=16),
    ),
    Rung(
        "ex4_32", "ex4_tiled.cu", "ex4_tiled", "shared-memory tile of 32",
        _square(32), 32, 32, 32, 1, 1, defines=_defines(TILE=32), k_steps=32,
    ),
    Rung(
        "ex5", "ex5_coarsened.cu", "ex5_coarsened", "2 x 2 elements per thread",
        _square(16), 32, 32, 32, 2, 2, k_steps=32,
    ),
    Rung(
        "ex6", "ex6_vectorized.cu", "ex6_vectorized", "float4 loads, tile of 64",
        _square(16), 64, 64, 64, 4, 4, has_float4=True, k_steps=8,
    ),
    Rung(
        "ex7", "ex7_register_tile.cu", "ex7_register_tile", "4 x 4 register tile",
        _square(16), 64, 64, 64, 4, 4, has_float4=True, defines=_defines(STRIDE=4, RK=4),
        k_steps=16,
    ),
    Rung(
        "ex8", "ex8_warp_tile.cu", "ex8_warp_tile", "warp tiles, two prefetches",
        (256, 1, 1), 128, 128, 8, 8, 8, has_float4=True, defines=_defines(**_WARP_TILED),
        k_steps=8,
    ),
    Rung(
        "ex9", "ex9_double_buffer.cu", "ex9_double_buffer", "double buffer, one barrier",
        (256, 1, 1), 128, 128, 8, 8, 8, has_float4=True, defines=_defines(**_WARP_TILED),
        k_steps=16,
    ),
    Rung(
        "ex10", "ex10_cp_async.cu", "ex10_cp_async", "cp.async, three stages",
        (256, 1, 1), 128, 128, 8, 8, 8, has_float4=True, defines=_defines(**_WARP_TILED, STAGES=3),
        k_steps=8,
    ),
    Rung(
        "ex11", "ex11_z_lanes.cu", "ex11_z_lanes", "8 x 16 per thread, lanes in z order",
        (256, 1, 1), 256, 128, 8, 8, 16, has_float4=True,
        defines=_defines(BM=256, BN=128, BK=8, TM=8, TN=16, STAGES=3), k_steps=8,
    ),
    _EX12,
    replace(_EX12, name="ex12_rewritten", idea="ex12, its loop rewritten", is_rewritten=True),
)  # fmt: skip


_EX13_STREAM_K = Rung(
    "ex13", "ex13_stream_k.cu", "ex13_stream_k", "stream-K, cp.async",
    (256, 1, 1), 256, 128, 8, 8, 16, has_float4=True, k_steps=8,
    shared_bytes=64 << 10, arguments=with_workspace, is_persistent=True,
)  # fmt: skip
_EX13_TMA = Rung(
    "ex13", "ex13_tma.cu", "ex13_tma", "stream-K, TMA",
    (256, 1, 1), 256, 128, 8, 8, 16, k_steps=8,
    shared_bytes=64 << 10, arguments=tensor_maps, is_persistent=True, unaligned=_EX13_STREAM_K,
)  # fmt: skip


def _ex13(target: Architecture) -> tuple[Rung, Rung]:
    """TMA where there is one, as the compiler made the loop and rewritten."""
    made = _EX13_TMA if (target.major, target.minor) >= (9, 0) else _EX13_STREAM_K
    idea = f"{made.idea}, the loop rewritten"
    return made, replace(made, name="ex13_rewritten", idea=idea, is_rewritten=True)


def _two_ideas(ffma_lanes_per_sm: int) -> Rung:
    """The register tile follows from the chip: 4 feeds 64 lanes from 128 B/clk, 8 feeds 128."""
    side = 4 if ffma_lanes_per_sm <= 64 else 8
    threads = (64 // side) ** 2
    return Rung(
        "two_ideas", "two_ideas.cu", "two_ideas", f"shared tile 64, register tile {side}",
        (threads, 1, 1), 64, 64, 16, side, side, has_float4=True,
        defines=_defines(TILE=64, BK=16, RT=side), k_steps=16,
    )  # fmt: skip


#: The rungs in the order of the ladder.
RUNG_NAMES: tuple[str, ...] = (
    *(rung.name for rung in _FIXED),
    *("ex13", "ex13_rewritten", "two_ideas"),
)


def ladder(arch: Architecture | str) -> tuple[Rung, ...]:
    """Every rung, with the sizes that belong to the architecture.

    Raises
    ------
    UnknownArchitectureError
        lowgemm knows no such architecture.
    """
    target = Architecture.parse(arch)
    two_ideas = _two_ideas(capability(target.major, target.minor).ffma_lanes_per_sm)
    return (*_FIXED, *_ex13(target), two_ideas)


def rung(name: str, arch: Architecture | str) -> Rung:
    """One rung by name.

    Raises
    ------
    UnknownRungError
        There is none of that name.
    """
    (known,) = check_names([name])
    return next(candidate for candidate in ladder(arch) if candidate.name == known)


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Spell rungs' names as the ladder does, each once; all of them if none is given.

    Raises
    ------
    UnknownRungError
        There is none of a name.
    """
    if not names:
        return RUNG_NAMES
    lowered = dict.fromkeys(name.lower() for name in names)
    for name in lowered:
        if name not in RUNG_NAMES:
            raise UnknownRungError(
                f"no rung is called {name!r}", f"the ladder has {', '.join(RUNG_NAMES)}"
            )
    return tuple(lowered)


def kernel_directory() -> Path:
    """The folder of the kernels: ``lowgemm/cu`` in an installed wheel, ``cu`` in a checkout.

    Raises
    ------
    SourceNotFoundError
        Neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "cu", package.parent / "cu"):
        if (candidate / "common.cuh").is_file():
            return candidate
    raise SourceNotFoundError(
        f"no kernel sources beside {package}", "reinstall lowgemm; its wheel carries them in cu/"
    )
