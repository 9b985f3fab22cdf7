"""cuBLAS as the peer that the ladder is measured against."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any

from lowgemm.device import Gpu
from lowgemm.device.capture import captured_kernels
from lowgemm.device.stream import DeviceStream
from lowgemm.errors import ArrayLayoutError, DriverError, MeasurementError, ToolNotFoundError
from lowgemm.gemm import GemmProblem, Layout, SgemmCall
from lowgemm.runtime import Array

__all__ = ["CublasSgemm", "CublasSgemv", "PeerIdentity", "cublas_version", "find_cublas"]

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
# CUBLAS_DEFAULT_MATH: FP32 on CUDA cores unless the environment asks for TF32.
_DEFAULT_MATH = 0
_TF32_VARIABLE = "NVIDIA_TF32_OVERRIDE"
#: What NVIDIA recommends for Hopper: 32 MiB.
_WORKSPACE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Which library and which of its kernels a time belongs to."""

    library: str
    version: str
    kernels: tuple[str, ...]


class _Cublas:
    """A handle of cuBLAS on a stream, FP32, TF32 off.

    Parameters
    ----------
    gpu
        The GPU.
    stream
        The stream on which it works.

    Raises
    ------
    ToolNotFoundError
        libcublas is not installed.
    MeasurementError
        The environment forces TF32: the peer would compute something else.
    DriverError
        cuBLAS refuses to start.
    """

    def __init__(self, gpu: Gpu, stream: DeviceStream) -> None:
        if os.environ.get(_TF32_VARIABLE) == "1":
            raise MeasurementError(
                f"{_TF32_VARIABLE}=1 makes cuBLAS round its inputs to TF32",
                "unset it: the ladder is measured against exact FP32",
            )
        self._gpu = gpu
        self._stream = stream
        self._library = ctypes.CDLL(find_cublas())
        self._handle = ctypes.c_void_p()
        with gpu.context.current():
            self._check("cublasCreate_v2", ctypes.byref(self._handle))
        self._check("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.handle))
        self._check("cublasSetMathMode", self._handle, _DEFAULT_MATH)
        # Its own workspace cannot be used in a graph that is launched again.
        self._workspace = gpu.empty(_WORKSPACE_BYTES, "uint8")
        pointer = ctypes.c_void_p(self._workspace.pointer)
        self._check("cublasSetWorkspace_v2", self._handle, pointer, _WORKSPACE_BYTES)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    @property
    def version(self) -> str:
        """The library's version, e.g. ``"13.1.0"``."""
        number = ctypes.c_int()
        self._check("cublasGetVersion_v2", self._handle, ctypes.byref(number))
        # 130100 is 13.1.0, or 1301 hundred: major * 10000 + minor * 100 + patch since CUDA 11.
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def identify(self, call: _Call) -> PeerIdentity:
        """Name the kernels that cuBLAS chose for a call."""
        call()  # The first call of a size loads its kernels, which a capture would record.
        self._stream.synchronize()
        return PeerIdentity("cuBLAS", self.version, captured_kernels(self._gpu, self._stream, call))

    def close(self) -> None:
        """Destroy the cuBLAS handle; twice does nothing."""
        if self._handle:
            with self._gpu.context.current():
                self._library.cublasDestroy_v2(self._handle)
            self._handle = ctypes.c_void_p()

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise DriverError(
                f"{function} failed with cublasStatus_t {status}",
                "see the list of cublasStatus_t in the cuBLAS documentation",
                code=str(status),
                call=function,
            )


class CublasSgemm(_Cublas):
    """cuBLAS's SGEMM in FP32, TF32 off, on row-major matrices."""

    def prepare(self, problem: GemmProblem | SgemmCall, a: Array, b: Array, c: Array) -> _Call:
        """A call of C = A B on flat buffers, arguments converted once.

        Raises
        ------
        ArrayLayoutError
            A matrix is contiguous neither along its rows nor along its columns.
        """
        call = SgemmCall.of(problem) if isinstance(problem, GemmProblem) else problem
        # Column-major, the row-major C is C^T = B^T A^T.
        first = (c_void_p(b.pointer), *_transposition("B", call.b))
        second = (c_void_p(a.pointer), *_transposition("A", call.a))
        c_transposed, ldc = _transposition("C", call.c)
        if c_transposed:
            raise ArrayLayoutError("a column-major C", "hand in the transposed problem")
        sizes = (call.n, call.m, call.k)
        one, zero = ctypes.byref(self._one), ctypes.byref(self._zero)
        out = c_void_p(c.pointer)
        head = (self._handle, first[1], second[1], *sizes, one)
        if call.batches == 1:
            arguments: tuple[Any, ...] = (
                *(*head, first[0], first[2], second[0], second[2]),
                *(zero, out, ldc),
            )
            return _Call(self, "cublasSgemm_v2", arguments, (a, b, c))
        arguments = (
            *(*head, first[0], first[2], ctypes.c_longlong(call.b.batch)),
            *(second[0], second[2], ctypes.c_longlong(call.a.batch), zero),
            *(out, ldc, ctypes.c_longlong(call.c.batch), call.batches),
        )
        return _Call(self, "cublasSgemmStridedBatched", arguments, (a, b, c))


def _transposition(name: str, layout: Layout) -> tuple[int, int]:
    """Whether cuBLAS, which sees the matrix as its transpose, has to transpose it; and ld."""
    if layout.column == 1:
        return _NO_TRANSPOSE, layout.row
    if layout.row == 1:
        return _TRANSPOSE, layout.column
    raise ArrayLayoutError(
        f"{name} has strides of {layout.row} and {layout.column} elements",
        "cuBLAS takes matrices that are contiguous along rows or columns",
    )


class CublasSgemv(_Cublas):
    """cuBLAS's SGEMV in FP32 on a row-major matrix."""

    def prepare(self, a: Array, x: Array, y: Array) -> _Call:
        """A call of y = A x, arguments converted once.

        Parameters
        ----------
        a
            A row-major matrix without gaps.
        x, y
            As long as its rows, and as its columns.

        Raises
        ------
        ArrayLayoutError
            The shapes do not fit together.
        """
        if len(a.shape) != 2 or x.size != a.shape[1] or y.size != a.shape[0]:
            raise ArrayLayoutError(
                f"A of shape {a.shape}, x of {x.size} and y of {y.size} elements",
                "y = A x takes an m x n matrix, n and m elements",
            )
        rows, columns = a.shape
        # Column-major, the row-major A is its transpose, of columns x rows.
        arguments = (
            self._handle,
            *(_TRANSPOSE, columns, rows),
            ctypes.byref(self._one),
            *(ctypes.c_void_p(a.pointer), columns, ctypes.c_void_p(x.pointer), 1),
            ctypes.byref(self._zero),
            *(ctypes.c_void_p(y.pointer), 1),
        )
        return _Call(self, "cublasSgemv_v2", arguments, (a, x, y))


class _Call:
    """One prepared call of cuBLAS; calling it enqueues it."""

    def __init__(
        self, peer: _Cublas, function: str, arguments: tuple[Any, ...], keep: tuple[Array, ...]
    ) -> None:
        self._peer = peer
        self._function = function
        self._arguments = arguments
        self._keep = keep

    def __call__(self) -> None:
        with self._peer._gpu.context.current():
            self._peer._check(self._function, *self._arguments)


def cublas_version(gpu: Gpu) -> str:
    """The version of the cuBLAS that a GPU is measured against.

    Raises
    ------
    ToolNotFoundError
        libcublas is not installed.
    """
    peer = CublasSgemm(gpu, gpu.stream())
    version = peer.version
    peer.close()
    return version


def find_cublas() -> str:
    """The path of libcublas, which this loads.

    Raises
    ------
    ToolNotFoundError
        It is not installed.
    """
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        return str(load_nvidia_dynamic_lib("cublas").abs_path)
    except (DynamicLibNotFoundError, RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ToolNotFoundError(
            f"libcublas cannot be loaded: {reason}",
            "pip install nvidia-cublas brings it; without it no ratio to cuBLAS is shown",
        ) from error
