"""The ladder as data: a record per rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from lowgemm.errors import SourceNotFoundError, UnknownRungError
from lowgemm.gemm.problem import GemmProblem
from lowgemm.hardware import Architecture, capability

__all__ = ["RUNG_NAMES", "Rung", "check_names", "kernel_directory", "ladder", "rung"]


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: its file, its tile, its geometry and what it teaches.

    ``bm``, ``bn``, ``bk`` is the block tile, ``tm`` x ``tn`` the thread tile, ``block`` the thread
    block's shape. ``defines`` are the macros handed to the compiler. ``has_float4`` says that
    the kernel is a template over ``Vec4``: the instance for aligned rows moves float4s, the other
    works for any pointer and leading dimension. ``k_steps`` is how many steps along k an iteration
    of the hot loop computes, None where that is left to the compiler.
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

    def grid(self, problem: GemmProblem) -> int:
        """Blocks of a launch: the grid is one-dimensional, row by row over the tiles of C."""
        return -(-problem.m // self.bm) * -(-problem.n // self.bn)


def _square(side: int) -> tuple[int, int, int]:
    return (side, side, 1)


def _defines(**values: int) -> Mapping[str, int]:
    return MappingProxyType(values)


_WARP_TILED = {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8}

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
)  # fmt: skip


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
RUNG_NAMES: tuple[str, ...] = (*(rung.name for rung in _FIXED), "two_ideas")


def ladder(arch: Architecture | str) -> tuple[Rung, ...]:
    """Every rung, with the sizes that belong to the architecture.

    Raises
    ------
    UnknownArchitectureError
        lowgemm knows no such architecture.
    """
    target = Architecture.parse(arch)
    return (*_FIXED, _two_ideas(capability(target.major, target.minor).ffma_lanes_per_sm))


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
