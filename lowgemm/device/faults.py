"""Which kernels may have caused an asynchronous fault.

A kernel's fault is reported by whichever driver call comes next, and by every one after it. So the
context keeps a short record of what was launched since the last successful synchronisation.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lowgemm.errors import KernelFaultError

__all__ = ["FAULT_CODES", "LaunchLog", "LaunchRecord"]

FAULT_CODES = frozenset(
    {
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
    }
)
"""Results that a running kernel causes and that stay with the context ("sticky")."""


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch: enough to name it, and nothing that keeps its arrays alive."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stream: int

    def __str__(self) -> str:
        return f"{self.kernel} (grid {self.grid}, block {self.block})"


class LaunchLog:
    """The last launches of a context that no synchronisation has confirmed.

    ``append`` is the bound method of the queue itself: a launch pays one call.
    """

    def __init__(self, length: int = 64) -> None:
        self._records: deque[LaunchRecord] = deque(maxlen=length)
        self.append = self._records.append

    def __len__(self) -> int:
        return len(self._records)

    @property
    def full(self) -> bool:
        """Whether older records may have been dropped."""
        return len(self._records) == self._records.maxlen

    @property
    def streams(self) -> frozenset[int]:
        """The handles of the streams with unconfirmed launches."""
        return frozenset(record.stream for record in tuple(self._records))

    def confirm(self, count: int, stream: int | None = None) -> None:
        """Forget those of the oldest ``count`` records that a synchronisation has confirmed.

        Parameters
        ----------
        count
            The length of the log before the synchronisation: what other threads launch during it
            stays.
        stream
            Confirm that stream's alone; None: all.
        """
        kept = []
        for _ in range(min(count, len(self._records))):
            record = self._records.popleft()
            if stream is not None and record.stream != stream:
                kept.append(record)
        self._records.extendleft(reversed(kept))

    def fault(self, code: str, text: str, call: str) -> KernelFaultError:
        """The error for a fault that ``call`` reported."""
        launches = tuple(dict.fromkeys(tuple(self._records)))
        kernels = tuple(dict.fromkeys(record.kernel for record in launches))
        sanitizer = "run the program under compute-sanitizer: it names the instruction and thread"
        if not launches:
            where = "in a kernel that was not launched through this device object"
            remedy = sanitizer
        elif len(kernels) == 1 and not self.full:
            where = f"in kernel {launches[-1]}"
            if len(launches) > 1:
                where += f", or in another of its {len(launches)} kinds of launch"
            remedy = sanitizer
        else:
            listed = "; ".join(str(record) for record in launches[-8:])
            kind = "the last" if self.full else "those"
            where = f"in one of {kind} launched since the last synchronisation: {listed}"
            remedy = f"set CUDA_LAUNCH_BLOCKING=1 to pin it, or {sanitizer}"
        return KernelFaultError(
            f"{code} ({text}) {where}; reported by {call}",
            f"{remedy}. The process must be restarted: its GPU context is lost",
            code=code,
            call=call,
            kernels=kernels,
        )
