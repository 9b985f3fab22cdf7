"""Arrays and streams of other libraries: read and given without importing any of them.

Arrays come in by ``__cuda_array_interface__`` (versions 2 and 3) or DLPack, streams by
``__cuda_stream__``; so torch, CuPy and cuda.core objects work as they are.
"""

from __future__ import annotations

import ctypes
import operator
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lowgemm.errors import ArrayLayoutError, DtypeError, LowgemmError, StreamDeviceError
from lowgemm.runtime.shapes import shown

__all__ = [
    "DLPACK_CPU",
    "DLPACK_CUDA",
    "ArrayView",
    "ElementType",
    "as_view",
    "byte_range",
    "cuda_array_interface",
    "export_dlpack",
    "foreign_stream_handle",
    "has_cuda_interface",
    "is_dlpack",
    "overlaps",
]

DLPACK_CPU = 1
DLPACK_CUDA = 2
_DLPACK_CUDA_HOST = 3
_DLPACK_CUDA_MANAGED = 13
_DLPACK_DEVICE_NAMES = {
    DLPACK_CPU: "the CPU",
    _DLPACK_CUDA_HOST: "pinned host memory",
    4: "an OpenCL device",
    7: "a Vulkan device",
    8: "a Metal device",
    10: "a ROCm device",
    14: "a oneAPI device",
}

# DLDataTypeCode. Codes from 7 on name narrow formats that numpy does not have.
_DLPACK_INT, _DLPACK_UINT, _DLPACK_FLOAT, _DLPACK_COMPLEX, _DLPACK_BOOL = 0, 1, 2, 5, 6
_DLPACK_NUMERIC = {
    _DLPACK_INT: "int",
    _DLPACK_UINT: "uint",
    _DLPACK_FLOAT: "float",
    _DLPACK_COMPLEX: "complex",
}
_DLPACK_NARROW = {
    4: "bfloat",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}

_DLPACK_FLAG_READ_ONLY = 1


@dataclass(frozen=True, slots=True)
class ElementType:
    """An array's element type. ``name`` is numpy's where numpy has it, else DLPack's.

    The name ``"void"`` means bytes of no type: a raw buffer.
    """

    name: str
    size_bytes: int

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> ElementType:
        """The element type of a numpy dtype."""
        return cls(dtype.name, dtype.itemsize)

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """The numpy dtype, or None where numpy has none (bfloat16, the 8-bit floats)."""
        try:
            return np.dtype(self.name)
        except TypeError:
            return None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ArrayView:
    """An array in a device's memory, whoever owns it.

    ``strides_bytes`` is None for C-contiguous. ``stream`` is the handle of the stream in which the
    owner says that the data becomes valid. ``owner`` keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...] | None
    dtype: ElementType
    readonly: bool
    device_ordinal: int | None
    stream: int | None
    owner: object = field(repr=False, compare=False, default=None)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one after the other in C order."""
        if self.strides_bytes is None or self.size == 0:
            return True
        expected = self.dtype.size_bytes
        for extent, stride in zip(reversed(self.shape), reversed(self.strides_bytes), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


# ---- reading


def has_cuda_interface(obj: object) -> bool:
    """Whether an object claims to be an array that :func:`as_view` can read."""
    kind = type(obj)
    return (
        hasattr(kind, "__cuda_array_interface__")
        or "__cuda_array_interface__" in getattr(obj, "__dict__", ())
        or (hasattr(kind, "__dlpack_device__") and hasattr(kind, "__dlpack__"))
    )


def as_view(obj: object, *, stream: int | None = None) -> ArrayView:
    """Read another library's array without copying it.

    Parameters
    ----------
    obj
        An object with ``__cuda_array_interface__`` or DLPack on a CUDA device.
    stream
        The handle of the stream in which the array will be used. A DLPack producer makes its data
        valid there; ``__cuda_array_interface__`` names its own stream instead, in the result.

    Raises
    ------
    ArrayLayoutError
        The array is not in a CUDA device's memory, is masked, or its owner refuses to share it.
    DtypeError
        The element type cannot be described.
    """
    interface, refusal = _cuda_interface_of(obj)
    kind = type(obj)
    speaks_dlpack = hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")
    # numpy has no bfloat16: torch gives such elements out as two raw bytes, and DLPack by name.
    if interface is not None and not (speaks_dlpack and _is_raw(interface)):
        return _from_cuda_interface(interface, obj)
    if speaks_dlpack:
        view = _from_dlpack(obj, stream)
        if kind.__name__ == "Buffer" and kind.__module__.startswith("cuda.core"):
            # cuda.core gives its untyped memory out as bytes.
            view = replace(view, dtype=ElementType("void", 1))
        return view
    if refusal is not None:
        raise ArrayLayoutError(
            f"{_name(obj)} refuses to share its memory: {refusal}",
            "pass an array that it shares (torch: x.detach())",
        ) from refusal
    raise ArrayLayoutError(
        f"{_name(obj)} is no array in a CUDA device's memory",
        "pass an object with __cuda_array_interface__ or __dlpack__, or upload a numpy array",
    )


def is_dlpack(view: ArrayView) -> bool:
    """Whether an array came by DLPack: valid in the stream that its producer was told."""
    return isinstance(view.owner, _DlpackOwner)


def _is_raw(interface: Any) -> bool:
    typestr = interface.get("typestr", "") if isinstance(interface, dict) else ""
    return str(typestr).lstrip("<>|=").startswith("V")


def _name(obj: object) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _cuda_interface_of(obj: object) -> tuple[dict[str, Any] | None, Exception | None]:
    try:
        interface = obj.__cuda_array_interface__  # type: ignore[attr-defined]
    except AttributeError:
        return None, None
    except Exception as error:
        # torch raises TypeError for bfloat16 (DLPack has it) and RuntimeError for tensors that
        # need gradients.
        return None, error
    return interface, None


def _from_cuda_interface(interface: dict[str, Any], obj: object) -> ArrayView:
    try:
        return _read_cuda_interface(interface, obj)
    except (
        AttributeError,
        KeyError,
        OverflowError,
        SyntaxError,  # numpy reads a typestr with commas as Python
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, LowgemmError):
            raise
        version = interface.get("version") if isinstance(interface, dict) else None
        raise ArrayLayoutError(
            f"{_name(obj)} has a __cuda_array_interface__ (version {version}) that is not valid: "
            f"{error!r}"
        ) from error


def _read_cuda_interface(interface: dict[str, Any], obj: object) -> ArrayView:
    version = int(interface.get("version", 0))
    if interface.get("mask") is not None:
        raise ArrayLayoutError(
            f"{_name(obj)} is masked; a kernel sees no mask", "fill the masked elements first"
        )
    dtype = np.dtype(interface["typestr"])
    pointer, readonly = interface["data"]
    shape = tuple(int(extent) for extent in interface["shape"])
    if not dtype.isnative:
        raise DtypeError(f"{_name(obj)} has elements in the other byte order ({dtype.str})")
    given = interface.get("strides")
    strides = None if given is None else tuple(int(stride) for stride in given)
    if strides is not None and len(strides) != len(shape):
        raise ValueError(f"{len(strides)} strides for {len(shape)} dimensions")
    if any(extent < 0 for extent in shape):
        raise ValueError(f"the shape {shape} has a negative extent")
    stream = interface.get("stream") if version >= 3 else None
    if stream == 0:
        raise StreamDeviceError(
            f"{_name(obj)} names stream 0, which __cuda_array_interface__ does not allow",
            "1 is the legacy default stream, 2 the per-thread one",
        )
    return ArrayView(
        _address("pointer", pointer or 0),
        shape,
        strides,
        ElementType.of(dtype),
        bool(readonly),
        None,
        None if stream is None else _address("stream", stream),
        obj,
    )


def _address(what: str, given: Any) -> int:
    number = int(given)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"the {what} {number} is no address")
    return number


class _DlDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("ordinal", ctypes.c_int32))


class _DlDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DlTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DlDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DlDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DlManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", _DlTensor),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _DlManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DlTensor),
    )


# A capsule keeps the address of its name, so the names live as long as the module.
_LEGACY, _LEGACY_USED = b"dltensor", b"used_dltensor"
_VERSIONED, _VERSIONED_USED = b"dltensor_versioned", b"used_dltensor_versioned"

_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
# The deleter runs with the GIL held: some producers drop Python references in it.
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _DlpackOwner:
    """Holds a consumed DLPack tensor; its deleter runs once, when the last view is gone."""

    __slots__ = ("__weakref__", "release")

    def __init__(self, address: int, deleter: int | None) -> None:
        self.release = weakref.finalize(self, _delete, address, deleter)
        # At interpreter exit the producer's library may be gone already; the process frees all.
        self.release.atexit = False


def _delete(address: int, deleter: int | None) -> None:
    if deleter:
        _Deleter(deleter)(address)


def _from_dlpack(obj: Any, stream: int | None) -> ArrayView:
    try:
        device_type, ordinal = map(int, obj.__dlpack_device__())
    except Exception as error:  # it is the producer's code
        raise ArrayLayoutError(f"{_name(obj)} does not tell its device: {error!r}") from error
    if int(device_type) not in (DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
        place = _DLPACK_DEVICE_NAMES.get(int(device_type), f"DLPack device type {device_type}")
        raise ArrayLayoutError(
            f"{_name(obj)} lies in the memory of {place}, not of a CUDA device",
            "upload it first: device.upload(numpy_array)",
        )
    # In DLPack 0 is ambiguous and not allowed; 1 is the legacy default stream.
    capsule = _request_capsule(obj, stream or 1)
    return _consume_capsule(capsule, int(ordinal))


def _request_capsule(obj: Any, stream: int | None) -> Any:
    try:
        try:
            return obj.__dlpack__(stream=stream, max_version=(1, 1))
        except TypeError:
            # Producers older than the 2023.12 standard do not know max_version.
            return obj.__dlpack__(stream=stream)
    except Exception as error:
        raise ArrayLayoutError(
            f"{_name(obj)} refuses to share its memory: {error}",
            "pass an array that it shares (torch: x.detach())",
        ) from error


def _consume_capsule(capsule: Any, ordinal: int | None) -> ArrayView:
    """Take over a capsule's tensor: it is marked used, and the view's owner deletes it."""
    managed: _DlManagedTensor | _DlManagedTensorVersioned
    if _capsule_is_valid(capsule, _VERSIONED):
        address = _capsule_pointer(capsule, _VERSIONED)
        managed = _DlManagedTensorVersioned.from_address(address)
        if managed.major != 1:
            raise ArrayLayoutError(
                f"the array comes by DLPack {managed.major}.{managed.minor}; 0.x and 1.x are known"
            )
        readonly = bool(managed.flags & _DLPACK_FLAG_READ_ONLY)
        _capsule_rename(capsule, _VERSIONED_USED)
    elif _capsule_is_valid(capsule, _LEGACY):
        address = _capsule_pointer(capsule, _LEGACY)
        managed = _DlManagedTensor.from_address(address)
        readonly = False
        _capsule_rename(capsule, _LEGACY_USED)
    else:
        raise ArrayLayoutError(
            f"{capsule!r} is no DLPack capsule, or has been consumed already",
            "ask the array for a new one: each can be read once",
        )
    owner = _DlpackOwner(address, managed.deleter)
    tensor = managed.tensor
    dtype = _dlpack_element_type(tensor.dtype)
    rank = int(tensor.ndim)
    strides = None
    if rank and tensor.strides:
        strides = tuple(tensor.strides[axis] * dtype.size_bytes for axis in range(rank))
    return ArrayView(
        int(tensor.data or 0) + int(tensor.byte_offset),
        tuple(tensor.shape[axis] for axis in range(rank)),
        strides,
        dtype,
        readonly,
        int(tensor.device.ordinal) if ordinal is None else ordinal,
        None,
        owner,
    )


def _dlpack_element_type(dtype: _DlDataType) -> ElementType:
    code, bits, lanes = int(dtype.code), int(dtype.bits), int(dtype.lanes)
    if lanes == 1 and bits % 8 == 0:
        if code in _DLPACK_NUMERIC:
            return ElementType(f"{_DLPACK_NUMERIC[code]}{bits}", bits // 8)
        if code == _DLPACK_BOOL and bits == 8:
            return ElementType("bool", 1)
        if code in _DLPACK_NARROW:
            name = _DLPACK_NARROW[code]
            return ElementType(f"{name}{bits}" if name == "bfloat" else name, bits // 8)
    raise DtypeError(
        f"DLPack element type code {code}, {bits} bits, {lanes} lanes is not supported",
        "convert the array to an element type of whole bytes",
    )


# ---- giving


class _NumpyHolder:
    """Lets numpy describe memory that it never touches, and keeps that memory's owner alive."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: object):
        self.owner = owner
        self.__array_interface__ = {
            "data": (pointer, False),
            "shape": shape,
            "typestr": dtype.str,
            "version": 3,
        }


def export_dlpack(
    pointer: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    owner: object,
    *,
    device: tuple[int, int],
    max_version: tuple[int, int] | None = None,
) -> Any:
    """A DLPack capsule over C-contiguous memory, which keeps ``owner`` alive until it is freed.

    Parameters
    ----------
    pointer
        The address of the first element.
    device
        The DLPack device type (:data:`DLPACK_CUDA`) and ordinal.
    max_version
        The newest DLPack version that the consumer reads; from (1, 0) on the capsule is
        ``dltensor_versioned``, where numpy can make one.

    Raises
    ------
    DtypeError
        DLPack has no such element type.
    """
    # numpy makes the capsule and only its device is set here. A destructor written in Python would
    # run while a consumer's error is pending, and lose that error; numpy's is C.
    array = np.asarray(_NumpyHolder(pointer, shape, dtype, owner))
    try:
        try:
            capsule = array.__dlpack__(max_version=max_version)
        except TypeError:
            capsule = array.__dlpack__()  # numpy before 2.1
    except (BufferError, TypeError) as error:
        raise DtypeError(f"DLPack cannot carry elements of {dtype}: {error}") from error
    managed: _DlManagedTensor | _DlManagedTensorVersioned
    if _capsule_is_valid(capsule, _VERSIONED):
        managed = _DlManagedTensorVersioned.from_address(_capsule_pointer(capsule, _VERSIONED))
    else:
        managed = _DlManagedTensor.from_address(_capsule_pointer(capsule, _LEGACY))
    managed.tensor.device.type, managed.tensor.device.ordinal = device
    return capsule


def cuda_array_interface(
    pointer: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    readonly: bool = False,
    stream: int | None = None,
) -> dict[str, Any]:
    """The value of ``__cuda_array_interface__`` (version 3) for C-contiguous memory.

    ``stream`` is the handle in which the data becomes valid (1: the legacy default stream), or
    None when it is valid already.
    """
    return {
        "shape": shape,
        "typestr": dtype.str,
        "data": (pointer, readonly),
        "version": 3,
        "strides": None,
        "stream": stream,
    }


# ---- streams


def foreign_stream_handle(obj: object) -> int:
    """The handle of another library's stream.

    Takes an object with ``__cuda_stream__`` (a method or a property that gives (0, handle)), a
    handle as an int, or None for the default stream. torch and CuPy streams of releases without
    the protocol are read by their ``cuda_stream`` and ``ptr``.

    Raises
    ------
    StreamDeviceError
        The object is none of these, or speaks another version of the protocol.
    """
    if obj is None:
        return 0
    answer = _protocol_answer(obj)
    if answer is not None:
        return _protocol_handle(answer, obj)
    if isinstance(obj, int) and not isinstance(obj, bool):
        return _checked_handle(obj, obj)
    package = type(obj).__module__.partition(".")[0]
    attribute = {"torch": "cuda_stream", "cupy": "ptr"}.get(package)
    if attribute is not None and hasattr(obj, attribute):
        return _checked_handle(getattr(obj, attribute), obj)
    raise StreamDeviceError(
        f"{shown(obj)} is no stream",
        "pass an object with __cuda_stream__, a stream's handle as an int, or None",
    )


def _protocol_answer(obj: object) -> Any:
    """What ``__cuda_stream__`` gives; None where the object has none."""
    try:
        answer = getattr(obj, "__cuda_stream__", None)
        return answer() if callable(answer) else answer
    except LowgemmError:
        raise
    except Exception as error:  # it is another library's code
        raise StreamDeviceError(f"{_name(obj)} does not tell its stream: {error!r}") from error


def _protocol_handle(answer: Any, obj: object) -> int:
    try:
        version, handle = answer
    except (TypeError, ValueError) as error:
        raise StreamDeviceError(
            f"{_name(obj)}.__cuda_stream__ gives {shown(answer)}, not (version, handle)"
        ) from error
    if version != 0:
        raise StreamDeviceError(
            f"{_name(obj)} speaks version {version!r} of __cuda_stream__; version 0 is known"
        )
    return _checked_handle(handle, obj)


def _checked_handle(handle: object, obj: object) -> int:
    try:
        number = operator.index(handle)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise StreamDeviceError(
            f"{shown(obj)} has the stream handle {shown(handle)}, which is no address"
        )
    return number


# ---- overlap


def byte_range(view: ArrayView) -> tuple[int, int]:
    """The addresses that an array spans: the first byte and the one after the last.

    An empty array spans nothing: both are its pointer.
    """
    if view.size == 0:
        return view.pointer, view.pointer
    if view.strides_bytes is None:
        return view.pointer, view.pointer + view.size * view.dtype.size_bytes
    low = high = 0
    for extent, stride in zip(view.shape, view.strides_bytes, strict=True):
        reach = (extent - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return view.pointer + low, view.pointer + high + view.dtype.size_bytes


def overlaps(a: ArrayView, b: ArrayView) -> bool:
    """Whether the address ranges of two arrays meet.

    Arrays that interleave without sharing an element count as overlapping.
    """
    (a_first, a_end), (b_first, b_end) = byte_range(a), byte_range(b)
    return max(a_first, b_first) < min(a_end, b_end)
