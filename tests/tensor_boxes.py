"""Boxes of tensors: what TMA must bring into shared memory, by numpy, and who copies them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lowgemm.runtime import Array, Device, Module, TensorMap

__all__ = ["BOXES", "SOURCE", "Boxes", "Host", "copied", "expected", "stored", "swizzled"]

SOURCE = Path(__file__).parent / "textbook" / "tensor_maps.cu"
Host = np.ndarray[Any, Any]
_SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


@dataclass(frozen=True)
class Boxes:
    """Copies of boxes of one tensor: where each begins, outermost axis first as the shape is."""

    shape: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[tuple[int, ...], ...]
    swizzle: str = "none"
    dtype: Any = np.float32
    shift: int = 0
    l2_promotion: str = "none"

    def __str__(self) -> str:
        name = np.dtype(self.dtype).name
        return f"{'x'.join(map(str, self.shape))}-{name}-{self.swizzle}-{self.shift}"

    @property
    def box_bytes(self) -> int:
        """Bytes of a box."""
        return math.prod(self.box) * int(np.dtype(self.dtype).itemsize)

    def host(self) -> Host:
        """The tensor's elements: random bits, no two words alike."""
        rng = np.random.default_rng(len(self.shape))
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        elements: Host = rng.integers(0, 256, size, np.uint8).view(self.dtype)
        return elements.reshape(self.shape)


#: Whole, and over each edge; boxes larger than the tensor; coordinates far away. The innermost
#: coordinate stands for a multiple of 16 bytes, as it must.
BOXES = (
    Boxes((100,), (32,), ((0,), (4,), (68,), (96,), (-8,), (200,), (-64,))),
    Boxes((100, 48), (64, 32), ((0, 0), (80, 40), (-5, -4), (36, 16), (99, 44), (100, 0), (0, 48))),
    Boxes((100, 52), (16, 8), ((3, 4), (3, 8), (3, 12), (90, 44)), l2_promotion="256B"),
    Boxes((7, 20, 12), (4, 8, 12), ((0, 0, 0), (5, 15, 4), (-2, -3, -4), (3, 12, 8))),
    Boxes((3, 5, 6, 16), (2, 3, 4, 8), ((0, 0, 0, 0), (2, 4, 4, 12), (-1, -1, -1, -4))),
    Boxes(
        (2, 3, 4, 5, 8), (2, 2, 3, 2, 4), ((0, 0, 0, 0, 0), (1, 2, 2, 4, 4), (-1, -1, -1, -1, -4))
    ),
    Boxes((40, 96), (16, 32), ((0, 0), (30, 72), (-3, -4)), "128B"),
    Boxes((40, 96), (16, 32), ((0, 0), (30, 72)), "128B", shift=384),
    Boxes((40, 96), (16, 16), ((0, 0), (30, 84), (-3, -4)), "64B"),
    Boxes((40, 96), (16, 16), ((1, 4),), "64B", shift=128),
    Boxes((40, 96), (16, 8), ((0, 0), (30, 92), (-3, -4)), "32B"),
    Boxes((40, 96), (16, 8), ((1, 4),), "32B", shift=640),
    Boxes((9, 40, 64), (2, 16, 64), ((0, 0, 0), (8, 30, -8)), "128B", np.uint16),
    Boxes((40, 96), (16, 8), ((0, 0), (33, 92)), "none", np.float64),
    Boxes((40, 96), (16, 64), ((0, 0), (33, 80), (2, 16)), "64B", np.uint8),
    Boxes((40, 96), (256, 8), ((-100, 4),), "none", np.int32),
    Boxes((1, 7), (1, 8), ((0, 0), (0, -4))),
)


def swizzled(box: Host, swizzle: str, shift: int) -> Host:
    """The bytes of a box with 16-byte chunks where the swizzle puts them."""
    flat = np.ascontiguousarray(box).reshape(-1).view(np.uint8)
    if not _SPANS[swizzle]:
        return flat
    out = np.empty_like(flat)
    for first in range(0, flat.size, 16):
        address = first + shift
        moved = address ^ (address >> 3 & _SPANS[swizzle] - 16)
        out[moved - shift : moved - shift + 16] = flat[first : first + 16]
    return out


Slices = tuple[slice, ...]


def _overlap(boxes: Boxes, at: tuple[int, ...]) -> tuple[Slices, Slices]:
    """What a box and the tensor have in common: where it lies in the tensor, and in the box."""
    source, target = [], []
    for begin, size, extent in zip(at, boxes.box, boxes.shape, strict=True):
        low, high = max(begin, 0), max(min(begin + size, extent), 0)
        source.append(slice(low, max(low, high)))
        target.append(slice(low - begin, max(low, high) - begin))
    return tuple(source), tuple(target)


def expected(boxes: Boxes, at: tuple[int, ...]) -> Host:
    """What one copy puts into shared memory: bytes."""
    box = np.zeros(boxes.box, boxes.dtype)
    source, target = _overlap(boxes, at)
    box[target] = boxes.host()[source]
    return swizzled(box, boxes.swizzle, boxes.shift)


def _padded(host: Host) -> Host:
    """The same with rows of whole multiples of 16 bytes, as tensor maps need them."""
    pitch = -(-host.shape[-1] * host.itemsize // 16) * 16 // host.itemsize
    padded = np.full((*host.shape[:-1], pitch), 77, host.dtype)
    padded[..., : host.shape[-1]] = host
    return padded


def _map_of(device: Device, boxes: Boxes, array: Array) -> TensorMap:
    size, rank = array.dtype.itemsize, len(boxes.shape)
    return device.tensor_map(
        array,
        boxes.box,
        swizzle=boxes.swizzle,
        shape=boxes.shape,
        strides_bytes=[math.prod(array.shape[axis + 1 :]) * size for axis in range(rank)],
        l2_promotion=boxes.l2_promotion,
    )


def _coordinates(at: tuple[int, ...]) -> bytes:
    return struct.pack("5i", *at[::-1], *(0,) * (5 - len(at)))


def copied(device: Device, module: Module, boxes: Boxes) -> list[Host]:
    """What a device copies: bytes, for each place."""
    tensor_map = _map_of(device, boxes, device.upload(_padded(boxes.host())))
    assert tensor_map.box_bytes == boxes.box_bytes
    kernel = module.kernel(f"copy_{len(boxes.shape)}")
    found = []
    for at in boxes.at:
        out = device.zeros(boxes.box_bytes // 4, np.uint32)
        kernel.launch(
            tensor_map,
            _coordinates(at),
            boxes.box_bytes,
            boxes.shift,
            out,
            grid=1,
            block=64,
            shared_bytes=boxes.box_bytes + boxes.shift,
        )
        found.append(out.download().view(np.uint8))
    return found


def stored(device: Device, module: Module, boxes: Boxes) -> list[tuple[Host, Host]]:
    """What a device's tensor is after a store of each box, and what it must be; rows with gaps.

    A store may not begin before the tensor, and writes the last 16 bytes of a row as a whole.
    """
    kernel = module.kernel(f"put_{len(boxes.shape)}")
    found = []
    for at in (each for each in boxes.at if min(each) >= 0):
        array = device.upload(_padded(boxes.host()))
        rng = np.random.default_rng(7)
        box = rng.integers(0, 256, boxes.box_bytes, np.uint8).view(boxes.dtype).reshape(boxes.box)
        kernel.launch(
            _map_of(device, boxes, array),
            _coordinates(at),
            boxes.box_bytes,
            device.upload(swizzled(box, boxes.swizzle, 0).view(np.uint32)),
            grid=1,
            block=32,
            shared_bytes=boxes.box_bytes,
        )
        wanted = _padded(boxes.host())
        source, target = _overlap(replace(boxes, shape=wanted.shape), at)
        wanted[source] = box[target]
        found.append((array.download().view(np.uint8), wanted.view(np.uint8)))
    return found
