"""Read the log that ``ptxas -v`` writes: registers, shared memory, stack and spills per kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KernelResources", "parse_log"]

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What ptxas says that a kernel uses.

    ``shared_bytes`` is static and per block, without what the system reserves; ``stack_bytes`` is
    the kernel's own stack frame per thread. Spill bytes are static counts, of the kernel and of
    the device functions compiled with it, not bytes moved. In relocatable code (``-rdc=true``)
    several kernels may share a device function: ptxas tells it once, and it counts for the kernel
    after which it is told. ``constant_bytes`` is the sum of the
    constant banks where ptxas tells it (up to sm_89), else 0.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int
    constant_bytes: int = 0


@dataclass(slots=True)
class _Draft:
    registers: int | None = None
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    barriers: int = 0
    constant_bytes: int = 0

    def finished(self) -> KernelResources | None:
        if self.registers is None:
            return None
        return KernelResources(
            self.registers,
            self.shared_bytes,
            self.stack_bytes,
            self.spill_store_bytes,
            self.spill_load_bytes,
            self.barriers,
            self.constant_bytes,
        )


def parse_log(log: str) -> dict[str, KernelResources]:
    """Resources per kernel, by mangled name, from a log of ``ptxas -v``.

    Lines that are not understood are passed over; a kernel whose register line is missing is not
    in the result.
    """
    drafts: dict[str, _Draft] = {}
    kernel, function = "", ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            kernel = function = match[1]
            drafts[kernel] = _Draft()
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif kernel and (match := _STACK.search(line)):
            draft = drafts[kernel]
            # ptxas lists device functions that it did not inline after the kernel that calls them.
            if function == kernel:
                draft.stack_bytes = int(match[1])
            draft.spill_store_bytes += int(match[2])
            draft.spill_load_bytes += int(match[3])
        elif kernel and (match := _USED.search(line)) and drafts[kernel].registers is None:
            _read_used(drafts[kernel], int(match[1]), match[2])
    finished = {name: draft.finished() for name, draft in drafts.items()}
    return {name: resources for name, resources in finished.items() if resources is not None}


def _read_used(draft: _Draft, registers: int, rest: str) -> None:
    draft.registers = registers
    if match := re.search(r"used (\d+) barriers", rest):
        draft.barriers = int(match[1])
    if match := re.search(r"(\d+) bytes smem", rest):
        draft.shared_bytes = int(match[1])
    draft.constant_bytes = sum(int(amount) for amount in _CONSTANT.findall(rest))
