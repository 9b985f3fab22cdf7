"""One GEMM: C = A B, row-major, FP32, with leading dimensions; and operands to test it with."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowgemm.errors import ProblemSizeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GemmProblem", "Operands", "exact_operands", "random_operands"]

_MAX_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """The sizes of C = A B: A is m x k, B is k x n, C is m x n, all row-major FP32.

    Parameters
    ----------
    m, n, k
        At least 1 each.
    lda, ldb, ldc
        Leading dimensions: elements from one row to the next, at least the row's length. 0 (the
        default) stands for rows without a gap.

    Raises
    ------
    ProblemSizeError
        A size below 1, a leading dimension shorter than its row, or one beyond 2^31 - 1.

    Examples
    --------
    >>> GemmProblem(128, 64, 32)
    GemmProblem(m=128, n=64, k=32, lda=32, ldb=64, ldc=64)
    """

    m: int
    n: int
    k: int
    lda: int = 0
    ldb: int = 0
    ldc: int = 0

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "lda", "ldb", "ldc"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        for name in ("m", "n", "k"):
            size = getattr(self, name)
            if not 1 <= size <= _MAX_INT:
                raise ProblemSizeError(
                    f"{name} = {size} in a GEMM of {self.m} x {self.n} x {self.k}",
                    "every size must be between 1 and 2^31 - 1",
                )
        for name, row in (("lda", self.k), ("ldb", self.n), ("ldc", self.n)):
            ld = getattr(self, name) or row
            if not row <= ld <= _MAX_INT:
                raise ProblemSizeError(
                    f"{name} = {ld} for rows of {row} elements",
                    "a leading dimension is at least the row's length and at most 2^31 - 1",
                )
            object.__setattr__(self, name, ld)

    @classmethod
    def parse(cls, text: str) -> GemmProblem:
        """Read ``"4096"`` (a cube) or ``"MxNxK"``.

        Raises
        ------
        ProblemSizeError
            The text is neither.
        """
        match = re.fullmatch(
            r"\s*(\d{1,10})(?:\s*[x,]\s*(\d{1,10})\s*[x,]\s*(\d{1,10}))?\s*", text.lower()
        )
        if match is None:
            raise ProblemSizeError(f"{text!r} is no problem size", "write 4096 or 4096x2048x512")
        m, n, k = (int(part) if part else int(match[1]) for part in match.groups())
        return cls(m, n, k)

    @property
    def flop(self) -> int:
        """Floating-point operations: a multiplication and an addition for each of m n k."""
        return 2 * self.m * self.n * self.k

    @property
    def a_elements(self) -> int:
        """Elements from the first to the last of A, gaps included."""
        return (self.m - 1) * self.lda + self.k

    @property
    def b_elements(self) -> int:
        """Elements from the first to the last of B, gaps included."""
        return (self.k - 1) * self.ldb + self.n

    @property
    def c_elements(self) -> int:
        """Elements from the first to the last of C, gaps included."""
        return (self.m - 1) * self.ldc + self.n

    def allows_float4(self) -> bool:
        """Whether every row of A and B is whole aligned float4s, given 16-byte aligned bases."""
        return not (self.k % 4 or self.n % 4 or self.lda % 4 or self.ldb % 4)

    def __str__(self) -> str:
        gaps = [
            f"{name}={getattr(self, name)}"
            for name, row in (("lda", self.k), ("ldb", self.n), ("ldc", self.n))
            if getattr(self, name) != row
        ]
        return " ".join([f"{self.m}x{self.n}x{self.k}", *gaps])


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """A (m x k) and B (k x n) without gaps, and whether C = A B is exact in FP32."""

    a: NDArray[np.float32]
    b: NDArray[np.float32]
    exact: bool


def random_operands(problem: GemmProblem, seed: int = 0) -> Operands:
    """Uniform numbers from [-1, 1): for timing, and for the check against the error bound."""
    import numpy as np

    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, (problem.m, problem.k)).astype(np.float32)
    b = rng.uniform(-1, 1, (problem.k, problem.n)).astype(np.float32)
    return Operands(a, b, exact=False)


def exact_operands(problem: GemmProblem, seed: int = 0) -> Operands:
    """Whole numbers whose products and partial sums are all exact in FP32, in any order.

    Everything is -1 or 1, but for at most 1024 steps along k: in every second of those a column of
    A, in the others a row of B, holds odd numbers of 13 bits. All sums stay below 2^24, so a right
    kernel gives C without any error. One product too many, too few or from the wrong place shows,
    however long the sum; and so does any rounding of A or B to fewer than 13 bits: TF32 keeps 11,
    FP16 11, BF16 8.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    a = _signs(rng, (problem.m, problem.k))
    b = _signs(rng, (problem.k, problem.n))
    wide = rng.permutation(problem.k)[:_WIDE_STEPS]
    a[:, wide[0::2]] *= _odd(rng, (problem.m, len(wide[0::2])))
    b[wide[1::2], :] *= _odd(rng, (len(wide[1::2]), problem.n))
    # 1024 x 8191 from the wide steps and 1 from each of the others: within 2^24 up to K = 2^23.
    return Operands(a, b, exact=problem.k <= 2**23)


_WIDE_STEPS = 1024


def _signs(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float32]:
    signs: NDArray[np.float32] = rng.integers(0, 2, shape).astype("float32") * 2 - 1
    return signs


def _odd(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Odd numbers between 2^12 and 2^13: both the highest and the lowest of 13 bits are set."""
    odd: NDArray[np.float32] = (rng.integers(2**11, 2**12, shape) * 2 + 1).astype("float32")
    return odd


def _whole(name: str, value: object) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ProblemSizeError(
            f"{name} = {value!r} is no whole number", "give the sizes of a GEMM as integers"
        ) from None
