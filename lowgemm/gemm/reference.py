"""Is C right? The FP64 reference, the componentwise error bound, and the verdict.

The bound is that of Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section
3.5, equation (3.13): for any order of summation

    |C - fl(A B)| <= gamma_K |A| |B|,   gamma_K = K u / (1 - K u),   u = 2^-24,

componentwise. A fused multiply-add rounds once where the text's model rounds twice, so the bound
holds for it as well. Products that underflow add at most K times half the smallest subnormal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowgemm.errors import ArrayLayoutError, ProblemSizeError
from lowgemm.gemm.problem import GemmProblem, Operands

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["POISON_BITS", "CheckResult", "Reference", "gamma", "poisoned"]

#: C is filled with this quiet NaN before a kernel runs; no arithmetic of a GPU produces it (CUDA's
#: own NaN is 0x7fffffff), so it marks an element that was never written.
POISON_BITS = 0x7FC0DEAD

UNIT_ROUNDOFF = 2.0**-24
_HALF_SMALLEST_SUBNORMAL = 2.0**-150


def gamma(k: int, unit_roundoff: float = UNIT_ROUNDOFF) -> float:
    """Return K u / (1 - K u).

    Raises
    ------
    ProblemSizeError
        K u reaches 1: the bound says nothing any more (K = 2^24 for FP32).
    """
    if k * unit_roundoff >= 1:
        raise ProblemSizeError(f"K = {k} has no FP32 error bound", "use K below 2^24")
    return k * unit_roundoff / (1 - k * unit_roundoff)


def poisoned(elements: int) -> NDArray[np.float32]:
    """An array of ``elements`` poisoned floats."""
    import numpy as np

    return np.full(elements, POISON_BITS, dtype=np.uint32).view(np.float32)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verdict on one C.

    ``error_over_bound`` is the largest componentwise ratio of error to bound (at most 1 where
    ``passed``; 0 for an exact result), ``max_error`` the largest absolute error. ``reason`` says
    what is wrong, with the first place, and is empty where nothing is.
    """

    passed: bool
    max_error: float
    error_over_bound: float
    reason: str = ""


class Reference:
    """What C must be for given operands: computed once, used for every kernel.

    Parameters
    ----------
    problem
        The sizes.
    operands
        A and B. Where they are exact (:func:`~lowgemm.gemm.problem.exact_operands`) C must be
        without error; else within the bound of this module.
    """

    def __init__(self, problem: GemmProblem, operands: Operands) -> None:
        import numpy as np

        a, b = operands.a.astype(np.float64), operands.b.astype(np.float64)
        self.problem = problem
        self.exact = operands.exact
        self.c = a @ b
        if operands.exact:
            self.bound = np.zeros_like(self.c)
        else:
            np.abs(a, out=a)
            np.abs(b, out=b)
            self.bound = gamma(problem.k) * (a @ b) + problem.k * _HALF_SMALLEST_SUBNORMAL

    def check(self, c: NDArray[np.float32], guard_elements: int = 0) -> CheckResult:
        """Judge a result.

        Parameters
        ----------
        c
            The flat buffer of C with its gaps, ``problem.c_elements`` floats, poisoned before the
            kernel ran.
        guard_elements
            As many poisoned floats lie before C and behind it; none of them may have changed.

        Raises
        ------
        ArrayLayoutError
            The buffer has another size or element type.
        """
        import numpy as np

        p = self.problem
        c, touched = _without_guards(c, p, guard_elements)
        if touched.any():
            return _failure(touched, "of the memory around C was overwritten")
        rows = np.lib.stride_tricks.as_strided(c, (p.m, p.n), (p.ldc * 4, 4), writeable=False)
        unwritten = rows.view(np.uint32) == POISON_BITS
        if unwritten.any():
            return _failure(unwritten, "was never written")
        if p.ldc > p.n and p.m > 1:
            gaps = np.lib.stride_tricks.as_strided(
                c[p.n :], (p.m - 1, p.ldc - p.n), (p.ldc * 4, 4), writeable=False
            )
            touched = gaps.view(np.uint32) != POISON_BITS
            if touched.any():
                return _failure(touched, "of the gap between rows was overwritten")
        error = np.abs(rows - self.c)
        # A comparison with NaN is false: what is not within the bound is wrong, NaN included.
        wrong = ~(error <= self.bound)
        if wrong.any():
            i, j = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            return _failure(
                wrong,
                f"is {rows[i, j]!s}, not {self.c[i, j]!s} (error {error[i, j]:.3g}, bound "
                f"{self.bound[i, j]:.3g})",
                max_error=float(np.max(error)),
            )
        ratio = 0.0 if self.exact else float(np.max(error / self.bound))
        return CheckResult(True, float(np.max(error)), ratio)


def _without_guards(
    c: NDArray[np.float32], p: GemmProblem, guard: int
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """C alone, and which of the floats around it are no longer poisoned."""
    import numpy as np

    if c.ndim != 1 or c.dtype != np.float32 or not c.flags.c_contiguous:
        raise ArrayLayoutError(
            f"a C of shape {c.shape}, strides {c.strides} and type {c.dtype} for {p}",
            f"hand in the flat contiguous float32 buffer of {p.c_elements} elements",
        )
    if c.size != p.c_elements + 2 * guard:
        raise ArrayLayoutError(
            f"a C of {c.size} elements for {p}",
            f"hand in {p.c_elements} elements, with {guard} before and {guard} behind them",
        )
    guards = np.stack([c[:guard], c[c.size - guard :]])
    return c[guard : c.size - guard], guards.view(np.uint32) != POISON_BITS


def _failure(where: NDArray[np.bool_], what: str, max_error: float = float("nan")) -> CheckResult:
    import numpy as np

    i, j = np.unravel_index(int(np.argmax(where)), where.shape)
    count = int(np.count_nonzero(where))
    others = f", and {count - 1} more elements" if count > 1 else ""
    return CheckResult(False, max_error, float("inf"), f"element ({i}, {j}) {what}{others}")
