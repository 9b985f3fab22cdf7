"""A cubin's machine code: decoded from its bytes, with nvdisasm's text beside it."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from lowgemm.binary.cubin import CodePart, KernelCode, read_cubin
from lowgemm.binary.escapes import listed_file
from lowgemm.binary.instruction import Instruction, SourceLine, decode
from lowgemm.binary.signature import KernelSignature
from lowgemm.errors import CubinError, ToolFailedError
from lowgemm.hardware import Architecture
from lowgemm.toolchain import run_tool

__all__ = ["SassKernel", "disassemble", "read_sass"]

_SECTION = re.compile(r'^\s*\.section\s+"?\.text\.([^",]+)"?,')
_LABEL = re.compile(r"^(?!\.text\.)([.$\w]+):")
_FILE_LINE = re.compile(r'^\s*//## File "(.*?)", line (\d+)( inlined at)?')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;(.*)$")
_LIVE = re.compile(r"//\s*\|\s*(\d*)\s*\|")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SassKernel:
    """One kernel's machine code, with that of the functions which it may call.

    ``functions`` are the addresses of functions behind the kernel; one whose address is taken may
    be called though no instruction names it. ``parts`` are the sections that all this comes from,
    the kernel's own first, and ``external_calls`` what it calls that the cubin does not hold; see
    :class:`lowgemm.binary.cubin.KernelCode`. ``labels`` are nvdisasm's names of addresses, as
    instructions' texts have them.
    """

    arch: Architecture
    signature: KernelSignature
    instructions: tuple[Instruction, ...]
    functions: tuple[int, ...] = ()
    parts: tuple[CodePart, ...] = ()
    external_calls: tuple[str, ...] = ()
    labels: Mapping[int, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The (mangled) name in the cubin."""
        return self.signature.name


def read_sass(cubin: bytes) -> tuple[SassKernel, ...]:
    """Decode every kernel of a cubin from its bytes alone; no tool is started.

    Raises
    ------
    CubinError
        The bytes are no cubin, or are damaged.
    """
    read = read_cubin(cubin)
    return tuple(
        _decoded(read.arch, signature, read.code[signature.name]) for signature in read.kernels
    )


def _decoded(arch: Architecture, signature: KernelSignature, code: KernelCode) -> SassKernel:
    tables = code.branch_targets
    instructions = tuple(
        replace(instruction, table_targets=tables[instruction.address])
        if instruction.address in tables
        else instruction
        for instruction in decode(code.content, arch)
    )
    return SassKernel(
        arch, signature, instructions, code.functions, code.parts, code.external_calls
    )


def disassemble(
    cubin: bytes, *, live_registers: bool = True, timeout_s: float = 60
) -> tuple[SassKernel, ...]:
    """Decode every kernel of a cubin and set nvdisasm's text beside each instruction.

    Parameters
    ----------
    cubin
        The cubin's bytes.
    live_registers
        Whether to count live registers as well, which takes a second run of nvdisasm.
    timeout_s
        The time limit of a run: nvdisasm can hang on a damaged cubin.

    Raises
    ------
    CubinError
        The bytes are no cubin, or nvdisasm reads other instructions in them.
    ToolNotFoundError, ToolFailedError, ToolTimeoutError
        nvdisasm is not installed, fails, or does not end.
    """
    kernels = read_sass(cubin)
    with tempfile.TemporaryDirectory(prefix="lowgemm-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        sections = _parse_text(run_tool("nvdisasm", ["-c", "-g", path], timeout_s))
        lives = {}
        if live_registers:
            # nvdisasm 13 counts no live registers in cubins of NVRTC 12: then none are known.
            with contextlib.suppress(ToolFailedError):
                run = run_tool("nvdisasm", ["-c", "-plr", "-lrm", "count", path], timeout_s)
                lives = _parse_lives(run)
    return tuple(_joined(kernel, sections, lives) for kernel in kernels)


# ---- nvdisasm's output


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    line: SourceLine | None
    label: str


def _sections(output: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of each ``.text`` section."""
    name: str | None = None
    lines: list[str] = []
    for line in output.splitlines():
        found = _SECTION.match(line)
        if found or line.startswith("//-----"):
            if name is not None:
                yield name, lines
            name, lines = (found[1] if found else None), []
        elif name is not None:
            lines.append(line)
    if name is not None:
        yield name, lines


def _parse_text(output: str) -> dict[str, dict[int, _Text]]:
    return {name: _parse_section(lines) for name, lines in _sections(output)}


def _parse_section(lines: list[str]) -> dict[int, _Text]:
    texts: dict[int, _Text] = {}
    line: SourceLine | None = None
    inlined, label = False, ""
    for text in lines:
        where = _FILE_LINE.match(text)
        if where:
            # Of a chain of inlined functions the first line is the innermost: that is the code.
            if not inlined:
                line = SourceLine(listed_file(where[1]), int(where[2]))
            inlined = bool(where[3])
        elif text.lstrip().startswith(".type"):
            line, inlined = None, False  # a function; those of ptxas have no line of their own
        elif found := _LABEL.match(text):
            label = found[1]
        elif instruction := _INSTRUCTION.match(text):
            texts[int(instruction[1], 16)] = _Text(_clean(instruction[2]), line, label)
            label = ""
    return texts


def _clean(text: str) -> str:
    return re.sub(r"\s*\(\*.*?\*\)", "", text).strip()


def _parse_lives(output: str) -> dict[str, dict[int, int]]:
    lives: dict[str, dict[int, int]] = {}
    for name, lines in _sections(output):
        counts = lives.setdefault(name, {})
        for text in lines:
            instruction = _INSTRUCTION.match(text)
            if instruction:
                count = _LIVE.search(instruction[3])
                counts[int(instruction[1], 16)] = int(count[1] or 0) if count else 0
    return lives


def _joined(
    kernel: SassKernel,
    sections: Mapping[str, Mapping[int, _Text]],
    lives: Mapping[str, Mapping[int, int]],
) -> SassKernel:
    texts = _behind_each_other(kernel, sections)
    live = _behind_each_other(kernel, lives)
    joined = []
    for instruction in kernel.instructions:
        text = texts.get(instruction.address)
        if text is None:
            raise CubinError(
                f"nvdisasm shows no instruction at {instruction.address:#06x} of {kernel.name!r}",
                "the cubin is damaged, or newer than this nvdisasm: update the toolchain",
            )
        joined.append(
            replace(
                instruction,
                text=text.text,
                line=text.line,
                live_registers=live.get(instruction.address),
            )
        )
    labels = {
        address: text.label
        for address, text in texts.items()
        if text.label not in ("", kernel.name)
    }
    return replace(kernel, instructions=tuple(joined), labels=labels)


def _behind_each_other(
    kernel: SassKernel, sections: Mapping[str, Mapping[int, _T]]
) -> dict[int, _T]:
    """What is told of the sections of a kernel, by address in its code."""
    return {
        part.start + address: told
        for part in kernel.parts
        for address, told in sections.get(part.function, {}).items()
    }
