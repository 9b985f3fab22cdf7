"""``sgemm()``: C = alpha op(A) op(B) + beta C on arrays of any library, exact FP32."""

from __future__ import annotations

import math
import numbers
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from lowgemm.device import Gpu, gpu_available
from lowgemm.emulator import Emulator
from lowgemm.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    DtypeError,
    OverlapError,
    ProblemSizeError,
    StreamDeviceError,
)
from lowgemm.gemm.arrays import ArrayReader, check_floats, reader_of
from lowgemm.gemm.call import Layout, SgemmCall
from lowgemm.gemm.engine import Sgemm, stream_key
from lowgemm.runtime import (
    Array,
    ArrayView,
    Device,
    ElementType,
    Stream,
    foreign_stream_handle,
)
from lowgemm.runtime.interchange import byte_range, has_cuda_interface
from lowgemm.runtime.shapes import shown

__all__ = ["sgemm"]

_FLOAT_BYTES, _VECTOR_BYTES = 4, 16
#: What computes numpy arrays where there is no GPU.
_EMULATED = "sm_90"
_MOST_PLANS = 4096
#: How long to look for an element that two interleaved arrays share, before they count as sharing.
_OVERLAP_WORK = 10_000


def sgemm(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    stream: object = None,
) -> Any:
    """Compute ``alpha op(A) op(B) + beta C`` in FP32 on CUDA cores, with the same bits each time.

    Parameters
    ----------
    a
        float32, of shape (..., m, k), or (..., k, m) with ``transpose_a``: an array of torch, CuPy
        or anything else with DLPack or ``__cuda_array_interface__`` on a GPU, one of lowgemm's own
        of any device, or a numpy array. Any strides will do; rows or columns that are contiguous
        and begin on 16 bytes are the fastest.
    b
        The same, of shape (..., k, n), or (..., n, k) with ``transpose_b``.
    out
        C, (..., m, n), which is written to and returned; None: a new array of the library of ``a``.
        Dimensions before the last two are batches, and broadcast as in ``numpy.matmul``.
    alpha, beta
        Factors, rounded to FP32. As in BLAS, with ``beta = 0`` C is not read, and with
        ``alpha = 0`` A and B are not.
    transpose_a, transpose_b
        Whether op(A) is the transpose of ``a``, op(B) of ``b``.
    stream
        The stream to launch in; None: the current one of the library of the arrays (torch, CuPy),
        otherwise the default stream. The host does not wait, except for numpy arrays: those are
        copied to a GPU, or without one to the emulator, and back.

    Returns
    -------
    array
        ``out``.

    Raises
    ------
    ProblemSizeError
        Shapes that do not fit together, or fewer than two dimensions.
    DtypeError
        Elements other than float32.
    ArrayLayoutError
        Arrays on different devices, an ``out`` that is read-only or whose elements share memory, an
        address that is no multiple of 4.
    OverlapError
        ``out`` shares memory with ``a`` or ``b``.
    ArgumentTypeError, ArgumentValueError
        A factor is no number, or overflows FP32; ``beta`` without ``out``; a ``transpose`` that is
        neither True nor False.
    StreamDeviceError
        The stream is none of the arrays' device, or was given with numpy arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from lowgemm import sgemm
    >>> sgemm(np.eye(2, dtype="f4"), np.array([[1, 2], [3, 4]], "f4"), alpha=2)
    array([[2., 4.],
           [6., 8.]], dtype=float32)
    """
    alpha, beta = _factor("alpha", alpha), _factor("beta", beta)
    if out is None and beta != 0.0:
        raise ArgumentValueError(f"beta = {beta} without a C", "hand in out, which is C")
    _check_flags(transpose_a, transpose_b)
    if isinstance(a, np.ndarray):
        if stream is not None:
            raise StreamDeviceError(
                f"stream = {shown(stream)} with numpy arrays", "leave it out: they are waited for"
            )
        return _on_host(a, b, out, alpha, beta, bool(transpose_a), bool(transpose_b))
    arrays = (a, b) if out is None else (a, b, out)
    readers = [reader_of(type(each)) for each in arrays]
    own_stream = stream is not None
    if not own_stream:
        stream = readers[0].current_stream(a)
    options = _Options(bool(transpose_a), bool(transpose_b), alpha == 0.0, _stream_key(stream))
    marks, pointers = [], []
    for reader, array in zip(readers, arrays, strict=True):
        mark, pointer = reader.mark(array)
        # Another stream than the library's current one has to wait for that.
        marks.append(None if own_stream and reader.names_stream else mark)
        pointers.append(pointer)
    key = (options, *marks)
    plans = a.device.kept.setdefault(sgemm, {}) if isinstance(a, Array) else _PLANS
    plan = None if None in marks else plans.get(key)
    if plan is None:
        plan, pointers = _planned(arrays, readers, options, stream)
        if None not in marks:
            if len(plans) >= _MOST_PLANS:
                plans.clear()
            plans[key] = plan
    for reader, array in zip(readers[1:], arrays[1:], strict=True):
        if reader is not readers[0]:  # another library: its own current stream comes first
            plan.wait_for(reader.current_stream(array), stream)
    if out is None:
        out = readers[0].empty(a, plan.shape, plan.device)
        pointers = [*pointers, reader_of(type(out)).mark(out)[1]]
    else:
        plan.check_overlap(pointers[0], pointers[1], pointers[2])
    plan.run(pointers[0], pointers[1], pointers[2], alpha, beta)
    return out


class _Options(NamedTuple):
    """What of a call decides how it is made, beside its arrays."""

    transpose_a: bool
    transpose_b: bool
    without_product: bool
    stream: object


def _stream_key(stream: object) -> object:
    """What tells streams apart: a handle, or a stream of the emulator itself.

    Raises
    ------
    StreamDeviceError
        It is no stream.
    """
    handle = _handle(stream)
    return stream if handle is None else stream_key(handle)


def _handle(stream: object) -> int | None:
    """A CUDA stream's handle; None for a stream of the emulator."""
    if type(stream) is int:
        return stream
    if isinstance(stream, Stream) and not hasattr(stream, "__cuda_stream__"):
        return None
    return foreign_stream_handle(stream)


@dataclass(frozen=True, slots=True)
class _Matrices:
    """An operand: its shape and strides in elements, and where its memory begins and ends.

    ``first`` and ``end`` are in bytes from the address of its first element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    end: int

    @classmethod
    def of(cls, name: str, view: ArrayView) -> _Matrices:
        check_floats(name, view)
        if len(view.shape) < 2:
            raise ProblemSizeError(
                f"{name} has shape {view.shape}",
                "hand in matrices: a vector as a matrix of one row or column",
            )
        strides = _element_strides(name, view)
        first, end = byte_range(view)
        return cls(view.shape, strides, first - view.pointer, end - view.pointer)

    @classmethod
    def contiguous(cls, name: str, shape: tuple[int, ...]) -> _Matrices:
        """Matrices of that shape without gaps."""
        return cls.of(name, ArrayView(0, shape, None, _FLOAT32, False, None, None))

    @property
    def transposed(self) -> _Matrices:
        swap = (*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2)
        shape, strides = (tuple(x[i] for i in swap) for x in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides)

    def broadcast(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        """The strides along the dimensions of a batch; 0 along those that are repeated."""
        own, strides = self.shape[:-2], self.strides[:-2]
        missing = len(batch) - len(own)
        kept = (0 if e == 1 else s for e, s in zip(own, strides, strict=True))
        return (0,) * missing + tuple(kept)

    def on_host(self, pointer: int) -> np.ndarray[Any, Any]:
        """A numpy array of that address and layout, which nobody may read."""
        return np.asarray(_Interface(pointer, self.shape, self.strides))


class _Interface:
    def __init__(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "version": 3, "shape": shape, "typestr": "<f4", "data": (pointer, True),
            "strides": tuple(4 * stride for stride in strides),
        }  # fmt: skip


def _element_strides(name: str, view: ArrayView) -> tuple[int, ...]:
    if view.strides_bytes is None:
        strides = []
        step = 1
        for extent in reversed(view.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))
    for stride, extent in zip(view.strides_bytes, view.shape, strict=True):
        if stride % _FLOAT_BYTES and extent > 1:
            raise ArrayLayoutError(
                f"elements of {name} lie {stride} bytes apart, no whole number of floats",
                "hand in a contiguous copy",
            )
    return tuple(stride // _FLOAT_BYTES for stride in view.strides_bytes)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a call launches: for each, what to call and where its matrices begin, in bytes."""

    device: Device
    shape: tuple[int, ...]
    a: _Matrices
    b: _Matrices
    c: _Matrices
    launches: tuple[tuple[Callable[[int, int, int, float, float], None], int, int, int], ...]

    def run(self, a: int, b: int, c: int, alpha: float, beta: float) -> None:
        for launch, to_a, to_b, to_c in self.launches:
            launch(c + to_c, a + to_a, b + to_b, alpha, beta)

    def wait_for(self, other: object, stream: object) -> None:
        """Let the call's stream wait for another."""
        if other is not None and isinstance(self.device, Gpu):
            handle = self.device.stream_handle(other)
            self.device.context.order(handle, self.device.stream_handle(stream))

    def check_overlap(self, a: int, b: int, c: int) -> None:
        """Refuse a C that shares memory with A or B."""
        first, end = c + self.c.first, c + self.c.end
        for name, matrices, pointer in (("a", self.a, a), ("b", self.b, b)):
            if pointer + matrices.first < end and first < pointer + matrices.end:
                _check_exactly(name, matrices.on_host(pointer), self.c.on_host(c))


def _check_exactly(name: str, one: np.ndarray[Any, Any], c: np.ndarray[Any, Any]) -> None:
    try:
        shared = np.shares_memory(one, c, max_work=_OVERLAP_WORK)  # type: ignore[arg-type]  # any
    except np.exceptions.TooHardError:
        shared = True
    if shared:
        raise OverlapError(
            f"out shares memory with {name}", "write the product to an array of its own"
        )


def _planned(
    arrays: tuple[Any, ...], readers: list[ArrayReader], options: _Options, stream: object
) -> tuple[_Plan, list[int]]:
    """The plan, and the addresses of the arrays."""
    names = ("a", "b", "out")[: len(arrays)]
    for name, array in zip(names, arrays, strict=True):
        if not isinstance(array, Array) and not has_cuda_interface(array):
            raise ArrayLayoutError(
                f"{name} is no array on a device but {shown(array)}",
                "hand in numpy arrays alone (np.asarray(x, np.float32)), or arrays of one device "
                "alone (device.upload(x))",
            )
    views = [
        reader.view(array, _handle(stream) or 0)
        for reader, array in zip(readers, arrays, strict=True)
    ]
    matrices = [_Matrices.of(name, view) for name, view in zip(names, views, strict=True)]
    device = _device_of(names, arrays, readers, views)
    a = matrices[0].transposed if options.transpose_a else matrices[0]
    b = matrices[1].transposed if options.transpose_b else matrices[1]
    batch = _check_shapes(a, b)
    shape = (*batch, a.shape[-2], b.shape[-1])
    if len(arrays) == 3:
        c = matrices[2]
        _check_output(c.shape, shape, c.strides, readonly=views[2].readonly)
        aligned = [not view.pointer % _VECTOR_BYTES for view in views]
    else:
        c = _Matrices.contiguous("out", shape)
        aligned = [not view.pointer % _VECTOR_BYTES for view in views] + [True]
    if isinstance(device, Gpu):
        for view in views:
            if view.stream is not None:
                device.context.order(view.stream, device.stream_handle(stream))
    launches = _launches(_engine(device), (a, b, c), batch, aligned, options, stream)
    return _Plan(device, shape, a, b, c, launches), [view.pointer for view in views]


_FLOAT32 = ElementType("float32", 4)


def _check_shapes(a: _Matrices, b: _Matrices) -> tuple[int, ...]:
    """The dimensions of the batch."""
    if a.shape[-1] != b.shape[-2]:
        raise ProblemSizeError(
            f"op(a) is {a.shape[-2]} x {a.shape[-1]} and op(b) {b.shape[-2]} x {b.shape[-1]}",
            f"op(a) is m x k, op(b) is k x n: {a.shape[-1]} and {b.shape[-2]} must be one k; "
            "transpose_a and transpose_b turn them",
        )
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ProblemSizeError(
            f"the batches of a, {a.shape[:-2]}, and of b, {b.shape[:-2]}, do not fit together",
            "extents must be equal, or 1",
        ) from None


def _check_output(
    given: tuple[int, ...],
    wanted: tuple[int, ...],
    strides: tuple[int, ...],
    size: int = 1,
    *,
    readonly: bool,
) -> None:
    """Refuse an out of another shape, or that cannot be written; its elements have that size."""
    if given != wanted:
        raise ProblemSizeError(f"out has shape {given}, not {wanted}", "hand in one of that shape")
    if readonly:
        raise ArrayLayoutError("out is read-only", "hand in an array that may be written to")
    _check_distinct(strides, given, size)


#: Elements of an out up to which those that may share memory are looked at one by one.
_MOST_LOOKED_AT = 1 << 22


def _check_distinct(strides: tuple[int, ...], shape: tuple[int, ...], size: int) -> None:
    """Refuse an out with elements, of a size in the unit of its strides, that share memory."""
    if 0 in shape:
        return
    steps = [(abs(s), e) for s, e in zip(strides, shape, strict=True) if e > 1]
    reach, distinct = size, True
    for stride, extent in sorted(steps):
        distinct &= stride >= reach
        reach += (extent - 1) * stride
    if not distinct and math.prod(shape) <= _MOST_LOOKED_AT:
        places = np.zeros(1, np.int64)
        for stride, extent in steps:
            places = (places[:, None] + np.arange(extent) * stride).ravel()
        distinct = bool(np.all(np.diff(np.sort(places)) >= size))
    if not distinct:
        raise ArrayLayoutError(
            f"elements of out share memory (strides {strides}, shape {shape})",
            "hand in an array with an element of its own for each",
        )


def _device_of(
    names: tuple[str, ...],
    arrays: tuple[Any, ...],
    readers: list[ArrayReader],
    views: list[ArrayView],
) -> Device:
    """The one device on which all arrays lie."""
    found: list[Device] = []
    for array, reader, view in zip(arrays, readers, views, strict=True):
        if isinstance(array, Array):
            found.append(array.device)
            continue
        ordinal = reader.ordinal(array)
        ordinal = view.device_ordinal if ordinal is None else ordinal
        if ordinal is None:
            ordinal = _gpu(0).ordinal_of(view.pointer) if view.pointer else 0
        found.append(_gpu(ordinal))
    first = found[0]
    for name, other in zip(names[1:], found[1:], strict=True):
        ordinals = [getattr(each, "ordinal", None) for each in (first, other)]
        if other is not first and (None in ordinals or ordinals[0] != ordinals[1]):
            raise ArrayLayoutError(
                f"a lies on {_place(first)} and {name} on {_place(other)}",
                "move all arrays to one device",
            )
    return first


def _place(device: Device) -> str:
    return f"GPU {device.ordinal}" if isinstance(device, Gpu) else f"the {device.name}"


_LOCK = threading.RLock()
_GPUS: dict[int, Gpu] = {}
_PLANS: dict[tuple[Any, ...], _Plan] = {}


def _gpu(ordinal: int) -> Gpu:
    with _LOCK:
        if ordinal not in _GPUS:
            _GPUS[ordinal] = Gpu(ordinal)
        return _GPUS[ordinal]


def _engine(device: Device) -> Sgemm:
    with _LOCK:
        engine = device.kept.get(Sgemm)
        if engine is None:
            engine = device.kept[Sgemm] = Sgemm(device)
        return cast("Sgemm", engine)


def _launches(
    engine: Sgemm,
    operands: tuple[_Matrices, _Matrices, _Matrices],
    batch: tuple[int, ...],
    aligned: list[bool],
    options: _Options,
    stream: object,
) -> tuple[tuple[Callable[[int, int, int, float, float], None], int, int, int], ...]:
    a, b, c = operands
    if 0 in c.shape:
        return ()
    extents, strides = _merged(batch, [each.broadcast(batch) for each in operands])
    inner = extents[-1] if extents else 1
    outer = list(np.ndindex(*extents[:-1]))
    offsets = [
        [sum(i * s for i, s in zip(index, each[:-1], strict=True)) for each in strides]
        for index in outer
    ]
    layouts = [
        Layout(
            each.strides[-2],
            each.strides[-1],
            steps[-1] if steps else 0,
            fits and not any(offset[n] % 4 for offset in offsets),
        )
        for n, (each, steps, fits) in enumerate(zip(operands, strides, aligned, strict=True))
    ]
    nothing = a.shape[-1] == 0 or options.without_product
    sizes = (a.shape[-2], b.shape[-1], a.shape[-1] or 1)
    call = SgemmCall(*sizes, layouts[0], layouts[1], layouts[2], inner)
    launch = (engine.prepare_scale if nothing else engine.prepare)(call, stream=stream)
    return tuple((launch, 4 * to_a, 4 * to_b, 4 * to_c) for to_a, to_b, to_c in offsets)


def _merged(
    extents: tuple[int, ...], strides: list[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The dimensions of a batch with those made one that all operands step through evenly."""
    merged: list[tuple[int, list[int]]] = []
    for extent, steps in zip(extents, zip(*strides, strict=True), strict=True):
        if extent == 1:
            continue
        if merged and all(
            before == step * extent for before, step in zip(merged[-1][1], steps, strict=True)
        ):
            merged[-1] = (merged[-1][0] * extent, list(steps))
        else:
            merged.append((extent, list(steps)))
    sizes = tuple(extent for extent, _ in merged)
    return sizes, [tuple(steps[n] for _, steps in merged) for n in range(len(strides))]


def _on_host(
    a: Any, b: Any, out: Any, alpha: float, beta: float, transpose_a: bool, transpose_b: bool
) -> Any:
    """numpy arrays: copied to a device and back."""
    for name, array in (("b", b), ("out", out)):
        if not isinstance(array, np.ndarray) and (name == "b" or array is not None):
            raise ArrayLayoutError(
                f"a is a numpy array and {name} is {shown(array)}",
                "hand in numpy arrays alone, or arrays of one device alone",
            )
    given = {"a": a, "b": b} | ({} if out is None else {"out": out})
    for name, array in given.items():
        if array.dtype != np.float32:
            raise DtypeError(f"{name} holds {array.dtype}, not float32", "convert it to float32")
    if out is not None:
        _check_host_output(a, b, out, transpose_a, transpose_b)
    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    device = _host_device()
    with _HOST_LOCK:  # the emulator is for one thread
        there = (device.upload(a), device.upload(b))
        if out is None:
            return sgemm(*there, alpha=alpha, **options).download()
        c = device.upload(out)
        sgemm(*there, c, alpha=alpha, beta=beta, **options)
        out[...] = c.download()
    return out


def _check_host_output(
    a: _HostArray, b: _HostArray, out: _HostArray, transpose_a: bool, transpose_b: bool
) -> None:
    """Refuse an out that could not be written back."""
    one = np.swapaxes(a, -1, -2) if transpose_a and a.ndim > 1 else a
    two = np.swapaxes(b, -1, -2) if transpose_b and b.ndim > 1 else b
    shapes = [_Matrices.contiguous(name, each.shape) for name, each in (("a", one), ("b", two))]
    shape = (*_check_shapes(*shapes), one.shape[-2], two.shape[-1])
    readonly = not out.flags.writeable
    _check_output(out.shape, shape, out.strides, out.itemsize, readonly=readonly)
    for name, array in (("a", a), ("b", b)):
        if np.may_share_memory(array, out):
            _check_exactly(name, array, out)


_HostArray = np.ndarray[Any, Any]
_HOST_DEVICES: list[Device] = []
_HOST_LOCK = threading.Lock()


def _host_device() -> Device:
    """What computes numpy arrays: a GPU if there is one, otherwise the emulator."""
    with _LOCK:
        if not _HOST_DEVICES:
            _HOST_DEVICES.append(_gpu(0) if gpu_available() else Emulator(_EMULATED))
        return _HOST_DEVICES[0]


def _check_flags(*flags: object) -> None:
    for flag in flags:
        if not isinstance(flag, (bool, np.bool_)):
            raise ArgumentTypeError(
                f"transpose = {shown(flag)} is neither True nor False",
                "BLAS's 'N' is False, 'T' is True",
            )


def _factor(name: str, value: Any) -> float:
    """A factor, rounded to FP32: what becomes 0 there is 0."""
    if not isinstance(value, (float, numbers.Real)) or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} = {shown(value)} is no number", "give a float")
    try:
        number = float(value)
        beyond = not -_MOST_FLOAT < number < _MOST_FLOAT and math.isfinite(number)
    except OverflowError:
        beyond = True
    if beyond:
        raise ArgumentValueError(
            f"{name} = {shown(value)} overflows FP32", "pass float('inf') if infinity is meant"
        )
    return float(_FP32.unpack(_FP32.pack(number))[0])


_FP32 = struct.Struct("<f")
#: From here on a number rounds to infinity in FP32.
_MOST_FLOAT = (2 - 2**-24) * 2.0**127
