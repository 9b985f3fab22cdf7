"""Source lines of machine code, from a cubin's DWARF line table (section ``.debug_line``).

The format is that of the DWARF standards, versions 2 to 4, section 6.2. NVIDIA adds an extended
opcode, 0x90, that says where the code was inlined; the file and line beside it are those of the
code itself, so it is passed over. Which section a sequence's addresses belong to is told by the
relocation of its first one. Established on cubins of NVRTC 12.4 to 12.9 (version 2) and 13.5
(version 3) against ``nvdisasm -g``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from lowgemm.binary.cubin import Elf, damaged, names_of_symbols
from lowgemm.binary.escapes import listed_file
from lowgemm.binary.instruction import SourceLine

__all__ = ["Row", "read_line_table"]

#: An address in a section, and the line of the code from there on; None: the table tells no more.
Row = tuple[int, SourceLine | None]

_NAME = ".debug_line"
_VERSIONS = (2, 3, 4)
# Standard opcodes (DW_LNS_...) by their numbers.
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
# Extended ones (DW_LNE_...), behind a zero and their length.
_END_SEQUENCE, _SET_ADDRESS = 1, 2


def read_line_table(elf: Elf) -> Mapping[int, tuple[Row, ...]]:
    """The rows of each section of code, by its index and ascending.

    Of rows of one address the last counts. Without a line table there are none.

    Raises
    ------
    CubinError
        The table is damaged, or its version is none of 2 to 4.
    """
    section = elf.find(_NAME)
    content = section.content if section else b""
    sections = _relocated(elf) if content else {}
    rows: dict[int, list[Row]] = {}
    at = 0
    try:
        while at < len(content):
            (length,) = struct.unpack_from("<I", content, at)
            end = at + 4 + length
            if end > len(content):
                raise ValueError(f"it ends at {end}")
            for place, found in _Unit(content[:end], at + 4).sequences():
                rows.setdefault(sections.get(place, 0), []).extend(found)
            at = end
    except (IndexError, ValueError, struct.error) as error:
        raise damaged(_NAME, f"the unit at {at} of {len(content)} bytes: {error}") from error
    return {index: tuple(sorted(found, key=lambda row: row[0])) for index, found in rows.items()}


def _relocated(elf: Elf) -> dict[int, int]:
    """The section that an address in the table points into, by its place in the table."""
    symbols = names_of_symbols(elf)
    found = {}
    for name, layout in ((".rel", "<QQ"), (".rela", "<QQq")):
        section, size = elf.find(name + _NAME), struct.calcsize(layout)
        content = section.content if section else b""
        for place, info, *_ in struct.iter_unpack(layout, content[: len(content) // size * size]):
            if info >> 32 >= len(symbols):
                raise damaged(name + _NAME, f"it names symbol {info >> 32}")
            found[place] = symbols[info >> 32].section
    return found


class _Unit:
    """A line-number program, read from its start to its end; ``at`` is where the reader stands."""

    def __init__(self, content: bytes, start: int) -> None:
        self._content, self.at = content, start
        version, header = self._numbers("<HI")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is none of {_VERSIONS}")
        program = self.at + header
        # From version 4 on it says how many operations an instruction word has: 1.
        step, *_, self._line_base, self._line_range, self._first_special = self._numbers(
            "<BBbBB" if version < 4 else "<BBBbBB"
        )
        self._step = step
        if not self._line_range:
            raise ValueError("its range of lines is 0")
        self._operands = self._bytes(self._first_special - 1)
        self._files = self._names()
        self.at = program

    def _names(self) -> list[str]:
        """The files by their number: the table has folders, then names with folder, time, size."""
        folders, files = [""], [""]
        while folder := self._string():
            folders.append(folder)
        while name := self._string():
            folder = folders[self._unsigned()]
            self._unsigned()
            self._unsigned()
            files.append(listed_file(f"{folder}/{name}" if folder else name))
        return files

    def sequences(self) -> Iterator[tuple[int, list[Row]]]:
        """The rows of each sequence, and where in the table its first address stands."""
        rows: list[Row] = []
        place, address, file, line = 0, 0, 1, 1
        skip = (255 - self._first_special) // self._line_range * self._step
        while self.at < len(self._content):
            opcode = self._bytes(1)[0]
            if opcode >= self._first_special:
                further, down = divmod(opcode - self._first_special, self._line_range)
                address, line = address + further * self._step, line + self._line_base + down
                rows.append((address, SourceLine(self._files[file], line)))
            elif opcode == 0:
                end = self._unsigned() + self.at
                extended = self._bytes(1)[0]
                if extended == _END_SEQUENCE:
                    yield place, [*rows, (address, None)]
                    rows, place, address, file, line = [], 0, 0, 1, 1
                elif extended == _SET_ADDRESS:
                    place = self.at
                    (address,) = self._numbers("<Q")
                self.at = end
            elif opcode == _COPY:
                rows.append((address, SourceLine(self._files[file], line)))
            elif opcode == _ADVANCE_PC:
                address += self._unsigned() * self._step
            elif opcode == _ADVANCE_LINE:
                line += self._signed()
            elif opcode == _SET_FILE:
                file = self._unsigned()
            elif opcode == _CONST_ADD_PC:
                address += skip
            elif opcode == _FIXED_ADVANCE_PC:
                address += self._numbers("<H")[0]
            else:
                for _ in range(self._operands[opcode - 1]):
                    self._unsigned()

    # ---- numbers and texts

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self._content):
            raise ValueError("it is cut off")
        return self._content[self.at - count : self.at]

    def _numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))

    def _string(self) -> str:
        end = self._content.index(b"\0", self.at)
        text = self._bytes(end - self.at).decode("utf-8", "surrogateescape")
        self.at += 1
        return text

    def _unsigned(self) -> int:
        """A number in LEB128: seven bits a byte, the low ones first."""
        value = shift = 0
        while True:
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _signed(self) -> int:
        start = self.at
        value, bits = self._unsigned(), 7 * (self.at - start)
        return value - (value >> bits - 1 << bits)
