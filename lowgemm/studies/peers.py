"""cuBLAS as the peer that the ladder is measured against."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

from lowgemm.device import Gpu
from lowgemm.device.capture import captured_kernels
from lowgemm.device.stream import DeviceStream
from lowgemm.errors import DriverError, MeasurementError, ToolNotFoundError
from lowgemm.gemm import GemmProblem
from lowgemm.runtime import Array

__all__ = ["CublasSgemm", "PeerIdentity", "find_cublas"]

_NO_TRANSPOSE = 0
# CUBLAS_DEFAULT_MATH: FP32 on CUDA cores unless the environment asks for TF32.
_DEFAULT_MATH = 0
_TF32_VARIABLE = "NVIDIA_TF32_OVERRIDE"


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Which library and which of its kernels a time belongs to."""

    library: str
    version: str
    kernels: tuple[str, ...]


class CublasSgemm:
    """cuBLAS's SGEMM in FP32, TF32 off, on row-major matrices.

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
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    @property
    def version(self) -> str:
        """The library's version, e.g. ``"13.1.0"``."""
        number = ctypes.c_int()
        self._check("cublasGetVersion_v2", self._handle, ctypes.byref(number))
        # 130100 is 13.1.0, or 1301 hundred: major * 10000 + minor * 100 + patch since CUDA 11.
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def prepare(self, problem: GemmProblem, a: Array, b: Array, c: Array) -> _Call:
        """A call of C = A B on flat buffers, arguments converted once."""
        p = problem
        # Column-major, the row-major C is C^T = B^T A^T.
        arguments = (
            self._handle,
            *(_NO_TRANSPOSE, _NO_TRANSPOSE, p.n, p.m, p.k),
            ctypes.byref(self._one),
            *(ctypes.c_void_p(b.pointer), p.ldb, ctypes.c_void_p(a.pointer), p.lda),
            ctypes.byref(self._zero),
            *(ctypes.c_void_p(c.pointer), p.ldc),
        )
        return _Call(self, arguments, (a, b, c))

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


class _Call:
    """One prepared SGEMM; calling it enqueues it."""

    def __init__(
        self, peer: CublasSgemm, arguments: tuple[Any, ...], keep: tuple[Array, ...]
    ) -> None:
        self._peer = peer
        self._arguments = arguments
        self._keep = keep

    def __call__(self) -> None:
        with self._peer._gpu.context.current():
            self._peer._check("cublasSgemm_v2", *self._arguments)


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
