"""Architectures as the toolchain spells them (``sm_90``, ``sm_90a``) and what runs where."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowgemm.errors import UnknownArchitectureError

__all__ = ["Architecture"]

# What NVRTC 12 or 13 compiles for and lowgemm reads the code of; 101 is NVRTC 12's name of 110.
_NUMBERS = (70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121)
_SPECIFIC_FROM = {"": 0, "a": 90, "f": 100}
_SPELLING = re.compile(r"(?:sm_?)?(\d{1,3}?)\.?(\d)([af]?)")


@dataclass(frozen=True, order=True, slots=True)
class Architecture:
    """A compile target: compute capability and, for ``a`` and ``f`` targets, the suffix.

    Examples
    --------
    >>> str(Architecture.parse("9.0"))
    'sm_90'
    >>> Architecture.parse("sm_80").runs_on(8, 9)
    True
    """

    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, spelling: str | int | Architecture) -> Architecture:
        """Read ``sm_90``, ``sm_90a``, ``90`` or ``9.0``.

        Raises
        ------
        UnknownArchitectureError
            The text is none of these. Virtual architectures (``compute_90``) are refused: they
            give PTX and an empty cubin.
        """
        if isinstance(spelling, Architecture):
            return spelling
        try:
            text = str(spelling).strip().lower()
        except ValueError:  # an int of more digits than Python writes
            text = "an enormous number"
        match = _SPELLING.fullmatch(text)
        if match is None:
            raise UnknownArchitectureError(
                f"{text[:40]!r} is no architecture to compile machine code for",
                "name one such as sm_80, sm_90, sm_90a or sm_120",
            )
        return cls(int(match[1]), int(match[2]), match[3])

    @property
    def number(self) -> int:
        """The number in the name: 90 for ``sm_90a``."""
        return 10 * self.major + self.minor

    @property
    def exists(self) -> bool:
        """Whether there is such a target: ``a`` from sm_90 on, ``f`` from sm_100 on."""
        return self.number in _NUMBERS and self.number >= _SPECIFIC_FROM[self.suffix]

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether a cubin for this target runs on a GPU of compute capability major.minor.

        A cubin runs on its own major version, from its own minor version on; an ``a`` target on
        exactly its own compute capability (CUDA C++ Programming Guide, "Binary Compatibility" and
        "Architecture-specific features"). An ``f`` target runs on its family, which shares the
        major version.
        """
        if self.suffix == "a":
            return (self.major, self.minor) == (major, minor)
        return self.major == major and self.minor <= minor
