"""Check a launch's arguments against the kernel's signature and pack them.

A driver checks nothing: with too few arguments it reads past the array, and a double where the
kernel has a float is read as its lower half. So everything is checked here, before.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.binary.mangled import function_name
from lowgemm.binary.signature import Parameter, ParameterKind
from lowgemm.errors import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    DtypeError,
)
from lowgemm.runtime.interchange import (
    ArrayView,
    ElementType,
    as_view,
    has_cuda_interface,
    is_dlpack,
)
from lowgemm.runtime.interface import Array
from lowgemm.runtime.shapes import shown
from lowgemm.runtime.tensor_map import TENSOR_MAP_BYTES, TensorMap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lowgemm.binary.signature import KernelSignature
    from lowgemm.runtime.interface import Device

__all__ = ["PackedArguments", "describe", "pack"]

_POINTER_BYTES = 8
_LEGACY_STREAM = 1
_INTEGER_KINDS = frozenset({ParameterKind.SIGNED, ParameterKind.UNSIGNED, ParameterKind.INTEGER})
_NUMBER_KINDS = _INTEGER_KINDS | {ParameterKind.UNKNOWN}
_RAW_KINDS = frozenset({ParameterKind.STRUCT, ParameterKind.UNKNOWN})
_FLOAT_FORMATS = {2: "<e", 4: "<f", 8: "<d"}
_FLOAT_NAMES = {2: "float16", 4: "float32", 8: "float64"}
# CUDA's classes that stand for one number, and the scalars of the package ml_dtypes for them.
_BFLOAT16 = "__nv_bfloat16"
_NUMBER_CLASSES = {
    _BFLOAT16: "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "__nv_fp8_e8m0": "float8_e8m0fnu",
}
_RAW_REMEDY = {
    ParameterKind.FLOAT: "bytes stand for a struct; pass a float",
    ParameterKind.POINTER: "bytes stand for a struct; pass an array, or an address as an int",
    **dict.fromkeys(_INTEGER_KINDS, "bytes stand for a struct; pass an int"),
}
_SWAPPED = ">!" if sys.byteorder == "little" else "<"
_OWN_ORDER = "__ctype_le__" if sys.byteorder == "little" else "__ctype_be__"


@dataclass(frozen=True, slots=True)
class PackedArguments:
    """A launch's arguments as the driver takes them.

    ``buffer`` holds the parameters at their offsets (the bytes of the kernel's parameter space),
    ``pointers`` the address of each, ``owners`` what must live until the launch is done, and
    ``streams`` the handles of the streams in which foreign arrays become valid.
    """

    buffer: ctypes.Array[ctypes.c_char]
    pointers: ctypes.Array[ctypes.c_void_p]
    owners: tuple[object, ...] = field(repr=False)
    streams: frozenset[int] = frozenset()

    @property
    def address(self) -> int:
        """The address of the array of pointers: the driver's ``kernelParams``."""
        return ctypes.addressof(self.pointers)


def describe(signature: KernelSignature) -> str:
    """The kernel's name and parameters in one line.

    Examples
    --------
    >>> from lowgemm.binary.signature import KernelSignature, Parameter
    >>> describe(KernelSignature("k", (Parameter(0, 0, 4),), 8, 0, 0))
    'k(0: unknown, 4 bytes)'
    """
    parameters = ", ".join(f"{p.index}: {_describe_parameter(p)}" for p in signature.parameters)
    return f"{function_name(signature.name)}({parameters})"


def _describe_parameter(parameter: Parameter) -> str:
    kind = parameter.type_name or str(parameter.kind)
    return f"{kind}, {parameter.size_bytes} bytes"


def pack(
    signature: KernelSignature,
    args: Sequence[object],
    *,
    device: Device | None = None,
    stream: int | None = None,
) -> PackedArguments:
    """Check arguments against a kernel's parameters and pack them.

    An integer parameter takes a Python int or a numpy or ctypes integer of its width; a floating
    point one (also a bfloat16 by value) a float, an int that it represents exactly, or a numpy or
    ctypes float of its width; an 8-bit float its byte or a scalar of ml_dtypes; a pointer an array
    of this device, an object with ``__cuda_array_interface__`` or DLPack, an address as an int, or
    None; a struct its bytes, or a :class:`~.tensor_map.TensorMap` where it has 128. Of a parameter
    whose kind is not known the width is checked.

    Parameters
    ----------
    signature
        The kernel's interface.
    args
        One value per parameter.
    device
        The device that the arrays must belong to; None: not checked.
    stream
        The handle of the launch's stream, for DLPack producers.

    Raises
    ------
    ArgumentCountError
        Too many or too few arguments.
    ArgumentTypeError
        An argument's type or width does not fit.
    ArgumentValueError
        A number is out of the parameter's range.
    DtypeError
        An array has other elements than the pointer points to.
    ArrayLayoutError
        An array is not contiguous, is read-only where the kernel may write, or is elsewhere.
    """
    parameters = signature.parameters
    if len(args) != len(parameters):
        raise ArgumentCountError(
            f"kernel {function_name(signature.name)} takes {len(parameters)} arguments and got "
            f"{len(args)}",
            f"its parameters are {describe(signature)}",
        )
    size = max((p.offset_bytes + p.size_bytes for p in parameters), default=0)
    packer = _Packer(signature, device, stream)
    image = bytearray(max(size, 1))
    for parameter, value in zip(parameters, args, strict=True):
        start = parameter.offset_bytes
        image[start : start + parameter.size_bytes] = packer.encode(parameter, value)
    buffer = ctypes.create_string_buffer(bytes(image), len(image))
    base = ctypes.addressof(buffer)
    pointers = (ctypes.c_void_p * max(len(parameters), 1))(
        *(base + parameter.offset_bytes for parameter in parameters)
    )
    return PackedArguments(buffer, pointers, tuple(packer.owners), frozenset(packer.streams))


class _Packer:
    """Encodes the arguments of one launch."""

    def __init__(
        self, signature: KernelSignature, device: Device | None, stream: int | None
    ) -> None:
        self.signature = signature
        self.device = device
        self.stream = stream
        self.owners: list[object] = []
        self.streams: set[int] = set()

    # ---- messages

    def where(self, parameter: Parameter) -> str:
        return (
            f"argument {parameter.index} of kernel {function_name(self.signature.name)} "
            f"({_describe_parameter(parameter)})"
        )

    def misfit(self, parameter: Parameter, value: object, remedy: str = "") -> ArgumentTypeError:
        kind = type(value)
        name = (
            kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        )
        return ArgumentTypeError(
            f"{self.where(parameter)} cannot be {_article(name)}: {shown(value)}",
            remedy or f"the parameters are {describe(self.signature)}",
        )

    # ---- dispatch

    def encode(self, parameter: Parameter, value: object) -> bytes:
        kind: Any = type(value)
        encoder = _encoder(kind)
        if encoder is not None:
            return encoder(self, parameter, value)
        if type(value).__name__ == "CUdeviceptr":
            return self.integer(parameter, int(value))  # type: ignore[call-overload]
        if has_cuda_interface(value):
            return self.foreign_array(parameter, value)
        raise self.misfit(parameter, value)

    # ---- numbers

    def none(self, parameter: Parameter, value: object) -> bytes:
        if self.may_be_pointer(parameter):
            return bytes(_POINTER_BYTES)
        raise self.misfit(parameter, value, "None stands for a null pointer only")

    def boolean(self, parameter: Parameter, value: Any) -> bytes:
        is_class = parameter.type_name in _NUMBER_CLASSES
        if parameter.size_bytes == 1 and parameter.kind in _NUMBER_KINDS and not is_class:
            return bytes([bool(value)])
        raise self.misfit(parameter, value, "pass int(x) where the kernel takes an integer")

    def integer(self, parameter: Parameter, value: int) -> bytes:
        width, kind = parameter.size_bytes, parameter.kind
        if kind is ParameterKind.FLOAT or _is_bfloat16(parameter):
            return self.exact_float(parameter, value)
        wide = width == 16 and kind in _INTEGER_KINDS  # __int128
        is_class = kind is ParameterKind.STRUCT or parameter.type_name in _NUMBER_CLASSES
        if is_class or not (width in (1, 2, 4, 8) or wide):
            raise self.misfit(parameter, value, self.bytes_remedy(parameter))
        low = (
            0 if kind in (ParameterKind.UNSIGNED, ParameterKind.POINTER) else -(1 << 8 * width - 1)
        )
        high = (1 << 8 * width - (kind is ParameterKind.SIGNED)) - 1
        if parameter.type_name == "bool":
            low, high = 0, 1
        if not low <= value <= high:
            raise ArgumentValueError(
                f"{self.where(parameter)} cannot hold {shown(value)}: it takes {low} to {high}",
                "pass a value in that range, or widen the kernel's parameter",
            )
        return (value & (1 << 8 * width) - 1).to_bytes(width, "little")

    def exact_float(self, parameter: Parameter, value: int) -> bytes:
        try:
            data = self.float_bytes(parameter, float(value))
            exact = self.float_value(parameter, data) == value
        except OverflowError:
            exact = False
        if not exact:
            raise ArgumentValueError(
                f"{self.where(parameter)} cannot represent the int {shown(value)} exactly",
                "pass float(x) if rounding is meant",
            )
        return data

    def floating(self, parameter: Parameter, value: float) -> bytes:
        width, kind = parameter.size_bytes, parameter.kind
        unknown = kind is ParameterKind.UNKNOWN and width in (4, 8)
        if not (kind is ParameterKind.FLOAT or unknown or _is_bfloat16(parameter)):
            if kind in _INTEGER_KINDS:
                raise self.misfit(parameter, value, "pass int(x): the parameter is an integer")
            if kind is ParameterKind.UNKNOWN and width == 2:
                raise self.misfit(
                    parameter, value, "pass numpy.float16(x): only the width is known"
                )
            struct_like = kind in _RAW_KINDS
            raise self.misfit(parameter, value, self.bytes_remedy(parameter) * struct_like)
        try:
            data = self.float_bytes(parameter, value)
            overflow = math.isfinite(value) and math.isinf(self.float_value(parameter, data))
        except OverflowError:
            overflow = True
        if overflow:
            raise ArgumentValueError(
                f"{self.where(parameter)} cannot hold {value!r}: it overflows to infinity",
                "pass float('inf') if infinity is meant",
            )
        return data

    def float_bytes(self, parameter: Parameter, value: float) -> bytes:
        if _is_bfloat16(parameter):
            return _bfloat16_bytes(value)
        pattern = _FLOAT_FORMATS.get(parameter.size_bytes)
        if pattern is None:
            raise self.misfit(parameter, value, self.bytes_remedy(parameter))
        return struct.pack(pattern, value)

    def float_value(self, parameter: Parameter, data: bytes) -> float:
        if _is_bfloat16(parameter):
            return float(struct.unpack("<f", b"\0\0" + data)[0])
        return float(struct.unpack(_FLOAT_FORMATS[parameter.size_bytes], data)[0])

    def numpy_scalar(self, parameter: Parameter, value: np.generic) -> bytes:
        width, kind = parameter.size_bytes, parameter.kind
        if isinstance(value, np.void):
            if not value.dtype.isnative:
                raise self.misfit(parameter, value, "its fields are in the other byte order")
            return self.raw(parameter, value.tobytes())
        if value.dtype.name == _NUMBER_CLASSES.get(parameter.type_name or "", ""):
            return value.tobytes()
        letter = value.dtype.kind
        if letter == "b":
            return self.boolean(parameter, value)
        if value.dtype.itemsize != width or letter not in "iufc":
            raise self.misfit(parameter, value, self.width_remedy(parameter, letter))
        if letter in "iu" and (kind in _NUMBER_KINDS or kind is ParameterKind.POINTER):
            return self.integer(parameter, int(value))
        plain_float = letter == "f" and not _is_bfloat16(parameter)
        if plain_float and kind in (ParameterKind.FLOAT, ParameterKind.UNKNOWN):
            return value.tobytes()
        if letter == "c" and kind in _RAW_KINDS:
            return value.tobytes()
        raise self.misfit(parameter, value, self.width_remedy(parameter, letter))

    def width_remedy(self, parameter: Parameter, letter: str) -> str:
        width, kind = parameter.size_bytes, parameter.kind
        if _is_bfloat16(parameter):
            return "pass a Python float"
        if parameter.type_name in _NUMBER_CLASSES:
            return self.bytes_remedy(parameter)
        if kind is ParameterKind.FLOAT and width in _FLOAT_NAMES:
            return f"pass numpy.{_FLOAT_NAMES[width]}(x), or a Python float"
        if kind is ParameterKind.UNKNOWN and letter == "f" and width in _FLOAT_NAMES:
            return f"pass numpy.{_FLOAT_NAMES[width]}(x)"
        if kind in _NUMBER_KINDS and width in (1, 2, 4, 8):
            sign = "u" if kind is ParameterKind.UNSIGNED else ""
            return f"pass numpy.{sign}int{8 * width}(x), or a Python int"
        return self.bytes_remedy(parameter) if kind in _RAW_KINDS else ""

    def bytes_remedy(self, parameter: Parameter) -> str:
        count = f"{parameter.size_bytes} byte{'s' * (parameter.size_bytes > 1)}"
        scalar = _NUMBER_CLASSES.get(parameter.type_name or "")
        return f"pass the {count} of the value" + (f", or ml_dtypes.{scalar}(x)" if scalar else "")

    def ctypes_scalar(self, parameter: Parameter, value: Any) -> bytes:
        kind = parameter.kind
        if isinstance(value, (ctypes.c_char_p, ctypes.c_wchar_p, ctypes.py_object)):
            raise self.misfit(parameter, value, "a kernel cannot read host memory; upload it")
        self.check_byte_order(parameter, value)
        is_float = isinstance(value, (ctypes.c_float, ctypes.c_double, ctypes.c_longdouble))
        if isinstance(value, ctypes.c_void_p):
            fits = kind in (ParameterKind.POINTER, ParameterKind.UNKNOWN)
        elif is_float:
            fits = kind in (ParameterKind.FLOAT, ParameterKind.UNKNOWN)
        else:
            fits = kind not in (ParameterKind.FLOAT, ParameterKind.STRUCT)
        if not fits or ctypes.sizeof(value) != parameter.size_bytes:
            raise self.misfit(parameter, value)
        if is_float:
            return bytes(value)
        number = value.value
        if isinstance(number, bytes):  # char is signed on x86-64
            number = int.from_bytes(number, "little", signed=kind is ParameterKind.SIGNED)
        elif isinstance(number, str):
            number = ord(number)
        if not isinstance(number, (int, type(None))):
            raise self.misfit(parameter, value)
        return self.integer(parameter, int(number or 0))

    def check_byte_order(self, parameter: Parameter, value: object) -> None:
        kind: Any = type(value)
        if _is_swapped(kind):
            raise self.misfit(parameter, value, "it is in the other byte order; give it in this")

    # ---- bytes and arrays

    def raw(self, parameter: Parameter, value: Any) -> bytes:
        if parameter.kind not in _RAW_KINDS:
            raise self.misfit(parameter, value, _RAW_REMEDY.get(parameter.kind, ""))
        self.check_byte_order(parameter, value)
        if isinstance(value, memoryview) and value.itemsize > 1 and value.format[0] in _SWAPPED:
            raise self.misfit(parameter, value, "it is in the other byte order; give it in this")
        data = bytes(value)
        if len(data) != parameter.size_bytes:
            raise ArgumentTypeError(
                f"{self.where(parameter)} got {len(data)} bytes instead of {parameter.size_bytes}",
                "lay the struct out as the compiler does, with its padding (numpy: align=True)",
            )
        return data

    def host_array(self, parameter: Parameter, value: Any) -> bytes:
        raise self.misfit(
            parameter, value, "a kernel cannot read host memory; pass device.upload(x)"
        )

    def own_array(self, parameter: Parameter, value: Array) -> bytes:
        if self.device is not None and not self.device.owns(value):
            raise ArrayLayoutError(
                f"{self.where(parameter)} lies in the memory of another device, "
                f"{value.device.name}",
                "upload it to the device that runs the kernel",
            )
        view = ArrayView(
            value.pointer,
            value.shape,
            None,
            _element_type(value.dtype),
            value.readonly,
            None,
            None,
            value,
        )
        return self.array(parameter, view, value)

    def foreign_array(self, parameter: Parameter, value: object) -> bytes:
        if self.device is not None and not self.device.takes_cuda_arrays:
            raise self.misfit(
                parameter, value, f"{self.device.name} has no GPU memory; upload a numpy array"
            )
        if not self.may_be_pointer(parameter):
            raise self.misfit(parameter, value)
        view = as_view(value, stream=self.stream)
        ordinal = getattr(self.device, "ordinal", None)
        if None not in (ordinal, view.device_ordinal) and ordinal != view.device_ordinal:
            raise ArrayLayoutError(
                f"{self.where(parameter)} lies on GPU {view.device_ordinal}; the kernel runs on "
                f"GPU {ordinal}",
                "move it to the GPU that runs the kernel",
            )
        if view.stream is not None:
            self.streams.add(view.stream)
        elif self.stream is not None and is_dlpack(view):
            # It was made valid in the launch's stream; another one must wait for that.
            self.streams.add(self.stream or _LEGACY_STREAM)
        return self.array(parameter, view, value)

    def array(self, parameter: Parameter, view: ArrayView, value: object) -> bytes:
        if not self.may_be_pointer(parameter):
            raise self.misfit(parameter, value)
        self.check_elements(parameter, view)
        if not view.contiguous:
            raise ArrayLayoutError(
                f"{self.where(parameter)} got an array of shape {view.shape} that is not "
                f"contiguous (strides {view.strides_bytes} bytes)",
                "pass a contiguous copy (torch: x.contiguous(); CuPy: cupy.ascontiguousarray(x))",
            )
        writes = parameter.kind is ParameterKind.POINTER and not parameter.pointee_is_const
        if view.readonly and writes and (parameter.type_name or parameter.pointee):
            raise ArrayLayoutError(
                f"{self.where(parameter)} may be written to, and the array is read-only",
                "pass a writable array, or make the kernel's parameter a pointer to const",
            )
        self.owners.append(view.owner)
        return view.pointer.to_bytes(_POINTER_BYTES, "little")

    def check_elements(self, parameter: Parameter, view: ArrayView) -> None:
        wanted, got = parameter.pointee, view.dtype.name
        if wanted is None or wanted == got or "void" in (wanted, got):
            return
        raise DtypeError(
            f"{self.where(parameter)} points to {wanted}, and the array holds {got}",
            f"convert the array to {wanted}, or pass its address as an int if this is meant",
        )

    def tensor_map(self, parameter: Parameter, value: TensorMap) -> bytes:
        if parameter.kind not in _RAW_KINDS or parameter.size_bytes != TENSOR_MAP_BYTES:
            remedy = f"a kernel takes it as const __grid_constant__, {TENSOR_MAP_BYTES} bytes"
            raise self.misfit(parameter, value, remedy)
        if self.device is not None and not _is_same(self.device, value.device):
            raise ArrayLayoutError(
                f"{self.where(parameter)} got a tensor map of another device, {value.device.name}",
                "make it with the device that runs the kernel",
            )
        value.check_open()
        self.owners.append(value)
        self.streams |= value.streams
        return bytes(value)

    @staticmethod
    def may_be_pointer(parameter: Parameter) -> bool:
        return parameter.kind is ParameterKind.POINTER or (
            parameter.kind is ParameterKind.UNKNOWN and parameter.size_bytes == _POINTER_BYTES
        )


# In order: bool is an int, and numpy.float64 a float.
_ENCODERS: tuple[tuple[Any, Callable[[_Packer, Parameter, Any], bytes]], ...] = (
    (Array, _Packer.own_array),
    (TensorMap, _Packer.tensor_map),
    (np.generic, _Packer.numpy_scalar),
    (bool, _Packer.boolean),
    (int, _Packer.integer),
    (float, _Packer.floating),
    (type(None), _Packer.none),
    (np.ndarray, _Packer.host_array),
    (ctypes._SimpleCData, _Packer.ctypes_scalar),
    ((bytes, bytearray, memoryview, ctypes.Structure, ctypes.Union, ctypes.Array), _Packer.raw),
)


@functools.lru_cache(maxsize=256)
def _encoder(kind: type) -> Callable[[_Packer, Parameter, Any], bytes] | None:
    for kinds, encoder in _ENCODERS:
        if issubclass(kind, kinds):
            return encoder
    return None


@functools.lru_cache(maxsize=64)
def _element_type(dtype: np.dtype[Any]) -> ElementType:
    return ElementType.of(dtype)  # a dtype's name is slow to make


@functools.lru_cache(maxsize=256)
def _is_swapped(kind: Any) -> bool:
    """Whether a ctypes type, or any part of it, is in the other byte order."""
    if issubclass(kind, ctypes.Array):
        return _is_swapped(kind._type_)
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        fields = (field for each in kind.__mro__ for field in each.__dict__.get("_fields_", ()))
        return any(_is_swapped(field[1]) for field in fields)
    return getattr(kind, _OWN_ORDER, kind) is not kind


def _is_same(one: Device, other: Device) -> bool:
    """Whether two objects stand for one device: a GPU may have several."""
    ordinal = getattr(one, "ordinal", None)
    return one is other or (ordinal is not None and ordinal == getattr(other, "ordinal", None))


def _is_bfloat16(parameter: Parameter) -> bool:
    return parameter.type_name == _BFLOAT16


def _bfloat16_bytes(value: float) -> bytes:
    """Round to the nearest bfloat16, ties to even; a NaN stays one."""
    if math.isnan(value):
        return b"\xc0\x7f"
    bits = int.from_bytes(struct.pack("<f", value), "little")
    bits += 0x7FFF + (bits >> 16 & 1)
    return (bits >> 16).to_bytes(2, "little")


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
