"""A rung on a device: compiled, loaded, and launched for a problem."""

from __future__ import annotations

from typing import Any

from lowgemm.compiler import Build, compile_file
from lowgemm.errors import ArrayLayoutError, DtypeError, OverlapError, ProblemSizeError
from lowgemm.gemm.arrays import check_floats
from lowgemm.gemm.problem import GemmProblem
from lowgemm.gemm.rewritten import rewritten_build
from lowgemm.gemm.rungs import Rung
from lowgemm.hardware import Architecture
from lowgemm.rewrite import is_enabled
from lowgemm.runtime import (
    Array,
    ArrayView,
    Device,
    ElementType,
    Kernel,
    PreparedLaunch,
    as_view,
    foreign_stream_handle,
)
from lowgemm.runtime.interchange import byte_range, overlaps

__all__ = ["RungKernel", "compile_rung", "is_rewritten"]

_FLOAT_BYTES = 4
_FLOAT4_BYTES = 16
_MAX_BLOCKS = 2**31 - 1


def compile_rung(rung: Rung, arch: Architecture | str) -> Build:
    """Compile a rung's kernel, all its instances, for one architecture.

    Where the rung is to be rewritten, the instance for aligned rows has another hot loop, unless
    ``LOWGEMM_REWRITE=0`` or the rewriter refuses; :func:`is_rewritten` says which.

    Raises
    ------
    CompilationError, UnknownArchitectureError, ToolNotFoundError
        See :func:`lowgemm.compiler.compile_file`.
    """
    build = _compile(rung, arch)
    if not rung.is_rewritten or not is_enabled():
        return build
    kernel = build.kernel(rung.instance(aligned=True)).name
    return rewritten_build(build, kernel) or build


def is_rewritten(rung: Rung, build: Build) -> bool | None:
    """Whether a rung's build has the rewriter's hot loop; None for rungs that want none."""
    if not rung.is_rewritten:
        return None
    return build.cubin != _compile(rung, build.arch).cubin


def _compile(rung: Rung, arch: Architecture | str) -> Build:
    return compile_file(
        rung.path,
        arch=arch,
        defines=rung.defines,
        name_expressions=rung.name_expressions if rung.has_float4 else (),
    )


class RungKernel:
    """A rung, ready to run on a device.

    Parameters
    ----------
    device
        Where it runs; the rung is compiled for its architecture.
    rung
        A record of :func:`lowgemm.gemm.ladder`.
    build
        The rung's build for that architecture, where there is one already.
    """

    def __init__(self, device: Device, rung: Rung, build: Build | None = None) -> None:
        self.device = device
        self.rung = rung
        self.build = build or compile_rung(rung, device.architecture)
        self.module = device.load(self.build)
        self._kernels: dict[bool, Kernel] = {}
        self._unaligned: RungKernel | None = None

    def kernel(self, *, aligned: bool) -> Kernel:
        """The instance for aligned rows, or the one for any."""
        if aligned not in self._kernels:
            self._kernels[aligned] = self.module.kernel(self.rung.instance(aligned=aligned))
        return self._kernels[aligned]

    def prepare(
        self, problem: GemmProblem, a: Array, b: Array, c: Array, *, stream: object = None
    ) -> PreparedLaunch:
        """Check and pack a launch on flat buffers.

        Parameters
        ----------
        problem
            The sizes.
        a, b, c
            One-dimensional float32 arrays of at least ``problem.a_elements`` (and so on) elements.
        stream
            The stream to launch in.

        Raises
        ------
        DtypeError, ArrayLayoutError, OverlapError, ProblemSizeError
            A buffer has another type, is too small, or C shares memory with A or B; or C has more
            tiles than a grid has blocks.
        """
        needed = {"A": problem.a_elements, "B": problem.b_elements, "C": problem.c_elements}
        for (name, elements), array in zip(needed.items(), (a, b, c), strict=True):
            if str(array.dtype) != "float32":
                raise DtypeError(
                    f"{name} holds {array.dtype}, not float32", "convert it to float32"
                )
            if array.size < elements:
                raise ArrayLayoutError(
                    f"{name} has {array.size} elements; {problem} needs {elements}",
                    "allocate (rows - 1) x leading dimension + columns elements",
                )
        spans = [
            (array.pointer, array.pointer + 4 * elements)
            for array, elements in zip((a, b, c), needed.values(), strict=True)
        ]
        for name, span in (("A", spans[0]), ("B", spans[1])):
            if span[0] < spans[2][1] and spans[2][0] < span[1]:
                raise _overlap(name)
        pointers = [a.pointer, b.pointer]
        return self._prepare(problem, a, b, c, pointers=pointers, stream=stream)

    def prepare_matrices(
        self, a: object, b: object, c: object, *, stream: object = None
    ) -> PreparedLaunch:
        """Check and pack C = A B on two-dimensional arrays.

        Parameters
        ----------
        a, b, c
            Row-major float32 matrices of m x k, k x n and m x n elements: lowgemm's own arrays or
            anything with ``__cuda_array_interface__`` or DLPack on the device. Rows may have gaps.
        stream
            The stream to launch in.

        Raises
        ------
        DtypeError
            An element type other than float32.
        ArrayLayoutError
            An array without two dimensions, or whose rows are not contiguous; a C that must not be
            written to.
        OverlapError
            C shares memory with A or B.
        ProblemSizeError
            Sizes that do not fit together, or of zero.
        """
        handle = foreign_stream_handle(stream)
        views = {
            name: _matrix(name, value, self.device, handle)
            for name, value in (("A", a), ("B", b), ("C", c))
        }
        problem = _problem_of(views)
        if views["C"].readonly:
            raise ArrayLayoutError("C is read-only", "hand in an array that may be written to")
        for name in ("A", "B"):
            if _share_memory(views[name], views["C"]):
                raise _overlap(name)
        operands = [
            value if isinstance(value, Array) else _Span(view)
            for value, view in zip((a, b, c), views.values(), strict=True)
        ]
        pointers = [views["A"].pointer, views["B"].pointer]
        return self._prepare(problem, *operands, pointers=pointers, stream=stream)

    def _prepare(
        self, problem: GemmProblem, *operands: object, pointers: list[int], stream: object
    ) -> PreparedLaunch:
        rung = self.rung
        tiles = rung.tiles(problem)
        steps = rung.k_tiles(problem) if rung.is_persistent else 1
        if tiles * steps > _MAX_BLOCKS:
            what = f" and {steps} k-tiles each; it counts" if steps > 1 else "; a grid holds"
            raise ProblemSizeError(
                f"{problem} has {tiles} tiles of {rung.bm} x {rung.bn}{what} {_MAX_BLOCKS}",
                "use a rung with a larger tile",
            )
        aligned = problem.allows_float4() and not any(p % _FLOAT4_BYTES for p in pointers)
        if rung.unaligned is not None and not aligned:
            other = self._for_unaligned(rung.unaligned)
            return other._prepare(problem, *operands, pointers=pointers, stream=stream)
        a, b, c = operands
        launch = rung.launch(self.device, problem, a, b, c)
        kernel = self.kernel(aligned=aligned)
        return kernel.prepare(*launch.arguments, **launch.geometry, stream=stream)

    def _for_unaligned(self, rung: Rung) -> RungKernel:
        if self._unaligned is None:
            self._unaligned = RungKernel(self.device, rung)
        return self._unaligned


class _Span:
    """The memory of a foreign matrix, gaps included, as one row of floats.

    A kernel takes contiguous arrays; the leading dimension tells it of the gaps. The stream in
    which the matrix becomes valid goes along.
    """

    def __init__(self, view: ArrayView) -> None:
        first, end = byte_range(view)
        self.owner = view
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": ((end - first) // _FLOAT_BYTES,),
            "typestr": "<f4",
            "data": (view.pointer, view.readonly),
            "strides": None,
            "stream": view.stream,
        }


def _view(name: str, value: Any, device: Device, stream: int) -> ArrayView:
    if isinstance(value, Array):
        dtype = ElementType.of(value.dtype)
        return ArrayView(value.pointer, value.shape, None, dtype, value.readonly, None, None, value)
    view = as_view(value, stream=stream)
    ordinal = getattr(device, "ordinal", None)
    if None not in (ordinal, view.device_ordinal) and ordinal != view.device_ordinal:
        raise ArrayLayoutError(
            f"{name} lies on GPU {view.device_ordinal}; the kernel runs on GPU {ordinal}",
            "move it to the GPU that runs the kernel",
        )
    return view


def _matrix(name: str, value: Any, device: Device, stream: int) -> ArrayView:
    view = _view(name, value, device, stream)
    check_floats(name, view)
    if len(view.shape) != 2:
        raise ArrayLayoutError(
            f"{name} has shape {view.shape}", "hand in a matrix with two dimensions"
        )
    if 0 in view.shape:
        raise ProblemSizeError(
            f"{name} has shape {view.shape}", "every size of a GEMM must be at least 1"
        )
    row, column = _strides(view)
    if view.shape[1] > 1 and column != 4:
        raise ArrayLayoutError(
            f"the columns of {name} lie {column} bytes apart: it is not row-major",
            "make it contiguous first (torch: x.contiguous(); CuPy: cupy.ascontiguousarray(x))",
        )
    if view.shape[0] > 1 and (row % 4 or row < 4 * view.shape[1]):
        raise ArrayLayoutError(
            f"the rows of {name} lie {row} bytes apart and are {4 * view.shape[1]} bytes long",
            "rows must follow each other without overlap, a whole number of floats apart",
        )
    return view


def _strides(view: ArrayView) -> tuple[int, int]:
    if view.strides_bytes is None:
        return 4 * view.shape[1], 4
    return view.strides_bytes[0], view.strides_bytes[1]


def _share_memory(one: ArrayView, other: ArrayView) -> bool:
    """Whether two matrices have an element in common; column ranges of one buffer need not."""
    if not overlaps(one, other):
        return False
    pitch = _strides(one)[0]
    if pitch != _strides(other)[0] or 1 in (one.shape[0], other.shape[0]):
        return True
    # Row i of one and row i + t of the other start (distance - t pitch) bytes apart.
    distance = other.pointer - one.pointer
    first = distance // pitch
    return any(
        -4 * other.shape[1] < distance - t * pitch < 4 * one.shape[1]
        and -other.shape[0] < t < one.shape[0]
        for t in (first, first + 1)
    )


def _problem_of(views: dict[str, ArrayView]) -> GemmProblem:
    (m, k), (k_of_b, n) = views["A"].shape, views["B"].shape
    if k != k_of_b or views["C"].shape != (m, n):
        shapes = ", ".join(f"{name} {view.shape}" for name, view in views.items())
        raise ProblemSizeError(
            f"the shapes {shapes} do not fit C = A B", "A is m x k, B is k x n, C is m x n"
        )
    # The stride of a single row says nothing.
    lda, ldb, ldc = (
        _strides(view)[0] // 4 if view.shape[0] > 1 else view.shape[1] for view in views.values()
    )
    return GemmProblem(m, n, k, lda, ldb, ldc)


def _overlap(name: str) -> OverlapError:
    return OverlapError(f"C shares memory with {name}", "write the product to an array of its own")
