"""C on a device, between guards: a kernel that writes beside it is found."""

from __future__ import annotations

from lowgemm.gemm.problem import GemmProblem
from lowgemm.gemm.reference import CheckResult, Reference, poisoned
from lowgemm.runtime import Array, Device

__all__ = ["GuardedOutput"]

# A kernel without its guard along M writes at most a tile's rows too far; ours have 128.
_GUARD_ROWS = 128
_MOST_GUARD_ELEMENTS = 1 << 22
_ALIGNMENT_ELEMENTS = 64


class GuardedOutput:
    """The buffer of C with poisoned floats before and behind it.

    Parameters
    ----------
    device
        Where it lies.
    problem
        The sizes. The guards hold a tile's rows, up to 16 MiB each.
    """

    def __init__(self, device: Device, problem: GemmProblem) -> None:
        guard = min(_GUARD_ROWS * problem.ldc + _GUARD_ROWS, _MOST_GUARD_ELEMENTS)
        self._guard = -(-guard // _ALIGNMENT_ELEMENTS) * _ALIGNMENT_ELEMENTS
        self._whole = device.empty(problem.c_elements + 2 * self._guard)
        self.c: Array = self._whole.view(self._guard, problem.c_elements)

    def poison(self) -> None:
        """Mark everything as not written."""
        self._whole.upload(poisoned(self._whole.size))

    def judge(self, reference: Reference) -> CheckResult:
        """Compare C with what it must be, and see that nothing around it was written."""
        return reference.check(self._whole.download(), self._guard)
