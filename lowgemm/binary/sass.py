"""A cubin's machine code: decoded from its bytes, with source lines and nvdisasm's text beside."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lowgemm.binary.cubin import CodePart, KernelCode, read_cubin, read_elf
from lowgemm.binary.instruction import Instruction, SourceLine, decode
from lowgemm.binary.line_table import Row, read_line_table
from lowgemm.binary.signature import KernelSignature
from lowgemm.errors import CubinError, ToolFailedError
from lowgemm.hardware import Architecture
from lowgemm.toolchain import run_tool

__all__ = ["SassKernel", "disassemble", "read_sass"]

_SECTION = re.compile(r'^\s*\.section\s+"?\.text\.([^",]+)"?,')
_LABEL = re.compile(r"^(?!\.text\.)([.$\w]+):")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;(.*)$")
_LIVE = re.compile(r"//\s*\|\s*(\d*)\s*\|")


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
        Whether to read nvdisasm's count of live registers as well.
    timeout_s
        The time limit of nvdisasm, which can hang on a damaged cubin.

    Raises
    ------
    CubinError
        The bytes are no cubin, or nvdisasm reads other instructions in them.
    ToolNotFoundError, ToolFailedError, ToolTimeoutError
        nvdisasm is not installed, fails, or does not end.
    """
    kernels = read_sass(cubin)
    lines = _source_lines(cubin, kernels)
    with tempfile.TemporaryDirectory(prefix="lowgemm-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        texts = _listed(path, kernels, live_registers, timeout_s)
    return tuple(_joined(*each) for each in zip(kernels, texts, lines, strict=True))


# ---- source lines


def _source_lines(cubin: bytes, kernels: Sequence[SassKernel]) -> list[dict[int, SourceLine]]:
    """The line of each instruction that has one, by its address, for each kernel."""
    elf = read_elf(cubin)
    table = read_line_table(elf)
    sections = {section.name: section.index for section in reversed(elf.sections)}
    return [
        _lines_of(
            kernel,
            [
                (part.start + address, line)
                for part in kernel.parts
                for address, line in table.get(sections.get(f".text.{part.function}", 0), ())
            ],
        )
        for kernel in kernels
    ]


def _lines_of(kernel: SassKernel, rows: Sequence[Row]) -> dict[int, SourceLine]:
    # A function behind the kernel that has no rows is ptxas's own, and from no line.
    starts = {*kernel.functions, *(part.start for part in kernel.parts)}
    lines: dict[int, SourceLine] = {}
    line, row = None, 0
    for address in (instruction.address for instruction in kernel.instructions):
        if address in starts:
            line = None
        while row < len(rows) and rows[row][0] <= address:
            line, row = rows[row][1], row + 1
        if line is not None:
            lines[address] = line
    return lines


# ---- nvdisasm's output


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    label: str = ""
    live_registers: int | None = None


def _listed(
    path: Path, kernels: Sequence[SassKernel], live_registers: bool, timeout_s: float
) -> list[dict[int, _Text]]:
    """What nvdisasm tells of each instruction, by its address, for each kernel.

    Its start costs more than its work, and beside live registers it shows the same text, but of
    what can be reached alone: one run is enough if no more than fillers are left out.
    """
    counted: list[dict[int, _Text]] = [{} for _ in kernels]
    if live_registers:
        # nvdisasm 13 counts no live registers in cubins of NVRTC 12: then none are known.
        with contextlib.suppress(ToolFailedError):
            options = ("-c", "-plr", "-lrm", "count")
            counted = _read_listing(run_tool("nvdisasm", [*options, path], timeout_s), kernels)
        left_out = [
            instruction
            for kernel, texts in zip(kernels, counted, strict=True)
            for instruction in kernel.instructions
            if instruction.address not in texts
        ]
        if all(each.name == "NOP" and not each.is_conditional for each in left_out):
            return [
                {i.address: texts.get(i.address, _Text("NOP")) for i in kernel.instructions}
                for kernel, texts in zip(kernels, counted, strict=True)
            ]
    shown = _read_listing(run_tool("nvdisasm", ["-c", path], timeout_s), kernels)
    return [{**all_of_it, **known} for all_of_it, known in zip(shown, counted, strict=True)]


def _read_listing(output: str, kernels: Sequence[SassKernel]) -> list[dict[int, _Text]]:
    sections = {name: _parse_section(lines) for name, lines in _sections(output)}
    return [
        {
            part.start + address: text
            for part in kernel.parts
            for address, text in sections.get(part.function, {}).items()
        }
        for kernel in kernels
    ]


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


def _parse_section(lines: Sequence[str]) -> dict[int, _Text]:
    texts: dict[int, _Text] = {}
    label = ""
    for line in lines:
        if found := _LABEL.match(line):
            label = found[1]
        elif instruction := _INSTRUCTION.match(line):
            text = re.sub(r"\s*\(\*.*?\*\)", "", instruction[2]).strip()
            lives = _LIVE.search(instruction[3])
            texts[int(instruction[1], 16)] = _Text(
                text, label, int(lives[1] or 0) if lives else None
            )
            label = ""
    return texts


def _joined(
    kernel: SassKernel, texts: Mapping[int, _Text], lines: Mapping[int, SourceLine]
) -> SassKernel:
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
                line=lines.get(instruction.address),
                live_registers=text.live_registers,
            )
        )
    labels = {
        address: text.label
        for address, text in texts.items()
        if text.label not in ("", kernel.name)
    }
    return replace(kernel, instructions=tuple(joined), labels=labels)
