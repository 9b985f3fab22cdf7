"""CUDA source, PTX and machine code side by side: what each source line became."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lowgemm.analysis.ptx import analyse_ptx_function, ptx_mix
from lowgemm.analysis.sass import analyse_kernel
from lowgemm.analysis.texts import SourceTexts
from lowgemm.binary import function_name
from lowgemm.binary.flow import FlowGraph, sass_flow
from lowgemm.binary.instruction import Instruction, SourceLine
from lowgemm.binary.ptx_code import PtxInstruction, PtxModule, ptx_flow, read_ptx
from lowgemm.binary.sass import SassKernel
from lowgemm.compiler import Build

__all__ = ["KernelLines", "LineCode", "side_by_side"]

_T = TypeVar("_T", PtxInstruction, Instruction)


@dataclass(frozen=True, slots=True)
class LineCode:
    """What one source line became.

    ``line`` is None for what the compiler assigns to no line. ``text`` is the line as the file has
    it now, None where the file is not there or is shorter. The mixes count by mnemonic;
    ``ptx_hot`` and ``sass_hot`` say of each instruction whether it lies in the hot loop of the PTX
    and in that of the machine code.
    """

    line: SourceLine | None
    text: str | None
    ptx: tuple[PtxInstruction, ...] = field(repr=False)
    sass: tuple[Instruction, ...] = field(repr=False)
    ptx_mix: Mapping[str, int]
    sass_mix: Mapping[str, int]
    ptx_hot: tuple[bool, ...] = field(repr=False)
    sass_hot: tuple[bool, ...] = field(repr=False)

    @property
    def ptx_in_hot_loop(self) -> int:
        """How many of its PTX instructions lie in the PTX's hot loop."""
        return sum(self.ptx_hot)

    @property
    def sass_in_hot_loop(self) -> int:
        """How many of its instructions lie in the hot loop of the machine code."""
        return sum(self.sass_hot)

    @property
    def in_hot_loop(self) -> bool:
        """Whether some of its machine code lies in the hot loop."""
        return self.sass_in_hot_loop > 0


@dataclass(frozen=True, slots=True)
class KernelLines:
    """One kernel line by line: the build's own file first, then others by name; no line last.

    Each instruction of the machine code, and each of the PTX of the kernel and of the functions
    that it reaches, is in exactly one line. Code of an inlined function belongs to that function's
    line, not to the caller's. ``hot_loop`` is where the hot loop begins and ends (the first address
    behind it), None where there is no loop.
    """

    kernel: str
    symbol: str
    arch: str
    lines: tuple[LineCode, ...]
    hot_loop: tuple[int, int] | None

    def at(self, line: int, file: str | None = None) -> LineCode | None:
        """A line by its number; in the first file that has it, or in one whose path ends so."""
        for code in self.lines:
            here = code.line
            if here and here.line == line and (file is None or here.file.endswith(file)):
                return code
        return None


def side_by_side(build: Build, kernel: SassKernel) -> KernelLines:
    """Set source, PTX and machine code of a kernel side by side.

    Parameters
    ----------
    build
        The build, compiled with line information (the default).
    kernel
        One of its kernels as :func:`lowgemm.binary.sass.disassemble` gives it: with lines.

    Raises
    ------
    PtxError
        The build's PTX cannot be read.
    """
    module = read_ptx(build.ptx)
    ptx = _by_line(i for function in module.reached(kernel.name) for i in function.instructions)
    sass = _by_line(kernel.instructions)
    hot = analyse_kernel(kernel).hot
    hot_ptx = _hot_ptx(module, kernel.name)
    hot_sass = _hot_sass(kernel, None if hot is None else hot.index)
    texts = SourceTexts()
    own = str(build.source) if build.source else ""
    lines = sorted(ptx.keys() | sass.keys(), key=lambda line: _order(line, own))
    names = {compiled.name: compiled.display_name for compiled in build.kernels}
    return KernelLines(
        kernel=names.get(kernel.name) or function_name(kernel.name),
        symbol=kernel.name,
        arch=str(build.arch),
        lines=tuple(
            LineCode(
                line=line,
                text=texts.line(line),
                ptx=tuple(ptx[line]),
                sass=tuple(sass[line]),
                ptx_mix=ptx_mix(ptx[line]),
                sass_mix=_sass_mix(sass[line]),
                ptx_hot=tuple(id(i) in hot_ptx for i in ptx[line]),
                sass_hot=tuple(i.address in hot_sass for i in sass[line]),
            )
            for line in lines
        ),
        hot_loop=None if hot is None else (hot.start, hot.end),
    )


def _by_line(instructions: Iterable[_T]) -> dict[SourceLine | None, list[_T]]:
    found: defaultdict[SourceLine | None, list[_T]] = defaultdict(list)
    for instruction in instructions:
        found[instruction.line].append(instruction)
    return found


def _order(line: SourceLine | None, own: str) -> tuple[bool, bool, str, int]:
    if line is None:
        return True, True, "", 0
    return False, line.file != own, line.file, line.line


def _sass_mix(instructions: Iterable[Instruction]) -> dict[str, int]:
    """By mnemonic, without what is no work."""
    counts = Counter(i.mnemonic for i in instructions if not i.is_filler)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _own_indices(flow: FlowGraph, loop: int | None) -> frozenset[int]:
    """Indices of the instructions of a loop without those inside it."""
    if loop is None:
        return frozenset()
    blocks = [flow.blocks[index] for index in flow.loops[loop].own_blocks]
    return frozenset(i for block in blocks for i in range(block.first, block.last + 1))


def _hot_sass(kernel: SassKernel, loop: int | None) -> frozenset[int]:
    """Addresses in the hot loop."""
    hot = _own_indices(sass_flow(kernel), loop)
    return frozenset(kernel.instructions[index].address for index in hot)


def _hot_ptx(module: PtxModule, name: str) -> frozenset[int]:
    """Identities of the instructions in the hot loop: several may stand on one line."""
    function = module.function(name)
    if function is None:
        return frozenset()
    code: Sequence[PtxInstruction] = function.instructions
    hot = _own_indices(ptx_flow(code), analyse_ptx_function(module, function).hot_loop)
    return frozenset(id(code[index]) for index in hot)
