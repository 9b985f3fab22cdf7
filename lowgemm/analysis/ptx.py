"""What a kernel's PTX consists of: per kernel, and above all per loop.

Instructions are counted by what they do, so that the counts of two architectures compare although
NVRTC writes ``ld.shared.v4.f32`` for one and ``ld.shared.v4.b32`` for the other:

* loads and stores by space and bits, ``ld.shared.128``; without a space it is ``generic``;
  ``.nc``, ``.volatile``, ordering and cache hints are left out;
* asynchronous copies by bits, ``cp.async.128``;
* atomics by space, operation and type, ``atom.global.add.32``, ``red.shared.max.f32``;
* arithmetic by operation and types: ``fma.f32``, ``mad.32``, ``mul.wide.32``, ``setp.f32``,
  ``cvt.f32.32``. Integers and untyped bits are their width; floating point keeps its name. Of the
  modifiers ``wide``, ``hi``, ``approx`` and ``full`` stay: they are other machine code;
* control flow by its name: ``bra``, ``call``, ``ret``; barriers as ``bar.sync``, ``bar.red``;
* everything else under its full name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lowgemm.binary import function_name
from lowgemm.binary.flow import FlowGraph, Loop
from lowgemm.binary.instruction import SourceLine
from lowgemm.binary.ptx_code import PtxFunction, PtxInstruction, PtxModule, ptx_flow, read_ptx
from lowgemm.compiler import Build

__all__ = [
    "PtxLoop",
    "PtxReport",
    "analyse_ptx",
    "analyse_ptx_build",
    "analyse_ptx_function",
    "ptx_mix",
    "ptx_mnemonic",
]

_SPACES = frozenset(("const", "global", "local", "param", "shared"))
_ARITHMETIC = frozenset(
    (
        *("abs", "add", "addc", "and", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot"),
        *("copysign", "cos", "cvt", "cvta", "div", "dp2a", "dp4a", "ex2", "fma", "fns", "isspacep"),
        *("lg2", "lop3", "mad", "mad24", "madc", "max", "min", "mov", "mul", "mul24", "neg", "not"),
        *("or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf", "shl"),
        *("shr", "sin", "slct", "sqrt", "sub", "subc", "szext", "tanh", "testp", "xor"),
    )
)
_CONTROL = frozenset(("bra", "brx", "call", "exit", "ret", "trap"))
_MEMORY = frozenset(("ld", "ldu", "st"))
_ATOMIC = frozenset(("atom", "red"))
_KEPT = frozenset(("wide", "hi", "approx", "full"))
_WHOLE = re.compile(r"[bsu](\d+)(x\d+)?")
_FLOATING = re.compile(r"(?:f|bf|tf)\d+(?:x\d+)?|u?e\d+m\d+(?:x\d+)?")
_VECTOR = re.compile(r"v(\d)")
_COPY_BYTES = ("4", "8", "16")


@dataclass(frozen=True, slots=True)
class PtxLoop:
    """One loop, without the loops inside it.

    ``start_line`` and ``end_line`` are its first and last line in the PTX, inner loops included.
    ``mix`` counts instructions by :func:`ptx_mnemonic`.
    """

    index: int
    start_line: int
    end_line: int
    depth: int
    parent: int | None
    blocks: int
    instructions: int
    mix: Mapping[str, int]
    fma_share: float
    lines: tuple[SourceLine, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class PtxReport:
    """One kernel, or device function that was not inlined, in the PTX for one architecture.

    Counts leave out blocks that no path reaches. ``registers`` are the virtual registers declared,
    by type: as many as the compiler pleased, no measure of pressure. ``shared_bytes`` is static
    shared memory, that of called functions included. ``hot_loop`` is the index of the loop with
    the most fused multiply-adds; where there are none, of the innermost and then longest.
    """

    kernel: str
    symbol: str
    arch: str
    is_entry: bool
    instructions: int
    mix: Mapping[str, int]
    fma_share: float
    registers: Mapping[str, int]
    shared_bytes: int
    loops: tuple[PtxLoop, ...]
    hot_loop: int | None
    irreducible: bool

    @property
    def hot(self) -> PtxLoop | None:
        """The hot loop, where there is a loop."""
        return None if self.hot_loop is None else self.loops[self.hot_loop]


def analyse_ptx_build(build: Build) -> tuple[PtxReport, ...]:
    """Report on the PTX of a build, its kernels under the names that they were asked for by.

    Raises
    ------
    PtxError
        The PTX cannot be read.
    """
    names = {kernel.name: kernel.display_name for kernel in build.kernels}
    return analyse_ptx(build.ptx, names)


def analyse_ptx(ptx: str, display_names: Mapping[str, str] | None = None) -> tuple[PtxReport, ...]:
    """Report on every kernel of a PTX text, and behind them on every device function.

    Parameters
    ----------
    ptx
        The text.
    display_names
        Names for people by (mangled) name; otherwise they are made from the mangled ones.

    Raises
    ------
    PtxError
        The PTX cannot be read.
    """
    module = read_ptx(ptx)
    names = display_names or {}
    ordered = sorted(module.functions, key=lambda function: not function.is_entry)
    return tuple(
        analyse_ptx_function(module, function, names.get(function.name)) for function in ordered
    )


def analyse_ptx_function(
    module: PtxModule, function: PtxFunction, display_name: str | None = None
) -> PtxReport:
    """Report on one kernel or function of a module that was read."""
    code = function.instructions
    flow = ptx_flow(code)
    work = [
        instruction
        for block in flow.blocks
        if flow.reachable(block.index)
        for instruction in code[block.first : block.last + 1]
    ]
    loops = tuple(_loop(code, flow, loop) for loop in flow.loops)
    mix = ptx_mix(work)
    return PtxReport(
        kernel=display_name or function_name(function.name),
        symbol=function.name,
        arch=module.target,
        is_entry=function.is_entry,
        instructions=len(work),
        mix=mix,
        fma_share=_fmas(mix) / len(work) if work else 0.0,
        registers=function.registers,
        shared_bytes=module.shared_bytes(function.name),
        loops=loops,
        hot_loop=_hottest(loops),
        irreducible=flow.irreducible,
    )


def _loop(code: Sequence[PtxInstruction], flow: FlowGraph, loop: Loop) -> PtxLoop:
    work = [
        instruction
        for index in sorted(loop.own_blocks)
        for instruction in code[flow.blocks[index].first : flow.blocks[index].last + 1]
    ]
    mix = ptx_mix(work)
    return PtxLoop(
        index=loop.index,
        start_line=code[loop.start].ptx_line,
        end_line=code[loop.end - 1].ptx_line,
        depth=loop.depth,
        parent=loop.parent,
        blocks=len(loop.own_blocks),
        instructions=len(work),
        mix=mix,
        fma_share=_fmas(mix) / len(work) if work else 0.0,
        lines=tuple(dict.fromkeys(i.line for i in work if i.line is not None)),
    )


def _fmas(mix: Mapping[str, int]) -> int:
    return sum(count for name, count in mix.items() if name.startswith("fma."))


def _hottest(loops: Sequence[PtxLoop]) -> int | None:
    if not loops:
        return None
    return max(loops, key=lambda loop: (_fmas(loop.mix), loop.depth, loop.instructions)).index


def ptx_mix(instructions: Iterable[PtxInstruction]) -> dict[str, int]:
    """Count instructions by :func:`ptx_mnemonic`, the most frequent first."""
    counts = Counter(map(ptx_mnemonic, instructions))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


# ---- under which name an instruction counts


def ptx_mnemonic(instruction: PtxInstruction) -> str:
    """The name under which an instruction is counted; see the module's text for the rules."""
    name, modifiers = instruction.name, instruction.modifiers
    if name in _CONTROL:
        return name
    if name in ("bar", "barrier"):
        kept = [m for m in modifiers if m in ("sync", "arrive", "red")]
        return ".".join(("bar", *kept)) if kept else instruction.opcode
    if name in _MEMORY:
        bits = _memory_bits(modifiers)
        return f"{name}.{_space(modifiers)}.{bits}" if bits else instruction.opcode
    if name in _ATOMIC and modifiers and modifiers[0] != "async":
        return _atomic(instruction)
    if instruction.opcode.startswith("cp.async.c") and "shared" in instruction.opcode:
        size = instruction.operands[2] if len(instruction.operands) > 2 else ""
        return f"cp.async.{int(size) * 8}" if size in _COPY_BYTES else instruction.opcode
    if name in _ARITHMETIC:
        kept = [modifier for modifier in modifiers if modifier in _KEPT]
        return ".".join((name, *kept, *_types(modifiers)))
    return instruction.opcode


def _space(modifiers: Sequence[str]) -> str:
    """The state space; ``shared::cta`` is ``shared``, while another block's keeps its name."""
    for modifier in modifiers:
        if modifier == "shared::cluster":
            return modifier
        if modifier.partition("::")[0] in _SPACES:
            return modifier.partition("::")[0]
    return "generic"


def _memory_bits(modifiers: Sequence[str]) -> int | None:
    vector = next((int(found[1]) for m in modifiers if (found := _VECTOR.fullmatch(m))), 1)
    for modifier in reversed(modifiers):
        found = re.fullmatch(r"[busf](8|16|32|64|128)", modifier)
        if found:
            return int(found[1]) * vector
    return None


def _atomic(instruction: PtxInstruction) -> str:
    modifiers = instruction.modifiers
    types = _types(modifiers)
    operation = next((m for m in modifiers if m in _OPERATIONS), None)
    if operation is None or not types:
        return instruction.opcode
    vector = [modifier for modifier in modifiers if _VECTOR.fullmatch(modifier)]
    return ".".join((instruction.name, _space(modifiers), operation, *vector, *types))


_OPERATIONS = frozenset(("add", "and", "cas", "dec", "exch", "inc", "max", "min", "or", "xor"))


def _types(modifiers: Sequence[str]) -> list[str]:
    found = []
    for modifier in modifiers:
        whole = _WHOLE.fullmatch(modifier)
        if whole:
            found.append(whole[1] + (whole[2] or ""))
        elif modifier == "pred" or _FLOATING.fullmatch(modifier):
            found.append(modifier)
    return found
