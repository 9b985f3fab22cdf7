"""Read what PTX says of its kernels' parameters.

PTX ISA, "Kernel Function Parameters" and "Parameter Attribute: .ptr".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowgemm.binary.signature import ParameterKind

__all__ = ["PtxParameter", "entry_parameters"]

_WIDTHS = {f"{letter}{bits}": bits // 8 for letter in "bsuf" for bits in (8, 16, 32, 64, 128)} | {
    "f16x2": 4,
    "bf16": 2,
    "pred": 1,
    "texref": 8,
    "samplerref": 8,
    "surfref": 8,
}

# Strings come first, so that a comment mark inside one is not taken for a comment.
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_ENTRY = re.compile(r"(?<![\w$%.])\.entry\s+([\w$%.]+)\s*(\(([^()]*)\))?")
_NAME = re.compile(r"([A-Za-z_$%][\w$]*)\s*(?:\[\s*(\d*)\s*\])?\s*$")


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """One ``.param`` of an ``.entry``.

    ``type_suffix`` is PTX's type without its dot (``"u64"``, ``"f32"``, ``"b8"``), ``is_array``
    whether it is an array (a struct or union by value), ``is_pointer`` whether it carries
    ``.ptr``: NVRTC writes that from sm_100 on; without it a ``u64`` may still be a pointer.
    """

    name: str
    type_suffix: str
    size_bytes: int
    is_array: bool = False
    is_pointer: bool = False

    @property
    def kind(self) -> ParameterKind:
        """What the type alone tells."""
        if self.is_pointer:
            return ParameterKind.POINTER
        if self.is_array:
            return ParameterKind.STRUCT
        letter = self.type_suffix[:1]
        if letter == "f":
            return ParameterKind.FLOAT
        if letter == "s":
            return ParameterKind.SIGNED
        if letter == "u" and self.size_bytes < 8:
            return ParameterKind.INTEGER
        return ParameterKind.UNKNOWN


def entry_parameters(ptx: str) -> dict[str, tuple[PtxParameter, ...]]:
    """Parameters of each ``.entry``, by its (mangled) name.

    Text that is not understood is left out: an entry with a parameter of unknown form is missing
    from the result. Where an entry is declared and later defined, the last one counts.
    """
    bare = _STRING_OR_COMMENT.sub(lambda m: '""' if m[0][0] == '"' else " ", ptx)
    entries: dict[str, tuple[PtxParameter, ...]] = {}
    for match in _ENTRY.finditer(bare):
        name, body = match[1], match[3] or ""
        pieces = [piece.strip() for piece in body.split(",") if piece.strip()]
        parameters = [_parameter(piece) for piece in pieces]
        known = [parameter for parameter in parameters if parameter is not None]
        if len(known) == len(parameters):
            entries[name] = tuple(known)
        else:
            entries.pop(name, None)
    return entries


def _parameter(piece: str) -> PtxParameter | None:
    match = _NAME.search(piece)
    if match is None or not piece.startswith(".param"):
        return None
    directives = re.findall(r"\.(\w+)", piece[: match.start()])
    suffix = next((word for word in directives if word in _WIDTHS), None)
    if suffix is None:
        return None
    is_array = match[2] is not None
    count = int(match[2] or 0) if is_array else 1
    return PtxParameter(
        name=match[1],
        type_suffix=suffix,
        size_bytes=_WIDTHS[suffix] * count,
        is_array=is_array,
        is_pointer="ptr" in directives,
    )
