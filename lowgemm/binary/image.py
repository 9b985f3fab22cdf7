"""What of a cubin is put into memory before a kernel runs: constant banks and global variables."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lowgemm.binary.cubin import (
    Elf,
    KernelCode,
    Section,
    attributes_of,
    damaged,
    names_of_symbols,
    read_cubin,
    read_elf,
)

__all__ = ["AddressSlot", "GlobalVariables", "Image", "read_image"]

_EIATTR_PARAM_CBANK = 0x0A


@dataclass(frozen=True, slots=True)
class GlobalVariables:
    """A section of ``__device__`` variables: ``.nv.global`` (zeros) or ``.nv.global.init``."""

    name: str
    size_bytes: int
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AddressSlot:
    """Eight bytes that take the address of a variable or a function.

    ``where`` is the section that holds it (a constant bank or variables) and ``offset`` its place
    there; ``target`` the section that the address is in, ``addend`` what is added to its start. Of
    a function that the driver brings (vprintf, malloc, __assertfail) ``target`` is the name, and
    ``by_driver`` is set.
    """

    where: str
    offset: int
    target: str
    addend: int
    by_driver: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """What a kernel finds in memory.

    ``banks`` are the constant banks by kernel and number, ``parameter_offset`` where the parameters
    begin in bank 0. ``variables`` are the sections of ``__device__`` variables, ``addresses`` what
    the loader writes into banks and variables.
    """

    banks: Mapping[str, Mapping[int, bytes]] = field(repr=False)
    parameter_offset: Mapping[str, int]
    variables: tuple[GlobalVariables, ...]
    addresses: tuple[AddressSlot, ...]
    code: Mapping[str, KernelCode] = field(repr=False)


def read_image(data: bytes) -> Image:
    """Read what a cubin's loader puts into memory.

    Raises
    ------
    CubinError
        The bytes are not a cubin, or are damaged.
    """
    cubin, elf = read_cubin(data), read_elf(data)
    banks: dict[str, dict[int, bytes]] = {}
    offsets: dict[str, int] = {}
    for kernel in cubin.kernels:
        found: dict[int, bytes] = {}
        for section in elf.sections:
            number = _bank_of(section.name, kernel.name)
            if number is not None:
                found[number] = section.content
        banks[kernel.name] = found
        offsets[kernel.name] = _parameter_offset(elf.find(f".nv.info.{kernel.name}"))
    variables = tuple(
        GlobalVariables(section.name, section.size, section.content)
        for section in elf.sections
        if section.name in (".nv.global", ".nv.global.init") and section.size
    )
    return Image(banks, offsets, variables, tuple(_addresses(elf)), cubin.code)


def _bank_of(section: str, kernel: str) -> int | None:
    """The number of a constant bank that a kernel sees: its own, or one of the whole cubin."""
    if not section.startswith(".nv.constant"):
        return None
    number, _, owner = section.removeprefix(".nv.constant").partition(".")
    if not number.isdecimal() or owner not in ("", kernel):
        return None
    return int(number)


def _parameter_offset(info: Section | None) -> int:
    for attribute, value in attributes_of(info) if info else ():
        if attribute == _EIATTR_PARAM_CBANK and len(value) == 8:
            return int(struct.unpack_from("<H", value, 4)[0])
    return 0


def _addresses(elf: Elf) -> Iterator[AddressSlot]:
    symbols = names_of_symbols(elf)
    for section in elf.sections:
        # Before sm_90 the addends stand in the place itself (.rel), later with the relocation.
        where = section.name.removeprefix(".rela").removeprefix(".rel")
        if where == section.name or not where.startswith((".nv.constant", ".nv.global")):
            continue
        for offset, index, addend in _entries(section, elf.find(where)):
            if index >= len(symbols):
                raise damaged(section.name, f"it names symbol {index}")
            symbol = symbols[index]
            if not symbol.section:
                yield AddressSlot(where, offset, symbol.name, 0, by_driver=True)
                continue
            if symbol.section >= len(elf.sections):
                continue  # an absolute value
            target = elf.sections[symbol.section].name
            yield AddressSlot(where, offset, target, symbol.value + addend)


def _entries(section: Section, place: Section | None) -> Iterator[tuple[int, int, int]]:
    """Offset, symbol and addend of each relocation."""
    content = section.content
    if section.name.startswith(".rela"):
        for offset, info, addend in struct.iter_unpack("<QQq", content[: len(content) // 24 * 24]):
            yield offset, info >> 32, addend
        return
    held = place.content if place else b""
    for offset, info in struct.iter_unpack("<QQ", content[: len(content) // 16 * 16]):
        inside = held[offset : offset + 8]
        yield offset, info >> 32, int.from_bytes(inside, "little", signed=True)
