"""Tensor maps of the emulator, and which bytes a copy of a box moves.

NVIDIA's encoding is not public; this one is the emulator's own, and a GPU cannot read it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowgemm.errors import EmulationError
from lowgemm.runtime.tensor_map import SWIZZLE_SPANS, TENSOR_MAP_BYTES

if TYPE_CHECKING:
    from lowgemm.runtime.tensor_map import TensorLayout

__all__ = ["Box", "decode_tensor_map", "encode_tensor_map"]

_MAGIC = b"lowgemmT"
_AXES = 5
#: Magic, pointer, bytes of an element, rank, swizzle's span, and by axis, innermost first: extents,
#: strides in bytes, the box.
_FORMAT = struct.Struct(f"<8sQHHI{_AXES}Q{_AXES}Q{_AXES}H")
#: The address of a chunk of 16 bytes in shared memory is changed by the bits above its 128 bytes.
_CHUNK_BYTES = 16
_CHUNK_SHIFT = 4
_ROW_SHIFT = 7


@dataclass(frozen=True, slots=True)
class Box:
    """A tensor map as the emulator reads it; axes innermost first, as coordinates come."""

    pointer: int
    element_bytes: int
    span: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one box in shared memory."""
        return math.prod(self.box) * self.element_bytes

    def pieces(
        self, coordinates: tuple[int, ...], *, whole_chunks: bool = False
    ) -> tuple[int, NDArray[np.uint64], NDArray[np.int64]]:
        """The pieces of a box that lie within the tensor.

        Parameters
        ----------
        coordinates
            The box's first element along each axis; negative ones lie before the tensor.
        whole_chunks
            Whether the last chunk of 16 bytes of a row counts as a whole, also where the row ends
            within it. An H200 stores it so, though it loads zeros there.

        Returns
        -------
        tuple
            Bytes of a piece: all that its alignment allows, up to 16. The address of each in global
            memory, and its first byte in the box (rows side by side, not yet swizzled).
        """
        size = self.element_bytes
        begin, end = coordinates[0] * size, self.shape[0] * size
        if whole_chunks:
            end = -(-end // _CHUNK_BYTES) * _CHUNK_BYTES
        width = math.gcd(_CHUNK_BYTES, begin, end)
        inner = begin + np.arange(0, self.box[0] * size, width, dtype=np.int64)
        inside = (inner >= 0) & (inner < end)
        where = inner
        for axis in range(1, self.rank):
            index = coordinates[axis] + np.arange(self.box[axis], dtype=np.int64)
            valid = (index >= 0) & (index < self.shape[axis])
            inside = valid[:, None] & inside.reshape(1, -1)
            where = index[:, None] * self.strides_bytes[axis] + where.reshape(1, -1)
        place = np.flatnonzero(inside.reshape(-1))
        addresses = (where.reshape(-1)[place] + self.pointer).view(np.uint64)
        return width, addresses, place * width

    def swizzled(self, address: int) -> NDArray[np.int64]:
        """Where each 16-byte chunk of a box at a shared address lies, counted from its first.

        Bits 4 and up of a chunk's address are changed by as many bits from bit 7 on.
        """
        chunk = np.arange(self.nbytes // _CHUNK_BYTES, dtype=np.int64)
        if not self.span:
            return chunk
        places = address + chunk * _CHUNK_BYTES
        mask = self.span // _CHUNK_BYTES - 1
        changed = places ^ ((places >> _ROW_SHIFT & mask) << _CHUNK_SHIFT)
        return changed - address >> _CHUNK_SHIFT


def encode_tensor_map(layout: TensorLayout) -> bytes:
    """The emulator's 128 bytes of a tensor map.

    Raises
    ------
    EmulationError
        Its boxes have rows shorter than the swizzle's span: where the hardware puts those is
        nowhere said.
    """
    span = SWIZZLE_SPANS[layout.swizzle]
    row = layout.box[-1] * layout.dtype.size_bytes
    if span > row:
        raise EmulationError(
            f"the emulator does not know where boxes with rows of {row} bytes lie under "
            f"swizzle={layout.swizzle!r}",
            f"make the rows of a box {span} bytes long, or swizzle by less",
        )
    padding = (0,) * (_AXES - layout.rank)
    content = _FORMAT.pack(
        _MAGIC,
        layout.pointer,
        layout.dtype.size_bytes,
        layout.rank,
        span,
        *layout.shape[::-1],
        *padding,
        *layout.strides_bytes[::-1],
        *padding,
        *layout.box[::-1],
        *padding,
    )
    return content.ljust(TENSOR_MAP_BYTES, b"\0")


def decode_tensor_map(content: bytes) -> Box | None:
    """What :func:`encode_tensor_map` encoded; None for other bytes."""
    magic, pointer, size, rank, span, *axes = _FORMAT.unpack_from(content)
    if magic != _MAGIC:
        return None
    shape, strides, box = (tuple(axes[i * _AXES : i * _AXES + rank]) for i in range(3))
    return Box(pointer, size, span, shape, strides, box)
