"""Read a cubin: its architecture and the interface and static resources of each kernel.

A cubin is an ELF file for machine EM_CUDA. What is not in NVIDIA's documents was established on
cubins of NVRTC 12.8 and 13.5 for sm_50 to sm_121, against the log of ``ptxas -v``. Constant names
are those of ``cuobjdump -elf`` and of LLVM's ``BinaryFormat/ELF.h``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from lowgemm.binary.calls import CallGraph, read_calls
from lowgemm.binary.signature import KernelSignature, Parameter, ParameterKind
from lowgemm.errors import CubinError, KernelNotFoundError
from lowgemm.hardware import Architecture

__all__ = [
    "CodePart",
    "Cubin",
    "Elf",
    "KernelCode",
    "Section",
    "attributes_of",
    "code_span",
    "damaged",
    "names_of_symbols",
    "read_cubin",
    "read_elf",
]

_EM_CUDA = 190
_ET_EXEC = 2
# Sections without content: SHT_NOBITS and, in relocatable objects, SHT_CUDA_GLOBAL, _LOCAL, _SHARED
# and the shared memory that the system reserves.
_NO_CONTENT = frozenset(
    ("SHT_NULL", "SHT_NOBITS", 8, 0x70000007, 0x70000009, 0x7000000A, 0x70000015)
)
# Real cubins have a few sections per kernel; a damaged header may claim 2**64.
_MAX_SECTIONS = 1 << 20
# Few sections of a real cubin share bytes with another (.nv.merc's do, from sm_100 on).
_MOST_SHARING = 2

_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10

_EIATTR_MAX_THREADS = 0x05
_EIATTR_REQNTID = 0x10
_EIATTR_FRAME_SIZE = 0x11
_EIATTR_MIN_STACK_SIZE = 0x12
_EIATTR_KPARAM_INFO = 0x17
_EIATTR_CBANK_PARAM_SIZE = 0x19
_EIATTR_REGCOUNT = 0x2F
_EIATTR_INDIRECT_BRANCH_TARGETS = 0x34
_EIATTR_CTA_PER_CLUSTER = 0x3D
_EIATTR_MAX_CLUSTER_RANK = 0x3F
# Used instead of KPARAM_INFO by a kernel with more than 4 KiB of parameters.
_EIATTR_KPARAM_INFO_V2 = 0x45
_UNKNOWN_STACK = 0xFFFFFFFF
_POINTER_SPACE = 5

_SHARED_SECTIONS = (".nv.shared", ".nv_debug.shared")
# What the driver brings, whatever a cubin is linked with.
_SYSTEM_CALLS = frozenset(("vprintf", "malloc", "free", "__assertfail"))
# What stands for the targets of a call through a pointer, which other files may give.
_THROUGH_POINTER = "a function through a pointer"
# Kernels share functions with sections of their own: a damaged file could make its code of them
# many times as long as itself.
_MOST_CODE_BYTES = 1 << 28

# Attribute of .nv.compat: 1 for an architecture-specific ("a") target, 0 for plain and "f" ones.
_COMPAT_ARCH_SPECIFIC = 0x09

# From sm_90 on ptxas counts into .nv.shared.<kernel> the 1 KiB per block that the system reserves
# (CUDA C++ Programming Guide, "Compute Capability 9.0", shared memory). It does so when it makes
# the final program, not in relocatable objects.
_RESERVED_SHARED_BYTES = 1024
_RESERVED_FROM = 90


@dataclass(frozen=True, slots=True)
class CodePart:
    """A section that a kernel's code consists of: its function, and where it begins in the code."""

    function: str
    start: int


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel's machine code, and that of the functions which it may call.

    ptxas puts those functions behind the kernel into its section. In relocatable code
    (``-rdc=true``) and in code for a debugger (``-G``) they have sections of their own: these are
    set behind the kernel's, and ``parts`` says where each begins. ``functions`` are the addresses
    of functions behind the kernel, ascending. ``branch_targets`` holds those of a branch through a
    table, by its address. ``external_calls`` are functions that it calls and the cubin does not
    hold: a relocatable one may have them linked in. There a call through a pointer counts as one
    as well, as the pointer may come from another file.
    """

    content: bytes = field(repr=False)
    parts: tuple[CodePart, ...] = ()
    functions: tuple[int, ...] = ()
    branch_targets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    external_calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cubin:
    """What a cubin says of itself.

    ``arch`` has the suffix ``a`` where the cubin was made for an architecture-specific target; a
    family target (``sm_100f``) is marked nowhere in the file and reads as ``sm_100``.
    ``kernels`` are in the order of the file, ``code`` is their machine code by name.
    ``own_registers`` are those of the kernels alone: a kernel that calls functions of a relocatable
    cubin is linked with as many as the greediest of them needs, and its signature says so.
    ``separate_functions`` are the device functions with sections of their own.
    """

    arch: Architecture
    kernels: tuple[KernelSignature, ...]
    code: Mapping[str, KernelCode] = field(repr=False, default_factory=dict)
    own_registers: Mapping[str, int] = field(repr=False, default_factory=dict)
    separate_functions: frozenset[str] = field(repr=False, default_factory=frozenset)


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin.

    Parameters
    ----------
    data
        The whole file.

    Returns
    -------
    Cubin
        Architecture and kernels; parameters with offset and size, and of unknown kind except
        pointers from sm_100 on (see :func:`lowgemm.binary.refine_signature`).

    Raises
    ------
    CubinError
        The bytes are not a cubin, or are damaged. No other exception leaves this function.
    """
    try:
        return _read(bytes(data))
    except CubinError:
        raise
    except Exception as error:  # pyelftools answers damage with exceptions of many types
        raise damaged("ELF structure", f"{type(error).__name__}: {error}") from error


def code_span(data: bytes, kernel: str) -> tuple[int, int, Architecture]:
    """Where in a cubin's file a kernel's machine code begins and ends, and what it is for.

    Raises
    ------
    CubinError
        The bytes are not a cubin, or are damaged.
    KernelNotFoundError
        It has no kernel of that (mangled) name.
    """
    read = read_cubin(data)
    if kernel not in read.code:
        known = ", ".join(read.code) or "no kernel at all"
        raise KernelNotFoundError(
            f"the cubin has no kernel named {kernel!r}",
            f"it has {known}",
            available=tuple(read.code),
        )
    section = read_elf(bytes(data)).named[f".text.{kernel}"]
    return section.start, section.end, read.arch


def damaged(where: str, what: str) -> CubinError:
    return CubinError(f"not a readable cubin: {where}: {what}", "compile or copy the file again")


# ---- ELF


@dataclass(frozen=True, slots=True)
class Section:
    index: int
    name: str
    size: int
    file: bytes = field(repr=False)
    start: int = 0
    end: int = 0

    @property
    def content(self) -> bytes:
        """Its bytes, copied when asked for: headers may claim much more than there is."""
        return self.file[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Elf:
    flags: int
    abi: int
    executable: bool
    sections: tuple[Section, ...]
    named: Mapping[str, Section]

    def find(self, name: str) -> Section | None:
        return self.named.get(name)


def _read(data: bytes) -> Cubin:
    elf = read_elf(data)
    arch = _architecture(elf)
    symbols = names_of_symbols(elf)
    graph = elf.find(".nv.callgraph")
    program = _Program(
        elf,
        symbols,
        read_calls(graph.content) if graph else CallGraph(),
        _functions_by_section(symbols),
    )
    counts = _resources(elf, symbols)
    kernels: dict[str, KernelSignature] = {}
    code: dict[str, KernelCode] = {}
    for symbol in symbols:
        # A kernel is a function symbol marked as an entry; others are device functions.
        if symbol.is_entry and symbol.section < len(elf.sections):
            if symbol.name in code:
                raise damaged(".symtab", f"kernel {symbol.name!r} stands twice")
            kernel = _kernel(elf, arch, symbol, counts.get(symbol.index, _Counts()))
            kernels[symbol.name] = _with_callees(kernel, symbol, program, counts)
            code[symbol.name] = _code(symbol, program)
            if sum(len(part.content) for part in code.values()) > _MOST_CODE_BYTES:
                raise damaged(".nv.callgraph", f"more than {_MOST_CODE_BYTES} bytes of code")
    own = {s.name: counts.get(s.index, _Counts()).registers for s in symbols if s.name in kernels}
    texts = (s.name.removeprefix(".text.") for s in elf.sections if s.name.startswith(".text."))
    separate = frozenset(texts) - kernels.keys()
    return Cubin(arch, tuple(kernels.values()), code, own, separate)


@dataclass(frozen=True, slots=True)
class _Program:
    """The functions of a cubin, and which calls which; ``behind`` are those in each section."""

    elf: Elf
    symbols: list[_Symbol]
    calls: CallGraph
    behind: Mapping[int, set[int]]

    def reached(self, symbol: _Symbol) -> list[_Symbol]:
        """What a kernel may call that has a section of its own or is not here."""
        found = self.calls.reached(symbol.index)
        if any(index >= len(self.symbols) for index in found):
            raise damaged(".nv.callgraph", f"it names symbol {max(found)}")
        return [self.symbols[index] for index in found]


def _functions_by_section(symbols: list[_Symbol]) -> dict[int, set[int]]:
    """Where device functions begin, by section."""
    starts: dict[int, set[int]] = {}
    for symbol in symbols:
        if symbol.is_function and not symbol.is_entry:
            starts.setdefault(symbol.section, set()).add(symbol.value)
    return starts


def _code(kernel: _Symbol, program: _Program) -> KernelCode:
    elf = program.elf
    reached = program.reached(kernel)
    inside = (s.section for s in reached if s.is_function and 0 < s.section < len(elf.sections))
    content, parts, functions, tables = b"", [], [], {}
    for index in dict.fromkeys((kernel.section, *inside)):
        section = elf.sections[index]
        function, start = section.name.removeprefix(".text."), len(content)
        content += section.content
        parts.append(CodePart(function, start))
        starts = sorted(program.behind.get(index, ()))
        if starts and starts[-1] >= len(section.content):
            raise damaged(f"kernel {kernel.name!r}", "a function begins beyond its code")
        functions += [start + at for at in starts]
        for at, targets in _branch_targets(elf.find(f".nv.info.{function}")):
            tables[start + at] = tuple(start + target for target in targets)
    return KernelCode(content, tuple(parts), tuple(functions), tables, _external(kernel, program))


def _external(kernel: _Symbol, program: _Program) -> tuple[str, ...]:
    if program.elf.executable:
        return ()
    reached = program.reached(kernel)
    names = [symbol.name for symbol in reached if symbol.section == 0]
    if any(symbol.index in program.calls.indirect for symbol in (kernel, *reached)):
        names.append(_THROUGH_POINTER)
    return tuple(name for name in names if name not in _SYSTEM_CALLS)


def _branch_targets(info: Section | None) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Branches through tables: address, a word that is 0, how many targets, and these."""
    for attribute, value in attributes_of(info) if info else ():
        if attribute != _EIATTR_INDIRECT_BRANCH_TARGETS:
            continue
        assert info is not None
        if len(value) % 4:
            raise damaged(info.name, f"attribute {attribute:#x} has {len(value)} bytes")
        words, at = [word for (word,) in struct.iter_unpack("<I", value)], 0
        while at + 3 <= len(words):
            count = words[at + 2]
            targets = words[at + 3 : at + 3 + count]
            if len(targets) < count:
                raise damaged(info.name, f"attribute {attribute:#x} is cut off")
            yield words[at], tuple(dict.fromkeys(targets))
            at += 3 + count


def _with_callees(
    kernel: KernelSignature, symbol: _Symbol, program: _Program, counts: Mapping[int, _Counts]
) -> KernelSignature:
    """A kernel of a relocatable cubin as the linker will make it; in others it is so already."""
    if program.elf.executable:
        return kernel
    reached = program.reached(symbol)
    frames = {index: count.stack_bytes for index, count in counts.items()}
    frames |= {s.index: 0 for s in reached if s.name in _SYSTEM_CALLS}
    registers = (counts[s.index].registers for s in reached if s.section and s.index in counts)
    return replace(
        kernel,
        registers=max((kernel.registers, *registers)),
        shared_bytes=kernel.shared_bytes + _shared_bytes(symbol, reached, program),
        stack_bytes=program.calls.stack_bytes(symbol.index, frames),
    )


def _shared_bytes(kernel: _Symbol, reached: list[_Symbol], program: _Program) -> int:
    """The shared memory that the functions of a relocatable kernel declare, each variable once.

    It stands in a section of the file's; the relocations of the functions' code name it.
    """
    sections, own = program.elf.sections, f".nv.shared.{kernel.name}"
    variables: dict[int, int] = {}
    for code in dict.fromkeys(s.section for s in (kernel, *reached) if s.section < len(sections)):
        relocations = program.elf.find(f".rela{sections[code].name}")
        content = relocations.content if relocations else b""
        for _, info, _ in struct.iter_unpack("<QQq", content[: len(content) // 24 * 24]):
            if info >> 32 >= len(program.symbols):
                raise damaged(f".rela{sections[code].name}", f"it names symbol {info >> 32}")
            symbol = program.symbols[info >> 32]
            where = sections[symbol.section].name if symbol.section < len(sections) else ""
            if where.startswith(_SHARED_SECTIONS) and where != own:
                variables[symbol.index] = symbol.size
    return sum(variables.values())


def read_elf(data: bytes) -> Elf:
    if data[:4] != b"\x7fELF":
        raise damaged("offset 0", f"no ELF magic in {data[:4]!r} ({len(data)} bytes in all)")
    if data[4:6] != b"\x02\x01":
        raise damaged("offset 4", "not a 64-bit little-endian ELF file")
    from elftools.elf.elffile import ELFFile

    file = ELFFile(io.BytesIO(data))
    header = file.header
    if struct.unpack_from("<H", data, 18)[0] != _EM_CUDA:
        raise damaged("offset 18", f"machine {header['e_machine']}, not EM_CUDA")
    count = file.num_sections()
    end = header["e_shoff"] + count * header["e_shentsize"]
    if count > _MAX_SECTIONS or end > len(data) or header["e_shentsize"] < 64:
        raise damaged("section headers", f"{count} of them, beyond the file's {len(data)} bytes")
    sections = tuple(_section(data, i, file.get_section(i)) for i in range(count))
    claimed = sum(section.end - section.start for section in sections)
    if claimed > _MOST_SHARING * len(data):
        what = f"sections of {claimed} bytes in a file of {len(data)}"
        raise damaged("section headers", what)
    kind = struct.unpack_from("<H", data, 16)[0]
    named = {section.name: section for section in reversed(sections)}  # the first counts
    return Elf(header["e_flags"], data[8], kind == _ET_EXEC, sections, named)


def _section(data: bytes, index: int, section: object) -> Section:
    header = section.header  # type: ignore[attr-defined]  # pyelftools is untyped
    name = str(section.name)  # type: ignore[attr-defined]
    size, offset = int(header["sh_size"]), int(header["sh_offset"])
    if header["sh_type"] in _NO_CONTENT:
        return Section(index, name, size, data)
    if offset + size > len(data):
        raise damaged(f"section {name!r}", f"ends at {offset + size}, file has {len(data)} bytes")
    return Section(index, name, size, data, offset, offset + size)


def _architecture(elf: Elf) -> Architecture:
    """Architecture from e_flags and .nv.compat.

    ABI version 7 (NVRTC 12, up to sm_90): SM number in bits 0-7, bit 11 marks ``a``. ABI version 8
    (sm_100 on from NVRTC 12, all from NVRTC 13): SM number in bits 8-15; ``a`` is bit 3 in
    NVRTC 12 and an attribute of .nv.compat in NVRTC 13.
    """
    if elf.abi >= 8:
        number, specific = elf.flags >> 8 & 0xFF, bool(elf.flags & 0x8)
        compat = elf.find(".nv.compat")
        if compat is not None:
            for attribute, value in attributes_of(compat):
                specific |= attribute == _COMPAT_ARCH_SPECIFIC and value[:1] == b"\1"
    else:
        number, specific = elf.flags & 0xFF, bool(elf.flags & 0x800)
    if number < 20:
        raise damaged("e_flags", f"{elf.flags:#x} names no architecture (sm_{number})")
    return Architecture(number // 10, number % 10, "a" if specific else "")


# ---- symbols and attributes


@dataclass(frozen=True, slots=True)
class _Symbol:
    index: int
    name: str
    section: int
    value: int
    size: int
    is_function: bool
    is_entry: bool


@dataclass(slots=True)
class _Counts:
    registers: int = 0
    stack_bytes: int | None = 0


def names_of_symbols(elf: Elf) -> list[_Symbol]:
    table, strings = elf.find(".symtab"), elf.find(".strtab")
    if table is None or strings is None:
        raise damaged(".symtab", "there is no symbol table")
    symbols, texts = [], strings.content
    usable = len(table.content) // 24 * 24
    for index, entry in enumerate(struct.iter_unpack("<IBBHQQ", table.content[:usable])):
        name_at, info, other, section, value, size = entry
        is_function = info & 0xF == _STT_FUNC
        is_entry = is_function and bool(other & _STO_CUDA_ENTRY)
        # Of the others only what is called and not here is named.
        is_named = is_entry or section == 0
        name = _string(texts, name_at) if is_named else ""
        symbols.append(_Symbol(index, name, section, value, size, is_function, is_entry))
    return symbols


def _string(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    if end < 0:
        raise damaged(".strtab", f"the name at {at} does not end")
    try:
        return table[at:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise damaged(".strtab", f"the name at {at} is no text") from error


def attributes_of(section: Section) -> Iterator[tuple[int, bytes]]:
    """Attributes of a .nv.info section: format byte, attribute byte, then the value.

    Format 1 has no value and two bytes of padding, 2 a byte and a byte of padding, 3 a u16,
    4 a u16 length and that many bytes.
    """
    content, at = section.content, 0
    while at + 4 <= len(content):
        form, attribute, value = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == 4:
            if at + value > len(content):
                raise damaged(section.name, f"attribute {attribute:#x} at {at - 4} is cut off")
            yield attribute, content[at : at + value]
            at += value
        elif form in (1, 2, 3):
            yield attribute, content[at - 2 : at]
        else:
            raise damaged(section.name, f"unknown format {form} at {at - 4}")


def _numbers(section: str, attribute: int, value: bytes, layout: str) -> tuple[int, ...]:
    if len(value) != struct.calcsize(layout):
        raise damaged(section, f"attribute {attribute:#x} has {len(value)} bytes")
    return struct.unpack(layout, value)


def _resources(elf: Elf, symbols: list[_Symbol]) -> dict[int, _Counts]:
    """Registers and stack per symbol index, from the cubin-wide .nv.info."""
    counts: dict[int, _Counts] = {}
    info = elf.find(".nv.info")
    for attribute, value in attributes_of(info) if info else ():
        if attribute not in (_EIATTR_REGCOUNT, _EIATTR_FRAME_SIZE, _EIATTR_MIN_STACK_SIZE):
            continue
        symbol, number = _numbers(".nv.info", attribute, value, "<II")
        if symbol >= len(symbols):
            raise damaged(".nv.info", f"attribute {attribute:#x} names symbol {symbol}")
        record = counts.setdefault(symbol, _Counts())
        if attribute == _EIATTR_REGCOUNT:
            record.registers = number
        elif number == _UNKNOWN_STACK or record.stack_bytes is None:
            record.stack_bytes = None  # the kernel's functions call each other without end
        else:
            record.stack_bytes = max(record.stack_bytes, number)
    return counts


# ---- kernels


@dataclass(slots=True)
class _KernelInfo:
    parameters: dict[int, Parameter] = field(default_factory=dict)
    parameter_bytes: int | None = None
    max_threads: int | None = None
    required_block: tuple[int, int, int] | None = None
    required_cluster: tuple[int, int, int] | None = None
    max_cluster_blocks: int | None = None


def _kernel(elf: Elf, arch: Architecture, symbol: _Symbol, counts: _Counts) -> KernelSignature:
    name = symbol.name
    text = elf.sections[symbol.section]
    if text.name != f".text.{name}":
        raise damaged(f"kernel {name!r}", f"its symbol points into section {text.name!r}")
    if not 0 < counts.registers <= 255:
        raise damaged(f"kernel {name!r}", f"it claims {counts.registers} registers")
    info = _kernel_info(elf.find(f".nv.info.{name}"))
    shared = elf.find(f".nv.shared.{name}")
    shared_bytes = shared.size if shared else 0
    reserves = arch.number >= _RESERVED_FROM and elf.executable
    if reserves and shared_bytes >= _RESERVED_SHARED_BYTES:
        shared_bytes -= _RESERVED_SHARED_BYTES
    return KernelSignature(
        name=name,
        parameters=_in_order(name, info),
        registers=counts.registers,
        shared_bytes=shared_bytes,
        stack_bytes=counts.stack_bytes,
        max_threads=info.max_threads,
        required_block=info.required_block,
        required_cluster=info.required_cluster,
        max_cluster_blocks=info.max_cluster_blocks,
    )


def _kernel_info(section: Section | None) -> _KernelInfo:
    info = _KernelInfo()
    for attribute, value in attributes_of(section) if section else ():
        assert section is not None
        where = section.name
        if attribute in (_EIATTR_KPARAM_INFO, _EIATTR_KPARAM_INFO_V2):
            _, ordinal, offset, word = _numbers(where, attribute, value, "<IHHI")
            if ordinal in info.parameters:
                raise damaged(where, f"parameter {ordinal} stands twice")
            info.parameters[ordinal] = _parameter(attribute, ordinal, offset, word)
        elif attribute == _EIATTR_CBANK_PARAM_SIZE:
            (info.parameter_bytes,) = _numbers(where, attribute, value, "<H")
        elif attribute == _EIATTR_MAX_THREADS:
            x, y, z = _numbers(where, attribute, value, "<III")
            info.max_threads = x * y * z
        elif attribute == _EIATTR_REQNTID:
            x, y, z = _numbers(where, attribute, value, "<III")
            info.required_block = (x, y, z)
        elif attribute == _EIATTR_CTA_PER_CLUSTER:
            x, y, z = _numbers(where, attribute, value, "<III")
            # All zero: a cluster whose size the launch must give.
            info.required_cluster = (x, y, z) if x and y and z else None
        elif attribute == _EIATTR_MAX_CLUSTER_RANK:
            (info.max_cluster_blocks,) = _numbers(where, attribute, value, "<I")
    return info


def _parameter(attribute: int, ordinal: int, offset: int, word: int) -> Parameter:
    """KPARAM_INFO packs the size above 18 bits of flags, version 2 below 8 bits of them.

    From sm_100 on the flags mark pointers, as PTX does with ``.ptr``.
    """
    if attribute == _EIATTR_KPARAM_INFO:
        size, space = word >> 18, word >> 8 & 0xF
    else:
        size, space = word & 0xFFFFFF, word >> 24
    kind = ParameterKind.POINTER if space == _POINTER_SPACE else ParameterKind.UNKNOWN
    return Parameter(ordinal, offset, size, kind)


def _in_order(name: str, info: _KernelInfo) -> tuple[Parameter, ...]:
    """The parameters by ordinal; they must be complete, disjoint and inside parameter space."""
    where = f"parameters of {name!r}"
    if sorted(info.parameters) != list(range(len(info.parameters))):
        raise damaged(where, f"there are numbers {sorted(info.parameters)[:20]}")
    ordered = tuple(info.parameters[i] for i in range(len(info.parameters)))
    end = 0
    for parameter in ordered:
        if parameter.size_bytes == 0 or parameter.offset_bytes < end:
            raise damaged(where, f"number {parameter.index} is empty or overlaps the one before")
        end = parameter.offset_bytes + parameter.size_bytes
    if info.parameter_bytes is not None and end > info.parameter_bytes:
        raise damaged(where, f"they end at {end}, the space has {info.parameter_bytes} bytes")
    return ordered
