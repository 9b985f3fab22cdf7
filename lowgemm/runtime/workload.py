"""A launch and its inputs as text: what to run a kernel on where nobody has written a script."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.errors import ArgumentValueError
from lowgemm.runtime.launch import LaunchShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowgemm.runtime.interface import Array, Device, Kernel

__all__ = ["ArrayInput", "Workload"]

_DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
_FILLS = ("random", "zeros", "count", "empty")
_ARRAY = re.compile(r"(\w+)\[(\d+(?:,\d+)*)\](?::(\w+))?")
_COMMA = re.compile(r"\s*,\s*")
_BETWEEN_ARGUMENTS = re.compile(r",(?![^\[]*\])")
_FIELD = re.compile(r"(grid|block|cluster|shared|args)(?:(?<=shared)_bytes)?=(\S+)")
_REMEDY = (
    "write 'grid=8 block=256 args=f32[2048],f32[32,64]:zeros,2048', where needed with cluster=2 "
    "and shared_bytes=4096 (dynamic shared memory); an array is a type "
    f"({', '.join(_DTYPES)}) with its size and :{', :'.join(_FILLS)} (random without one); "
    "a number stands as it is"
)
_RANDOM_INTEGERS = 100


@dataclass(frozen=True, slots=True)
class ArrayInput:
    """An array argument: ``fill`` is random, zeros, count (0, 1, 2 ...) or empty."""

    dtype: str
    elements: int
    fill: str = "random"

    def make(self, device: Device, generator: np.random.Generator) -> Array:
        """The array on a device."""
        dtype = np.dtype(self.dtype)
        if self.fill == "empty":
            return device.empty(self.elements, dtype)
        return device.upload(self._values(dtype, generator))

    def _values(self, dtype: np.dtype[Any], generator: np.random.Generator) -> np.ndarray[Any, Any]:
        if self.fill == "zeros":
            return np.zeros(self.elements, dtype)
        if self.fill == "count":
            return np.arange(self.elements).astype(dtype)
        if dtype.kind == "f":
            return generator.uniform(-1, 1, self.elements).astype(dtype)
        return generator.integers(0, _RANDOM_INTEGERS, self.elements).astype(dtype)


@dataclass(frozen=True, slots=True)
class Workload:
    """What a kernel is launched with: its shape and its arguments, numbers and arrays.

    Examples
    --------
    >>> Workload.parse("grid=2 block=64 args=f32[128],f32[128]:zeros,128").shape.blocks
    2
    """

    shape: LaunchShape
    arguments: tuple[ArrayInput | int | float, ...]

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Read ``grid=8,2 block=256 cluster=2 shared_bytes=64 args=f32[2048],2048``.

        ``shared`` is ``shared_bytes``, the dynamic shared memory.

        Raises
        ------
        ArgumentValueError
            A word of it is none of these, or grid or block are missing.
        GridSizeError, BlockSizeError, SharedMemoryError
            The shape is impossible.
        """
        fields: dict[str, str] = {}
        for word in _COMMA.sub(",", text).split():
            found = _FIELD.fullmatch(word)
            if not found or found[1] in fields:
                raise ArgumentValueError(f"{word!r} is no part of a launch", _REMEDY)
            fields[found[1]] = found[2]
        if "grid" not in fields or "block" not in fields:
            raise ArgumentValueError(f"the launch {text!r} names no grid or no block", _REMEDY)
        sizes = {name: _numbers(fields[name]) for name in fields if name != "args"}
        shape = LaunchShape.of(
            sizes["grid"], sizes["block"], sizes.get("cluster"), sizes.get("shared", [0])[0]
        )
        words = [word for word in _BETWEEN_ARGUMENTS.split(fields.get("args", "")) if word]
        return cls(shape, tuple(map(_argument, words)))

    def launch(self, kernel: Kernel, device: Device, *, seed: int = 0) -> tuple[Array, ...]:
        """Make the inputs, launch the kernel, and return its arrays.

        Raises
        ------
        ArgumentCountError, ArgumentTypeError, DtypeError, LaunchError
            The arguments or the shape do not fit the kernel; see
            :meth:`lowgemm.runtime.Kernel.prepare`.
        """
        generator = np.random.default_rng(seed)
        values = [
            each.make(device, generator) if isinstance(each, ArrayInput) else each
            for each in self.arguments
        ]
        shape = self.shape
        kernel.launch(
            *values,
            grid=shape.grid,
            block=shape.block,
            shared_bytes=shape.shared_bytes,
            cluster=shape.cluster,
        )
        return tuple(value for value in values if not isinstance(value, (int, float)))


def _numbers(text: str) -> Sequence[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentValueError(f"{text!r} is no list of whole numbers", _REMEDY) from error


def _argument(word: str) -> ArrayInput | int | float:
    found = _ARRAY.fullmatch(word)
    if found:
        dtype, fill = _DTYPES.get(found[1]), found[3] or "random"
        if dtype is None:
            raise ArgumentValueError(f"the array {word!r}: no type is {found[1]!r}", _REMEDY)
        if fill not in _FILLS:
            raise ArgumentValueError(f"the array {word!r}: no content is {fill!r}", _REMEDY)
        return ArrayInput(dtype, math.prod(map(int, found[2].split(","))), fill)
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise ArgumentValueError(f"the argument {word!r} is neither a number nor an array", _REMEDY)
