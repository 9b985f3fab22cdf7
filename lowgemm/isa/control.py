"""The control word: how ptxas tells the hardware when an instruction may issue.

Every 128-bit instruction from sm_75 on carries it in bits 105 to 125, in one layout up to sm_121.
The fields are those that the public literature on Volta's encoding describes (Jia et al.,
"Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018); reuse bits and the
legal values of bits 105-109 were checked against nvdisasm 13.5 on sm_80 to sm_120.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.errors import EncodingError

__all__ = ["NO_SCOREBOARD", "ControlWord"]

#: The field value that stands for no scoreboard.
NO_SCOREBOARD = 7
_SHIFT = 41  # bit 105 of the instruction, in its upper half
_WIDTH = 21  # bits 105 to 125
_STAY = 16
_LEGAL_ISSUE = frozenset((*range(16), *range(17, 28)))


@dataclass(frozen=True, slots=True)
class ControlWord:
    """When an instruction issues, what it waits for and what it signals.

    ``stall`` is the cycles before the warp's next instruction (0 drains the pipe), ``stay`` whether
    the scheduler keeps the warp (a yield empties the reuse cache). ``write_scoreboard`` is set
    until the result is written, ``read_scoreboard`` until the sources are read; None where there is
    none. ``wait_mask`` has a bit for each of the six scoreboards that must be clear before issue.
    ``reuse`` has a bit for operand slots A, B and C (1, 2, 4): the register read there is kept for
    the next instruction's same slot.
    """

    stall: int
    stay: bool
    write_scoreboard: int | None
    read_scoreboard: int | None
    wait_mask: int
    reuse: int

    @classmethod
    def decode(cls, high: int) -> ControlWord:
        """Read it from the upper 64 bits of an instruction.

        Raises
        ------
        EncodingError
            Bits 105-109 hold a value (16, 28 to 31) that no instruction may have.
        """
        bits = high >> _SHIFT
        issue = bits & 31
        if issue not in _LEGAL_ISSUE:
            raise EncodingError(
                f"stall and stay (bits 105-109) are {issue}",
                "legal are 0 to 15 and 17 to 27: these bytes are no machine code",
            )
        write, read = bits >> 5 & 7, bits >> 8 & 7
        return cls(
            stall=issue & 15,
            stay=bool(issue & _STAY),
            write_scoreboard=None if write == NO_SCOREBOARD else write,
            read_scoreboard=None if read == NO_SCOREBOARD else read,
            wait_mask=bits >> 11 & 63,
            reuse=bits >> 17 & 7,
        )

    def encode(self, high: int) -> int:
        """The upper 64 bits with this control word instead of their own.

        Raises
        ------
        EncodingError
            A field is out of its range, or stall and stay together are not legal.
        """
        issue = self.stall | (_STAY if self.stay else 0)
        write = NO_SCOREBOARD if self.write_scoreboard is None else self.write_scoreboard
        read = NO_SCOREBOARD if self.read_scoreboard is None else self.read_scoreboard
        fields = ((issue, 5), (write, 3), (read, 3), (self.wait_mask, 6), (self.reuse, 3))
        if not 0 <= self.stall < 16 or issue not in _LEGAL_ISSUE:
            raise EncodingError(
                f"stall {self.stall} with stay {self.stay}", "legal are 0-15, and 1-11 with stay"
            )
        word, at = 0, 0
        for value, width in fields:
            if not 0 <= value < 1 << width:
                raise EncodingError(
                    f"{value} does not fit {width} bits of {self}", "see the fields"
                )
            word |= value << at
            at += width
        mask = ((1 << _WIDTH) - 1) << _SHIFT
        return high & ~mask | word << _SHIFT

    @property
    def waits_for(self) -> tuple[int, ...]:
        """The scoreboards that must be clear."""
        return tuple(sb for sb in range(6) if self.wait_mask >> sb & 1)

    def __str__(self) -> str:
        wait = "".join(str(sb) if self.wait_mask >> sb & 1 else "-" for sb in range(6))
        write = "-" if self.write_scoreboard is None else self.write_scoreboard
        read = "-" if self.read_scoreboard is None else self.read_scoreboard
        reuse = "".join(n if self.reuse >> i & 1 else "-" for i, n in enumerate("ABC"))
        return f"{wait}:W{write}:R{read}:{'S' if self.stay else 'Y'}:{self.stall:02d}:{reuse}"
