"""Problems, references, and the checks of a rung's arguments."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from fakes import CudaLike, FakeDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowgemm.errors import (
    ArrayLayoutError,
    DtypeError,
    OverlapError,
    ProblemSizeError,
    UnknownRungError,
)
from lowgemm.gemm import (
    GemmProblem,
    Reference,
    RungKernel,
    exact_operands,
    gamma,
    poisoned,
    random_operands,
    rung,
)

A_AT, B_AT, C_AT = 0x100000, 0x200000, 0x300000


@pytest.fixture(scope="module")
def ex8() -> RungKernel:
    """ex8 on a device that runs nothing."""
    return RungKernel(FakeDevice(), rung("ex8", "sm_90"))


def matrices(
    m: int = 64, n: int = 32, k: int = 16, **changes: object
) -> tuple[CudaLike, CudaLike, CudaLike]:
    """A, B and C that fit together."""
    return (
        CudaLike((m, k), pointer=A_AT),
        CudaLike((k, n), pointer=B_AT),
        CudaLike((m, n), pointer=C_AT),
    )


# ---- problems


@pytest.mark.parametrize(("text", "sizes"), [("4096", (4096,) * 3), ("3x5x7", (3, 5, 7))])
def test_a_problem_is_read_from_text(text: str, sizes: tuple[int, int, int]) -> None:
    """One number is a cube, three are M, N and K."""
    p = GemmProblem.parse(text)
    assert (p.m, p.n, p.k) == sizes


@pytest.mark.parametrize("text", ["", "3x5", "4096x", "-4", "1e3"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    """The error shows the text and an example."""
    with pytest.raises(ProblemSizeError, match="4096x2048x512"):
        GemmProblem.parse(text)


@pytest.mark.parametrize(
    "sizes", [(0, 1, 1), (1, -1, 1), (1, 1, 0), (2**31, 1, 1)], ids=lambda s: str(s)
)
def test_sizes_of_zero_or_less_or_beyond_int_are_refused(sizes: tuple[int, int, int]) -> None:
    """The error names the size and its value."""
    with pytest.raises(ProblemSizeError, match=r"[mnk] = (0|-1|2147483648)"):
        GemmProblem(*sizes)


def test_sizes_of_numpy_do_not_overflow() -> None:
    """Sizes from an int32 array count as whole numbers of any size."""
    problem = GemmProblem(*np.array([50000] * 3, np.int32))
    assert problem.a_elements == 50000**2
    assert type(problem.m) is int


@pytest.mark.parametrize("size", [4.0, True, "4", None])
def test_what_is_no_whole_number_is_no_size(size: object) -> None:
    """Floats, bools and texts are refused with the name of the size."""
    with pytest.raises(ProblemSizeError, match="n = "):
        GemmProblem(4, size, 4)  # type: ignore[arg-type]


def test_a_leading_dimension_shorter_than_its_row_is_refused() -> None:
    """The error names the leading dimension and the row."""
    with pytest.raises(ProblemSizeError, match="ldb = 7 for rows of 8"):
        GemmProblem(4, 8, 4, ldb=7)


# ---- the check


def product(
    problem: GemmProblem, a: NDArray[np.float32], b: NDArray[np.float32]
) -> NDArray[np.float32]:
    """C as a right kernel leaves it: written where it should be, poison in the gaps."""
    flat = poisoned(problem.c_elements)
    rows = np.lib.stride_tricks.as_strided(flat, (problem.m, problem.n), (problem.ldc * 4, 4))
    total = np.zeros((problem.m, problem.n), np.float32)
    for k in range(problem.k):
        total += a[:, k : k + 1] * b[k : k + 1, :]
    rows[...] = total
    return flat


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 200), st.integers(0, 3))
def test_a_right_result_passes(m: int, n: int, k: int, gap: int) -> None:
    """Sums in FP32, in the plain order, are exact on exact data and within the bound otherwise."""
    problem = GemmProblem(m, n, k, ldc=n + gap)
    for operands in (exact_operands(problem), random_operands(problem)):
        result = Reference(problem, operands).check(product(problem, operands.a, operands.b))
        assert result.passed, result.reason
        assert result.error_over_bound <= 1


def wrong_results() -> list[tuple[str, str]]:
    """Faults of kernels, and what the verdict says of each."""
    return [
        ("nan", "nan"),
        ("inf", "inf"),
        ("unwritten", "never written"),
        ("gap", "gap between rows"),
        ("one product missing", "is "),
        ("transposed", "is "),
        ("zero", "is "),
    ]


@pytest.mark.parametrize(("fault", "said"), wrong_results())
@pytest.mark.parametrize("data", ["exact", "random"])
def test_a_wrong_result_never_passes(fault: str, said: str, data: str) -> None:
    """NaN, infinity, an unwritten element, a touched gap, a missing product: each is found."""
    problem = GemmProblem(33, 33, 40, ldc=36)
    operands = (exact_operands if data == "exact" else random_operands)(problem)
    reference = Reference(problem, operands)
    c = product(problem, operands.a, operands.b)
    at = 5 * problem.ldc + 7
    if fault in ("nan", "inf"):
        c[at] = float(fault)
    elif fault == "unwritten":
        c[at] = poisoned(1)[0]
    elif fault == "gap":
        c[at - 7 + 33] = 0.0
    elif fault == "one product missing":
        c = product(problem, np.where(np.arange(40) == 39, 0, operands.a), operands.b)
    elif fault == "transposed":
        c = product(problem, operands.b.T[:, :40].copy(), operands.a.T.copy())
    else:
        c[c.view(np.uint32) != poisoned(1).view(np.uint32)[0]] = 0.0
    result = reference.check(c)
    assert not result.passed
    assert said in result.reason.lower()
    assert result.error_over_bound == float("inf")


def rounded(matrix: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """To so many significant bits, as TF32 (11) and BF16 (8) do it."""
    drop = 24 - bits
    half, mask = 1 << (drop - 1), 0xFFFFFFFF << drop & 0xFFFFFFFF
    return (matrix.view(np.uint32) + half & mask).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("k", [2, 100, 4096, 8192, 65536])
@pytest.mark.parametrize("bits", [8, 11, 12])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_no_lower_precision_passes_for_fp32(k: int, bits: int, operand: str) -> None:
    """Rounding A or B to TF32, FP16 or BF16 is found on exact data, however long the sum."""
    problem = GemmProblem(8, 8, k)
    operands = exact_operands(problem)
    assert operands.exact
    a = rounded(operands.a, bits) if operand == "A" else operands.a
    b = rounded(operands.b, bits) if operand == "B" else operands.b
    c = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32).ravel()
    assert not Reference(problem, operands).check(c).passed


@pytest.mark.parametrize("k", [1, 1024, 1025, 2**23])
def test_exact_data_is_exact_in_any_order(k: int) -> None:
    """The sum of all magnitudes stays within 2^24, so no partial sum is ever rounded."""
    operands = exact_operands(GemmProblem(1, 1, k))
    magnitudes = np.abs(operands.a[0].astype(np.float64) * operands.b[:, 0])
    assert operands.exact
    assert magnitudes.sum() <= 2**24


def test_a_write_beside_c_is_found() -> None:
    """A float before or behind C that a kernel touched fails the check."""
    problem = GemmProblem(4, 5, 6)
    operands = exact_operands(problem)
    reference = Reference(problem, operands)
    whole = poisoned(problem.c_elements + 16)
    whole[8:-8] = product(problem, operands.a, operands.b)
    assert reference.check(whole, guard_elements=8).passed
    for at in (7, len(whole) - 8):
        touched = whole.copy()
        touched[at] = 0.0
        assert "around C" in reference.check(touched, guard_elements=8).reason


def test_a_strided_buffer_is_not_taken_for_c() -> None:
    """Every second float of a buffer is refused: its neighbours would be read instead."""
    problem = GemmProblem(2, 2, 2)
    reference = Reference(problem, exact_operands(problem))
    with pytest.raises(ArrayLayoutError, match="contiguous"):
        reference.check(poisoned(8)[::2])


def test_the_bound_is_highams_gamma() -> None:
    """gamma_K is K u / (1 - K u), and is refused where it would say nothing."""
    assert gamma(4096) == pytest.approx(4096 * 2**-24 / (1 - 4096 * 2**-24))
    with pytest.raises(ProblemSizeError, match="16777216"):
        gamma(2**24)


def test_the_check_wants_the_whole_buffer() -> None:
    """A buffer of another size or type is refused, not judged."""
    problem = GemmProblem(4, 4, 4)
    reference = Reference(problem, random_operands(problem))
    with pytest.raises(ArrayLayoutError, match="16 elements"):
        reference.check(np.zeros(15, np.float32))


# ---- a rung's arguments


def test_a_wrong_element_type_is_named(ex8: RungKernel) -> None:
    """FP64 operands are refused with the operand's name and its type."""
    a, b, c = matrices()
    with pytest.raises(DtypeError, match="B holds float64"):
        ex8.prepare_matrices(a, CudaLike((16, 32), dtype="<f8"), c)
    del b


def test_a_column_major_array_is_refused(ex8: RungKernel) -> None:
    """An array that is not row-major is refused with the remedy."""
    _, b, c = matrices()
    transposed = CudaLike((64, 16), pointer=A_AT, strides=(4, 256))
    with pytest.raises(ArrayLayoutError, match=r"A lie 256 bytes apart(.|\n)*contiguous"):
        ex8.prepare_matrices(transposed, b, c)


def test_rows_that_run_into_each_other_are_refused(ex8: RungKernel) -> None:
    """A broadcast row (stride 0) is no matrix that a kernel may write or read as one."""
    a, b, _ = matrices()
    with pytest.raises(ArrayLayoutError, match="rows of C lie 0 bytes apart"):
        ex8.prepare_matrices(a, b, CudaLike((64, 32), pointer=C_AT, strides=(0, 4)))


def test_an_output_that_overlaps_an_input_is_refused(ex8: RungKernel) -> None:
    """C in the memory of A is refused before anything is launched."""
    a, b, _ = matrices(32, 32, 32)
    with pytest.raises(OverlapError, match="C shares memory with A"):
        ex8.prepare_matrices(a, b, CudaLike((32, 32), pointer=A_AT + 512))


def test_column_ranges_of_one_buffer_do_not_overlap(ex8: RungKernel) -> None:
    """A and C may be different columns of one array; the launch gets its leading dimension."""
    b = CudaLike((16, 16), pointer=B_AT)
    a = CudaLike((64, 16), pointer=A_AT, strides=(128, 4))
    c = CudaLike((64, 16), pointer=A_AT + 64, strides=(128, 4))
    ex8.prepare_matrices(a, b, c)
    with pytest.raises(OverlapError):
        ex8.prepare_matrices(a, b, CudaLike((64, 16), pointer=A_AT + 60, strides=(128, 4)))


def test_a_read_only_output_is_refused(ex8: RungKernel) -> None:
    """C must be writable."""
    a, b, _ = matrices()
    with pytest.raises(ArrayLayoutError, match="read-only"):
        ex8.prepare_matrices(a, b, CudaLike((64, 32), pointer=C_AT, readonly=True))


@pytest.mark.parametrize(
    ("shapes", "error"),
    [
        (((64, 16), (15, 32), (64, 32)), "do not fit"),
        (((64, 16), (16, 32), (32, 64)), "do not fit"),
        (((64, 0), (0, 32), (64, 32)), r"\(64, 0\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    ex8: RungKernel, shapes: tuple[tuple[int, int], ...], error: str
) -> None:
    """Inner sizes that differ, a transposed C and a size of zero are each named."""
    a, b, c = (CudaLike(s, pointer=p) for s, p in zip(shapes, (A_AT, B_AT, C_AT), strict=True))
    with pytest.raises(ProblemSizeError, match=error):
        ex8.prepare_matrices(a, b, c)


def test_the_producers_stream_goes_along(ex8: RungKernel) -> None:
    """An array that becomes valid in a stream of its own makes the launch wait for that stream."""
    a, b, c = matrices()
    a.__cuda_array_interface__["stream"] = 77
    ex8.prepare_matrices(a, b, c).launch()
    device = ex8.device
    assert isinstance(device, FakeDevice)
    assert device.launches[-1][2].streams == frozenset({77})


def test_an_address_between_floats_is_refused(ex8: RungKernel) -> None:
    """A pointer that is no multiple of 4 would fault on the GPU; it never gets there."""
    a, b, _ = matrices()
    with pytest.raises(ArrayLayoutError, match="0x300002"):
        ex8.prepare_matrices(a, b, CudaLike((64, 32), pointer=C_AT + 2))


def test_a_vector_is_no_matrix(ex8: RungKernel) -> None:
    """One dimension is refused with the shape."""
    a, b, _ = matrices()
    with pytest.raises(ArrayLayoutError, match=r"C has shape \(64,\)"):
        ex8.prepare_matrices(a, b, CudaLike((64,), pointer=C_AT))


def launched(kernel: RungKernel) -> tuple[str, int, tuple[int, ...]]:
    """The last launch: kernel name, blocks, and the nine arguments as numbers."""
    device = kernel.device
    assert isinstance(device, FakeDevice)
    name, shape, packed = device.launches[-1]
    image = ctypes.string_at(packed.buffer, len(packed.buffer))
    return name, shape.blocks, struct.unpack("<3i4xQi4xQi4xQi", image[:60])


def test_a_launch_carries_sizes_pointers_and_leading_dimensions(ex8: RungKernel) -> None:
    """M N K, then each pointer with its leading dimension, on a grid that covers C."""
    a = CudaLike((130, 16), pointer=A_AT, strides=(80, 4))
    ex8.prepare_matrices(
        a, CudaLike((16, 300), pointer=B_AT), CudaLike((130, 300), pointer=C_AT)
    ).launch()
    name, blocks, arguments = launched(ex8)
    assert arguments == (130, 300, 16, A_AT, 20, B_AT, 300, C_AT, 300)
    assert blocks == 2 * 3
    assert "ILb1E" in name


@pytest.mark.parametrize(
    "change",
    [
        {"a": A_AT + 4},
        {"b": B_AT + 8},
        {"k": 15},
        {"n": 31},
    ],
    ids=str,
)
def test_rows_that_are_no_whole_float4s_take_the_other_instance(
    ex8: RungKernel, change: dict[str, int]
) -> None:
    """A pointer off 16 bytes, or a size that is no multiple of 4, never meets a float4 load."""
    k, n = change.get("k", 16), change.get("n", 32)
    ex8.prepare_matrices(
        CudaLike((64, k), pointer=change.get("a", A_AT)),
        CudaLike((k, n), pointer=change.get("b", B_AT)),
        CudaLike((64, n), pointer=C_AT),
    ).launch()
    assert "ILb0E" in launched(ex8)[0]


def test_flat_buffers_must_hold_the_problem(ex8: RungKernel) -> None:
    """A buffer one element short is refused with both numbers, as is an overlap."""
    device, problem = ex8.device, GemmProblem(8, 8, 8)
    a, b, c = (device.empty(64) for _ in range(3))
    ex8.prepare(problem, a, b, c)
    with pytest.raises(ArrayLayoutError, match="C has 63 elements; 8x8x8 needs 64"):
        ex8.prepare(problem, a, b, device.empty(63))
    with pytest.raises(OverlapError, match="with B"):
        ex8.prepare(problem, a, b, b)
    with pytest.raises(DtypeError, match="A holds float64"):
        ex8.prepare(problem, device.empty(64, np.float64), b, c)


def test_an_unknown_rung_lists_the_ladder() -> None:
    """The error names the rungs that there are."""
    with pytest.raises(UnknownRungError, match="ex3, ex4_16"):
        rung("ex1", "sm_90")
