"""The stream-K kernel on a device: compiled, its hot loop rewritten, and launched."""

from __future__ import annotations

from functools import lru_cache

from lowgemm.compiler import Build, compile_file
from lowgemm.errors import ArrayLayoutError, DtypeError, ProblemSizeError, RewriteError
from lowgemm.gemm.problem import GemmProblem
from lowgemm.gemm.rungs import kernel_directory
from lowgemm.hardware import Architecture
from lowgemm.rewrite import RewrittenKernel, is_enabled, rewrite_kernel
from lowgemm.runtime import Array, Device, PreparedLaunch

__all__ = ["StreamK", "compile_stream_k", "rewrite_stream_k"]

_NAME = "sgemm_stream_k"
_BM, _BN, _THREADS, _SHARED_BYTES = 256, 128, 256, 64 << 10
#: The workspace: flags of up to 1024 blocks, then a tile for each block, all in floats.
_FLAG_FLOATS, _MOST_BLOCKS = 1024, 1024
_FLOAT4_BYTES = 16


def compile_stream_k(arch: Architecture | str) -> Build:
    """Compile the kernel.

    Raises
    ------
    CompilationError, UnknownArchitectureError, ToolNotFoundError
        See :func:`lowgemm.compiler.compile_file`.
    """
    return compile_file(kernel_directory() / f"{_NAME}.cu", arch=arch)


@lru_cache(maxsize=8)
def rewrite_stream_k(cubin: bytes) -> RewrittenKernel:
    """The kernel with its hot loop rewritten.

    Raises
    ------
    RewriteError
        This cubin's loop cannot be.
    """
    return rewrite_kernel(cubin, _NAME)


class StreamK:
    """C = A B on a device, with one block on each multiprocessor.

    Parameters
    ----------
    device
        Where it runs; the kernel is compiled for its architecture.
    rewritten
        Whether the hot loop is to be rewritten; None: as :func:`lowgemm.rewrite.is_enabled` says.
        Where it cannot be, the compiler's stays.

    Attributes
    ----------
    is_rewritten
        Whether the hot loop is.
    """

    def __init__(self, device: Device, *, rewritten: bool | None = None) -> None:
        self.device = device
        cubin = compile_stream_k(device.architecture).cubin
        self.is_rewritten = False
        if is_enabled() if rewritten is None else rewritten:
            try:
                cubin = rewrite_stream_k(cubin).cubin
                self.is_rewritten = True
            except RewriteError:
                pass  # the compiler's loop is right as well
        self._kernel = device.load(cubin).kernel(_NAME)
        self._blocks = min(device.multiprocessors, _MOST_BLOCKS)
        self._workspace = device.zeros(_FLAG_FLOATS + self._blocks * _BM * _BN)

    def prepare(
        self, problem: GemmProblem, a: Array, b: Array, c: Array, *, stream: object = None
    ) -> PreparedLaunch:
        """Check and pack a launch on flat buffers.

        Launches of one object share a workspace: they must follow each other in one stream.

        Parameters
        ----------
        problem
            The sizes. k, n and the leading dimensions are multiples of 4.
        a, b, c
            One-dimensional float32 arrays of at least ``problem.a_elements`` (and so on) elements.
        stream
            The stream to launch in.

        Raises
        ------
        ProblemSizeError
            Rows that do not begin on 16 bytes.
        DtypeError, ArrayLayoutError
            A buffer has another type or is too small.
        """
        p = problem
        if not p.allows_float4() or p.ldc % 4:
            raise ProblemSizeError(
                f"{p} has rows that do not begin on 16 bytes",
                "k, n and the leading dimensions must be multiples of 4",
            )
        needed = {"A": p.a_elements, "B": p.b_elements, "C": p.c_elements}
        for (name, elements), array in zip(needed.items(), (a, b, c), strict=True):
            if str(array.dtype) != "float32":
                raise DtypeError(f"{name} holds {array.dtype}, not float32", "convert it")
            if array.pointer % _FLOAT4_BYTES:
                raise ArrayLayoutError(
                    f"{name} begins at {array.pointer:#x}", "begin on a multiple of 16 bytes"
                )
            if array.size < elements:
                raise ArrayLayoutError(
                    f"{name} has {array.size} elements; {p} needs {elements}",
                    "allocate (rows - 1) x leading dimension + columns elements",
                )
        return self._kernel.prepare(
            *(p.m, p.n, p.k, a, p.lda, b, p.ldb, c, p.ldc, self._workspace),
            grid=self._blocks,
            block=_THREADS,
            shared_bytes=_SHARED_BYTES,
            stream=stream,
        )
