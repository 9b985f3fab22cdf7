"""The worst access to shared memory of an instruction, and a picture of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lowgemm.binary.instruction import Instruction, SourceLine
from lowgemm.hardware.shared_memory import BANK_BYTES, BANKS

__all__ = ["WorstAccess"]

#: A group has at most 32 distinct words in a bank.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEF"
_ATOMIC = "lanes of an atomic that name one word do not share a pass"


@dataclass(frozen=True, slots=True)
class WorstAccess:
    """The access to shared memory of one warp with the most conflicts of an instruction.

    Its text is a picture, lanes against banks: a letter stands for a word, ``a`` for the first that
    a bank is asked for, ``b`` for the next distinct one. Lanes of one group go through together, as
    many times as its fullest bank has letters.

    Attributes
    ----------
    index
        The instruction's place in address order.
    width_bytes
        Bytes per lane.
    ways
        How many words one bank had to serve; for an atomic, how many lanes.
    wavefronts
        Passes through shared memory.
    offsets
        The byte offsets of the 32 lanes, -1 for one that took no part.
    atomic
        Whether lanes that name one word each take a pass.
    described
        Gives the instruction at an address; asked for where the access is shown.
    """

    index: int
    width_bytes: int
    ways: int
    wavefronts: int
    offsets: tuple[int, ...]
    atomic: bool
    described: Callable[[int], Instruction] = field(repr=False, compare=False)

    @property
    def address(self) -> int:
        """The instruction's address in the code."""
        return self.index * 16

    @property
    def text(self) -> str:
        """The instruction."""
        instruction = self.described(self.address)
        return instruction.text or instruction.mnemonic

    @property
    def line(self) -> SourceLine | None:
        """The instruction's source line, where it is known."""
        return self.described(self.address).line

    def __str__(self) -> str:
        group = min(BANKS, BANKS * BANK_BYTES // max(self.width_bytes, BANK_BYTES))
        what = "lanes" if self.atomic else "words"
        where = f" ({self.line.short})" if self.line else ""
        lines = [
            f"{self.address:#06x} {self.text}{where}: {self.wavefronts} wavefronts, "
            f"{self.ways} {what} in one bank",
            "lane  " + "".join(f"{bank:<8}" for bank in range(0, BANKS, 8)) + " bank",
        ]
        for first in range(0, BANKS, group):
            letters: list[dict[object, str]] = [{} for _ in range(BANKS)]
            for lane in range(first, first + group):
                lines.append(f"{lane:>4}  {self._row(lane, letters)}")
            depths = [len(bank) for bank in letters]
            counts = "".join(map(_digit, depths))
            lines.append(f"{what} {counts}  at most {max(depths)}")
        if self.atomic:
            lines.append(_ATOMIC)
        return "\n".join(line.rstrip() for line in lines)

    def _row(self, lane: int, letters: list[dict[object, str]]) -> str:
        cells = ["."] * BANKS
        offset = self.offsets[lane]
        if offset < 0:
            return "".join(cells)
        for word in range(offset // BANK_BYTES, -(-(offset + self.width_bytes) // BANK_BYTES)):
            known = letters[word % BANKS]
            key = (word, lane) if self.atomic else word
            cells[word % BANKS] = known.setdefault(key, _LETTERS[len(known)])
        return "".join(cells)


def _digit(depth: int) -> str:
    if depth > 9:
        return "#"
    return str(depth) if depth else " "
