"""One call of SGEMM on paper: sizes, strides, how each operand can be copied."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from lowgemm.errors import ProblemSizeError
from lowgemm.gemm.problem import GemmProblem

__all__ = ["Kind", "Layout", "SgemmCall"]

_MAX_INT = 2**31 - 1
_VECTOR = 4  # floats in 16 bytes


class Kind(enum.Enum):
    """How a kernel copies an operand.

    ``K``: neighbours along k are neighbours in memory; ``X``: those along m (of A) or n (of B).
    ``16`` bytes at a time need aligned rows, and whole fours along x; ``4`` bytes work always, with
    any two strides as ``ANY``. The names are those of ``cu/sgemm.cuh``.
    """

    K16 = "K16"
    K4 = "K4"
    X16 = "X16"
    X4 = "X4"
    ANY = "ANY"

    @property
    def along_k(self) -> bool:
        """Whether it is contiguous along k."""
        return self in (Kind.K16, Kind.K4)


@dataclass(frozen=True, slots=True)
class Layout:
    """A matrix's strides in elements: from row to row, column to column, matrix to matrix.

    ``aligned`` says that it begins on a multiple of 16 bytes.
    """

    row: int
    column: int
    batch: int = 0
    aligned: bool = True

    @property
    def transposed(self) -> Layout:
        """The same memory, with rows and columns swapped."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class SgemmCall:
    """C = alpha A B + beta C on ``batches`` matrices: A is m x k, B k x n, C m x n.

    Parameters
    ----------
    m, n, k
        At least 1.
    a, b, c
        The strides.
    batches
        How many of each there are.

    Raises
    ------
    ProblemSizeError
        A size below 1 or beyond 2^31 - 1.
    """

    m: int
    n: int
    k: int
    a: Layout
    b: Layout
    c: Layout
    batches: int = 1

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batches"):
            size = getattr(self, name)
            if not 1 <= size <= _MAX_INT:
                raise ProblemSizeError(
                    f"{name} = {size} in an SGEMM of {self.m} x {self.n} x {self.k}",
                    "every size must be between 1 and 2^31 - 1",
                )

    @classmethod
    def of(
        cls,
        problem: GemmProblem,
        *,
        transpose_a: bool = False,
        transpose_b: bool = False,
        batches: int = 1,
    ) -> SgemmCall:
        """The call for matrices whose rows (transposed: columns) follow each other, all aligned.

        The leading dimensions of the problem count where nothing is transposed.
        """
        p = problem
        a = Layout(1, p.m) if transpose_a else Layout(p.lda, 1)
        b = Layout(1, p.k) if transpose_b else Layout(p.ldb, 1)
        if batches > 1:
            a = replace(a, batch=p.m * p.k, aligned=not p.m * p.k % _VECTOR)
            b = replace(b, batch=p.k * p.n, aligned=not p.k * p.n % _VECTOR)
        return cls(p.m, p.n, p.k, a, b, Layout(p.ldc, 1, p.m * p.n), batches)

    @property
    def canonical(self) -> SgemmCall:
        """The same call with rows of C contiguous and, where one size is 1, that one as n.

        C^T = B^T A^T: A and B change places.
        """
        narrow = self.m == 1 and self.n > 1
        column_major = self.c.column != 1 and self.c.row == 1 and self.n > 1
        return self.transposed if narrow or column_major else self

    @property
    def transposed(self) -> SgemmCall:
        """C^T = B^T A^T in the same memory."""
        return replace(
            self, m=self.n, n=self.m, a=self.b.transposed, b=self.a.transposed,
            c=self.c.transposed,
        )  # fmt: skip

    @property
    def a_kind(self) -> Kind:
        """How A can be copied."""
        return _kind(self.a.row, self.a.column, self.m, self.k, self.a, self.batches)

    @property
    def b_kind(self) -> Kind:
        """How B can be copied."""
        return _kind(self.b.column, self.b.row, self.n, self.k, self.b, self.batches)

    @property
    def has_vector_c(self) -> bool:
        """Whether four neighbours in a row of C are an aligned float4."""
        c = self.c
        return c.column == 1 and c.aligned and not (self.n | c.row | c.batch) % _VECTOR

    @property
    def flop(self) -> int:
        """Floating-point operations: a multiplication and an addition for each of m n k."""
        return 2 * self.m * self.n * self.k * self.batches

    @property
    def bytes_moved(self) -> int:
        """Bytes of A, B and C, each once."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return 4 * elements * self.batches

    @property
    def key(self) -> str:
        """What a measurement of it is filed under: sizes and kinds, e.g. ``"64x64x64 K16 X16"``."""
        batches = f" b{self.batches}" if self.batches > 1 else ""
        return f"{self.m}x{self.n}x{self.k}{batches} {self.a_kind.value} {self.b_kind.value}"


def _kind(x: int, k: int, extent_x: int, extent_k: int, layout: Layout, batches: int) -> Kind:
    """From the strides along x and k; what has an extent of 1 is contiguous along the other."""
    aligned = layout.aligned and (batches == 1 or not layout.batch % _VECTOR)
    if x == 1 or extent_x == 1:
        if aligned and not extent_x % _VECTOR and (extent_k == 1 or not k % _VECTOR):
            return Kind.X16
        if extent_x > 1 and (k != 1 or extent_k == 1):
            return Kind.X4
    if k == 1 or extent_k == 1:
        return Kind.K16 if aligned and (extent_x == 1 or not x % _VECTOR) else Kind.K4
    return Kind.X4 if extent_x == 1 else Kind.ANY
