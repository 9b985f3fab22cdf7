"""Read functions of CPU libraries: ELF through pyelftools, machine code through capstone.

Only what the analysis needs is kept of an instruction: its registers by identity and width, its
memory operand, where it may go. capstone's own flags of what an operand reads and writes are wrong
for many vector instructions (it calls a vector store's target read, and knows nothing of
``vbroadcastf32x4`` or SVE), so the place of an operand decides: the first is the destination,
except of comparisons, stores, branches and prefetches.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from lowgemm.binary.flow import FlowGraph, FlowNode, build_flow, hidden_entries
from lowgemm.errors import HostLibraryError, SourceNotFoundError, SymbolNotFoundError

__all__ = [
    "HostFunction",
    "HostInstruction",
    "HostLibrary",
    "HostMemory",
    "HostRegister",
    "HostSymbol",
    "Machine",
    "decode_host",
    "host_flow",
    "read_library",
]

_MAX_SECTIONS = 1 << 16
_SHF_EXECINSTR = 4
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_VERSYM = struct.Struct("<H")
_VERDEF = "SHT_GNU_verdef"
_VERDEF_ENTRY = struct.Struct("<4H3I")
_HIDDEN = 0x8000
_STT_NOTYPE, _STT_OBJECT, _STT_FUNC, _STT_IFUNC = 0, 1, 2, 10
_SHN_UNDEF, _SHN_LORESERVE = 0, 0xFF00
# Relocations that put an address into a pointer, by machine: with a symbol, without one.
_ABSOLUTE = {"x86-64": 1, "aarch64": 257}
_RELATIVE = {"x86-64": 8, "aarch64": 1027}
# A routine of hand-written assembly may have no size; nobody writes a megabyte of it.
_LONGEST_CODE = 1 << 20


class Machine(Enum):
    """Instruction sets that lowgemm reads on the CPU's side."""

    X86_64 = "x86-64"
    AARCH64 = "aarch64"


_MACHINES = {"EM_X86_64": Machine.X86_64, "EM_AARCH64": Machine.AARCH64}


@dataclass(frozen=True, slots=True)
class HostSymbol:
    """A symbol of a library. ``table`` is where it stands: ``.symtab`` or ``.dynsym``.

    ``version`` is that of an exported symbol where there are versions, ``is_default`` whether a
    program that is linked today gets it. ``is_resolver``: it is an IFUNC, whose code only chooses
    a function when the library is loaded.
    """

    name: str
    address: int
    size_bytes: int
    section: int
    is_code: bool
    table: str
    version: str = ""
    is_default: bool = True
    is_resolver: bool = False


@dataclass(frozen=True, slots=True)
class HostFunction:
    """A function's machine code. ``identified_by`` says how it was found in the library."""

    library: str
    name: str
    machine: Machine
    address: int
    code: bytes = field(repr=False)
    identified_by: str


@dataclass(frozen=True, slots=True)
class HostLibrary:
    """A library: its symbols, and the bytes of its sections on demand.

    ``relocations`` maps the address of each pointer that the loader fills in to what it points at.
    Of several symbols of one name ``symbols`` has under that name the one that is exported, in its
    default version; the others as ``name@VERSION``, or as ``name@ADDRESS`` without one.
    """

    path: str
    machine: Machine
    symbols: Mapping[str, HostSymbol] = field(repr=False)
    relocations: Mapping[int, int] = field(repr=False)
    sections: tuple[tuple[int, int, int, bool], ...] = field(repr=False)
    data: bytes = field(repr=False)

    def symbol(self, name: str) -> HostSymbol:
        """The symbol of that name; without it SymbolNotFoundError, which names similar ones."""
        found = self.symbols.get(name)
        if found is None:
            holding = sorted(there for there in self.symbols if name.lower() in there.lower())
            near = tuple(holding[:5] or get_close_matches(name, self.symbols, n=5, cutoff=0.6))
            raise SymbolNotFoundError(
                f"{self.path} defines no symbol {name}",
                f"similar ones: {', '.join(near)}" if near else "`nm -D` lists a library's symbols",
                available=near,
            )
        return found

    def contents(self, name: str) -> bytes:
        """What stands in the file at a symbol, as long as its size says."""
        symbol = self.symbol(name)
        return self._bytes(symbol, symbol.size_bytes)

    def function(self, name: str) -> HostFunction:
        """The machine code of a function, by its symbol.

        Raises
        ------
        SymbolNotFoundError
            There is no such symbol, or it is no code.
        HostLibraryError
            Its bytes are not in the file.
        """
        symbol = self.symbol(name)
        if not symbol.is_code:
            raise SymbolNotFoundError(f"{name} in {self.path} is data", "name a function")
        size = symbol.size_bytes
        how = f"symbol in {symbol.table}"
        if not size:
            size = self._to_next(symbol)
            how += ", which has no size: read to the next one"
        if symbol.is_resolver:
            how += "; an IFUNC: this code only chooses a function when the library is loaded"
        code = self._bytes(symbol, size)
        how += self._namesakes(name)
        return HostFunction(self.path, name, self.machine, symbol.address, code, how)

    def name_at(self, address: int) -> str:
        """The name of the symbol at an address; without one the address."""
        names = (name for name, symbol in self.symbols.items() if symbol.address == address)
        return next(names, f"{address:#x}")

    def _namesakes(self, name: str) -> str:
        """What other symbols there are of this name."""
        others = [other for other in self.symbols if other.startswith(f"{name}@")]
        if not others:
            return ""
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return f"; others of that name: {', '.join(others[:3])}{more}"

    def _to_next(self, symbol: HostSymbol) -> int:
        start, _, size, _ = self.sections[symbol.section]
        following = (
            other.address
            for other in self.symbols.values()
            if other.section == symbol.section and other.is_code and other.address > symbol.address
        )
        end = min(following, default=start + size)
        return min(end - symbol.address, _LONGEST_CODE)

    def _bytes(self, symbol: HostSymbol, size: int) -> bytes:
        start, offset, section_size, in_file = self.sections[symbol.section]
        first = symbol.address - start
        data = self.data[offset + first : offset + first + size]
        if not in_file or first < 0 or first + size > section_size or len(data) < size or not data:
            raise HostLibraryError(
                f"{self.path}: the {size} bytes of {symbol.name} at {symbol.address:#x} are not in"
                " the file",
                "copy the library again",
            )
        return data


def read_library(path: str | Path) -> HostLibrary:
    """Read a library's symbols and pointers.

    Parameters
    ----------
    path
        An ELF library or program for x86-64 or AArch64.

    Raises
    ------
    SourceNotFoundError
        There is no such file, or it cannot be read.
    HostLibraryError
        It is no ELF file for one of these machines, or it is damaged.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        bare = Path(path).name == str(path)
        raise SourceNotFoundError(
            f"{path} cannot be read: {reason}",
            "give the full path of an ELF library; `ldconfig -p` lists the system's"
            if bare
            else "name an ELF library that can be read",
        ) from error
    with _damage(str(path)):
        return _parse(str(path), data)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Whatever a damaged file makes pyelftools raise becomes one typed error."""
    try:
        yield
    except HostLibraryError:
        raise
    except Exception as error:
        raise HostLibraryError(
            f"{path} is no sound ELF file: {error or type(error).__name__}",
            "name an ELF library; if it is one, copy it again",
        ) from error


def _parse(path: str, data: bytes) -> HostLibrary:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(data))
    machine = _MACHINES.get(elf["e_machine"])
    if machine is None or elf.elfclass != 64 or not elf.little_endian:
        raise HostLibraryError(
            f"{path} is for {elf['e_machine']} ({elf.elfclass}-bit)",
            "name a library for x86-64 or AArch64 (little-endian)",
        )
    if elf.num_sections() > _MAX_SECTIONS:
        raise HostLibraryError(f"{path} claims {elf.num_sections()} sections", "copy it again")
    headers = [elf._get_section_header(i) for i in range(elf.num_sections())]
    code = {i for i, header in enumerate(headers) if header["sh_flags"] & _SHF_EXECINSTR}
    symbols: dict[str, HostSymbol] = {}
    addresses: dict[int, list[int]] = {}
    for index, header in enumerate(headers):
        if header["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM"):
            rows = list(_SYMBOL.iter_unpack(_section(path, data, header, _SYMBOL.size)))
            addresses[index] = [row[4] for row in rows]
            table = ".dynsym" if header["sh_type"] == "SHT_DYNSYM" else ".symtab"
            strings = _section(path, data, headers[header["sh_link"]])
            versions = _versions(path, data, headers, index)
            _add_symbols(symbols, _symbols(rows, strings, table, code, len(headers), versions))
    relocations: dict[int, int] = {}
    for header in headers:
        if header["sh_type"] == "SHT_RELA":
            rela = _RELA.iter_unpack(_section(path, data, header, _RELA.size))
            relocations |= _pointers(rela, addresses.get(header["sh_link"], []), machine)
    sections = tuple(
        (h["sh_addr"], h["sh_offset"], h["sh_size"], h["sh_type"] != "SHT_NOBITS") for h in headers
    )
    return HostLibrary(path, machine, symbols, relocations, sections, data)


def _section(path: str, data: bytes, header: Any, entry: int = 1) -> bytes:
    offset, size = header["sh_offset"], header["sh_size"]
    if offset + size > len(data):
        raise HostLibraryError(
            f"{path} is cut off: a section ends at {offset + size}, the file at {len(data)}",
            "copy the library again",
        )
    return data[offset : offset + size - size % entry]


def _symbols(
    rows: Iterable[tuple[int, int, int, int, int, int]],
    strings: bytes,
    table: str,
    code: set[int],
    sections: int,
    versions: Sequence[tuple[str, bool]],
) -> Iterator[HostSymbol]:
    for index, (name, info, _, section, address, size) in enumerate(rows):
        kind = info & 15
        if kind not in (_STT_NOTYPE, _STT_OBJECT, _STT_FUNC, _STT_IFUNC) or not name:
            continue
        if section == _SHN_UNDEF or section >= min(sections, _SHN_LORESERVE):
            continue
        text = strings[name : strings.find(b"\0", name)].decode("utf-8", "replace")
        if text.startswith("$"):
            continue  # AArch64's mapping symbols
        is_code = section in code and kind != _STT_OBJECT
        version, is_default = versions[index] if index < len(versions) else ("", True)
        resolver = kind == _STT_IFUNC
        yield HostSymbol(
            text, address, size, section, is_code, table, version, is_default, resolver
        )


def _versions(path: str, data: bytes, headers: Sequence[Any], table: int) -> list[tuple[str, bool]]:
    """The version of each symbol of a table, and whether it is the default one."""
    kinds = {h["sh_type"]: h for h in headers if h["sh_type"] in ("SHT_GNU_versym", _VERDEF)}
    numbers, defined = kinds.get("SHT_GNU_versym"), kinds.get(_VERDEF)
    if numbers is None or defined is None or numbers["sh_link"] != table:
        return []
    strings = _section(path, data, headers[defined["sh_link"]])
    names = dict(_version_names(_section(path, data, defined), strings))
    rows = _VERSYM.iter_unpack(_section(path, data, numbers, _VERSYM.size))
    return [(names.get(n & ~_HIDDEN, ""), not n & _HIDDEN) for (n,) in rows]


def _version_names(definitions: bytes, strings: bytes) -> Iterator[tuple[int, str]]:
    at = 0
    while True:
        _, _, number, _, _, names, following = _VERDEF_ENTRY.unpack_from(definitions, at)
        (name,) = struct.unpack_from("<I", definitions, at + names)
        yield number, strings[name : strings.find(b"\0", name)].decode("utf-8", "replace")
        if not following:
            return
        at += following


def _add_symbols(symbols: dict[str, HostSymbol], found: Iterable[HostSymbol]) -> None:
    """Give a name to the best of its symbols, and to the others one of their own."""
    for symbol in found:
        other = symbols.get(symbol.name)
        if other is None or _rank(symbol) > _rank(other):
            symbols[symbol.name], symbol = symbol, other or symbol
        best = symbols[symbol.name]
        if symbol.address != best.address:
            symbols[f"{symbol.name}@{symbol.version or hex(symbol.address)}"] = symbol


def _rank(symbol: HostSymbol) -> tuple[bool, bool]:
    """Exported symbols before local ones that share their name, and then the default version."""
    return symbol.table == ".dynsym", symbol.is_default


def _pointers(
    rows: Iterable[tuple[int, int, int]], addresses: list[int], machine: Machine
) -> dict[int, int]:
    absolute, relative = _ABSOLUTE[machine.value], _RELATIVE[machine.value]
    found = {}
    for offset, info, addend in rows:
        kind, symbol = info & 0xFFFFFFFF, info >> 32
        if kind == relative:
            found[offset] = addend
        elif kind == absolute and symbol < len(addresses):
            found[offset] = addresses[symbol] + addend
    return found


# ---- instructions


@dataclass(frozen=True, slots=True)
class HostRegister:
    """A register operand.

    ``identity`` is the same for all names of a register: ``v3`` for xmm3, ymm3 and zmm3, ``rax``
    for eax. ``width_bits`` is that of the part named, None for a scalable one. AArch64 also has
    the width of an element and, where a single one is meant, its number ``lane``.
    """

    name: str
    identity: str
    is_vector: bool
    width_bits: int | None
    element_bits: int | None = None
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class HostMemory:
    """A memory operand. ``loads`` and ``stores`` are both False for a prefetch."""

    base: str
    index: str
    scale: int
    displacement: int
    width_bits: int | None
    loads: bool
    stores: bool


@dataclass(frozen=True, slots=True)
class HostInstruction:
    """One instruction of a CPU.

    ``registers`` are those in the text, in its order, without masks, predicates and those of an
    address; ``read`` and ``written`` the identities of all, implied ones included. An instruction
    that capstone does not know has the mnemonic ``.byte``.
    """

    address: int
    size: int
    mnemonic: str
    operands: str
    registers: tuple[HostRegister, ...]
    memory: HostMemory | None
    read: frozenset[str]
    written: frozenset[str]
    targets: tuple[int, ...] = ()
    falls_through: bool = True
    is_indirect_jump: bool = False

    @property
    def is_known(self) -> bool:
        """Whether capstone knows it."""
        return self.mnemonic != ".byte"

    @property
    def is_prefetch(self) -> bool:
        """Whether it only asks for a cache line."""
        return self.mnemonic.startswith(("prefetch", "prfm", "prfum", "prfw", "prfb", "prfd"))

    @property
    def is_filler(self) -> bool:
        """Whether it does nothing: NOP in any of its lengths."""
        return self.mnemonic in ("nop", "endbr64", "hint")


def decode_host(function: HostFunction) -> tuple[HostInstruction, ...]:
    """Decode a function, whole; what is no instruction becomes ``.byte``."""
    import capstone

    if function.machine is Machine.X86_64:
        engine, record = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64), _x86
    else:
        engine, record = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM), _arm
    engine.detail = True
    engine.skipdata = True
    return tuple(
        record(decoded) if decoded.id else _unknown(decoded)
        for decoded in engine.disasm(function.code, function.address)
    )


def host_flow(instructions: Iterable[HostInstruction]) -> FlowGraph:
    """The control flow of a function.

    Where it jumps through a table, every block that nothing else leads to may be reached.
    """
    code = list(instructions)
    nodes = [FlowNode(i.address, i.size, i.targets, i.falls_through) for i in code]
    flow = build_flow(nodes)
    if not any(instruction.is_indirect_jump for instruction in code):
        return flow
    return build_flow(nodes, hidden_entries(flow, [i.is_filler for i in code]))


def _unknown(decoded: Any) -> HostInstruction:
    empty: frozenset[str] = frozenset()
    return HostInstruction(
        decoded.address, decoded.size, ".byte", decoded.op_str, (), None, empty, empty
    )


def _ways(decoded: Any, capstone: Any, ends: frozenset[str]) -> tuple[tuple[int, ...], bool, bool]:
    """The targets of a jump, whether the next instruction may follow, whether a table decides."""
    name = decoded.mnemonic.split()[-1]
    if name in ends and name not in ("jmp", "b", "br"):
        return (), False, False
    immediates = [o.imm for o in decoded.operands if o.type == capstone.CS_OP_IMM]
    is_call = decoded.group(capstone.CS_GRP_CALL) or name in ("bl", "blr", "call")
    if is_call or not decoded.group(capstone.CS_GRP_JUMP):
        return (), name not in ends, name in ends
    target = (immediates[-1],) if immediates else ()
    return target, name not in ends, not target


# ---- x86-64

_X86_ENDS = frozenset(("jmp", "ret", "retf", "ud2", "hlt", "int3", "iretq"))
_X86_NO_DESTINATION = re.compile(
    r"(cmp|test|v?u?comis[sdh]|v?ptest|vtestp[sd]|bt|push|j\w+|call|prefetch\w*|nop|loop\w*"
    r"|clflush\w*|clwb|endbr64)$"
)
_X86_NO_ACCESS = re.compile(r"(lea|nop|prefetch\w*|clflush\w*|clwb)$")
_X86_VECTOR = re.compile(r"([xyz])mm(\d+)$")
_X86_VECTOR_BITS = {"x": 128, "y": 256, "z": 512}
_X86_NUMBERED = re.compile(r"(r\d+)([dwb]?)$")
_X86_PARTS = {"": 64, "d": 32, "w": 16, "b": 8}


def _x86_general() -> dict[str, tuple[str, int]]:
    names: dict[str, tuple[str, int]] = {}
    for letter in "abcd":
        whole = f"r{letter}x"
        names |= {whole: (whole, 64), f"e{letter}x": (whole, 32), f"{letter}x": (whole, 16)}
        names |= {f"{letter}l": (whole, 8), f"{letter}h": (whole, 8)}
    for stem in ("si", "di", "sp", "bp"):
        whole = f"r{stem}"
        names |= {whole: (whole, 64), f"e{stem}": (whole, 32), stem: (whole, 16)}
        names[f"{stem}l"] = (whole, 8)
    return names


_X86_GENERAL = _x86_general()


def _x86_register(name: str) -> HostRegister | None:
    if vector := _X86_VECTOR.match(name):
        return HostRegister(name, f"v{vector[2]}", True, _X86_VECTOR_BITS[vector[1]])
    if numbered := _X86_NUMBERED.match(name):
        return HostRegister(name, numbered[1], False, _X86_PARTS[numbered[2]])
    if name in _X86_GENERAL:
        return HostRegister(name, _X86_GENERAL[name][0], False, _X86_GENERAL[name][1])
    return None


def _x86(decoded: Any) -> HostInstruction:
    import capstone

    name = decoded.mnemonic.split()[-1]
    has_destination = not _X86_NO_DESTINATION.match(name)
    registers, memory = [], None
    written: set[str] = set()
    for place, operand in enumerate(decoded.operands):
        is_destination = has_destination and place == 0
        if operand.type == capstone.CS_OP_REG:
            register = _x86_register(decoded.reg_name(operand.reg))
            if register is None:
                continue
            registers.append(register)
            if is_destination:
                written.add(register.identity)
        elif operand.type == capstone.x86.X86_OP_MEM and memory is None:
            memory = _x86_memory(decoded, operand, name, is_destination)
    seen, changed = _x86_accesses(decoded)
    written |= changed if has_destination or not registers else set()
    plain = registers[1:] if has_destination and registers else registers
    read = seen | {register.identity for register in plain}
    targets, falls_through, indirect = _ways(decoded, capstone, _X86_ENDS)
    return HostInstruction(
        decoded.address,
        decoded.size,
        decoded.mnemonic,
        decoded.op_str,
        tuple(registers),
        memory,
        frozenset(read),
        frozenset(written),
        targets,
        falls_through,
        indirect,
    )


def _x86_memory(decoded: Any, operand: Any, name: str, is_destination: bool) -> HostMemory:
    touches = not _X86_NO_ACCESS.match(name)
    both = operand.access == 3  # an addition to memory and the like
    return HostMemory(
        base=_identity(decoded.reg_name(operand.mem.base)),
        index=_identity(decoded.reg_name(operand.mem.index)),
        scale=operand.mem.scale,
        displacement=operand.mem.disp,
        width_bits=operand.size * 8,
        loads=touches and (both or not is_destination),
        stores=touches and is_destination,
    )


def _identity(name: str | None) -> str:
    register = _x86_register(name) if name else None
    return register.identity if register else name or ""


def _x86_accesses(decoded: Any) -> tuple[set[str], set[str]]:
    """What capstone knows of registers read and written: right for the implied ones."""
    both = []
    for registers in decoded.regs_access():
        named = (_x86_register(decoded.reg_name(register)) for register in registers)
        both.append({register.identity for register in named if register})
    return both[0], both[1]


# ---- AArch64

_ARM_ENDS = frozenset(("b", "br", "ret", "udf", "brk", "hlt", "eret", "retaa", "retab"))
_ARM_NO_DESTINATION = re.compile(
    r"(cmp|cmn|tst|ccmp|ccmn|fcmpe?|fccmpe?|cbn?z|tbn?z|b(\..*)?|bl|br|blr|ret|st\w+|prf\w+|nop)$"
)
_ARM_ADDRESS = re.compile(r"\[[^\]\d][^\]]*\]")
_ARM_REGISTER = re.compile(
    r"\b(?:([vzqdshb])(\d+)|([xw])(\d+|zr)|(w?sp))\b(?:\.(\d*)([bhsdq]))?(?:\[(\d+)\])?"
)
_ARM_LIST_LANE = re.compile(r"\}\[(\d+)\]")
_ARM_BITS = {"b": 8, "h": 16, "s": 32, "d": 64, "q": 128}
_ARM_PART = re.compile(r"(?:ld|st)\w*?(?:r|ur|ar|lr|xr)s?([bhw])$")
_ARM_ACCUMULATES = re.compile(r"(f?ml[as]\w*|fn?m(ad|sb|la|ls)|movk|ins|bfi|bfxil|bit|bif|bsl)$")


def _arm_registers(text: str) -> tuple[HostRegister, ...]:
    plain = _ARM_ADDRESS.sub("", text)
    shared_lane = _ARM_LIST_LANE.search(plain)
    found = []
    for match in _ARM_REGISTER.finditer(plain):
        letter, number, general, general_number, stack, count, element, lane = match.groups()
        if not letter:
            identity = "sp" if stack else f"x{general_number}"
            name = stack or f"{general}{general_number}"
            found.append(HostRegister(name, identity, False, 32 if name[0] == "w" else 64))
            continue
        element_bits = _ARM_BITS.get(element or letter)
        if lane is None and shared_lane:
            lane = shared_lane[1]
        width = None if letter == "z" else _ARM_BITS.get(letter)
        if letter == "v":
            many = 1 if lane is not None else int(count or 1)
            width = (element_bits or 0) * many or 128
        found.append(
            HostRegister(
                name=f"{letter}{number}",
                identity=f"v{number}",
                is_vector=True,
                width_bits=width,
                element_bits=element_bits,
                lane=None if lane is None else int(lane),
            )
        )
    return tuple(found)


def _arm(decoded: Any) -> HostInstruction:
    import capstone

    name = decoded.mnemonic
    registers = _arm_registers(decoded.op_str)
    data = [r for r in registers if r.identity != "xzr"]
    operand = next((o for o in decoded.operands if o.type == capstone.arm64.ARM64_OP_MEM), None)
    memory = _arm_memory(decoded, operand, registers) if operand else None
    first = data[:1] if registers and registers[0].identity != "xzr" else []
    if _ARM_NO_DESTINATION.match(name):
        destinations = []
    elif memory and name.startswith("ld"):
        destinations = [r for r in data if _in_front(decoded.op_str, r.name)]
    else:
        destinations = first
    written = {register.identity for register in destinations}
    read = {register.identity for register in data if register not in destinations}
    if _ARM_ACCUMULATES.match(name) or any(r.lane is not None for r in destinations):
        read |= written
    if memory:
        read |= {part for part in (memory.base, memory.index) if part}
        written |= {memory.base} if decoded.writeback else set()
    targets, falls_through, indirect = _ways(decoded, capstone, _ARM_ENDS)
    return HostInstruction(
        decoded.address,
        decoded.size,
        name,
        decoded.op_str,
        registers,
        memory,
        frozenset(read),
        frozenset(written),
        targets,
        falls_through,
        indirect,
    )


def _in_front(text: str, name: str) -> bool:
    """Whether a register stands before the address, so that a load fills it."""
    address = _ARM_ADDRESS.search(text)
    return bool(re.search(rf"\b{name}\b", text[: address.start()] if address else text))


def _arm_memory(
    decoded: Any, operand: Any, registers: tuple[HostRegister, ...]
) -> HostMemory:  # fmt: skip
    name = decoded.mnemonic
    data = [r for r in registers if _in_front(decoded.op_str, r.name)]
    part = _ARM_PART.match(name)
    if part:
        width = {"b": 8, "h": 16, "w": 32}[part[1]]
    elif re.match(r"ld[1-4]r", name):
        width = sum(r.element_bits or 0 for r in data)  # each element once, then repeated
    else:
        width = sum(r.width_bits or 0 for r in data)
    is_scalable = any(r.is_vector and r.width_bits is None for r in data)
    return HostMemory(
        base=decoded.reg_name(operand.mem.base) or "",
        index=(decoded.reg_name(operand.mem.index) or "").replace("w", "x"),
        scale=1 << operand.shift.value if operand.mem.index else 1,
        displacement=operand.mem.disp,
        width_bits=None if is_scalable else width or None,
        loads=name.startswith("ld"),
        stores=name.startswith("st"),
    )
