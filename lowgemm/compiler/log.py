"""Read the log that ``ptxas -v`` writes: registers, shared memory, stack and spills per kernel."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

__all__ = ["CompileLog", "KernelResources", "LogEntry", "Spills", "parse_log"]

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
    the device functions that it calls, not bytes moved. ``constant_bytes`` is the sum of the
    constant banks where ptxas tells it (up to sm_89), else 0.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    barriers: int
    constant_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Spills:
    """Bytes that a function stores to and loads from local memory for want of registers."""

    store_bytes: int = 0
    load_bytes: int = 0


@dataclass(slots=True)
class LogEntry:
    """What the log says of a kernel alone, and of the functions that it tells right after it."""

    registers: int | None = None
    shared_bytes: int = 0
    stack_bytes: int = 0
    barriers: int = 0
    constant_bytes: int = 0
    spills: Spills = Spills()
    functions: dict[str, Spills] = field(default_factory=dict)


@dataclass(slots=True)
class CompileLog:
    """A log's kernels and, wherever they stand in it, all its device functions."""

    kernels: dict[str, LogEntry] = field(default_factory=dict)
    functions: dict[str, Spills] = field(default_factory=dict)

    def resources(
        self, kernel: str, separate: Collection[str], called: Iterable[str]
    ) -> KernelResources | None:
        """What a kernel uses with the functions that it calls; None if the log lacks it.

        Parameters
        ----------
        kernel
            Its mangled name.
        separate
            The functions with sections of their own, which kernels share: ptxas tells them anywhere
            in the log. Others it tells after the kernel into whose section it puts them.
        called
            Those of them that the kernel may call.
        """
        entry = self.kernels.get(kernel)
        if entry is None or entry.registers is None:
            return None
        beside = (spills for name, spills in entry.functions.items() if name not in separate)
        spills = [entry.spills, *beside]
        spills += [self.functions[name] for name in called if name in self.functions]
        return KernelResources(
            entry.registers,
            entry.shared_bytes,
            entry.stack_bytes,
            sum(item.store_bytes for item in spills),
            sum(item.load_bytes for item in spills),
            entry.barriers,
            entry.constant_bytes,
        )


def parse_log(log: str) -> CompileLog:
    """Read a log of ``ptxas -v``, by mangled name.

    Lines that are not understood are passed over.
    """
    found = CompileLog()
    entry = LogEntry()  # what precedes the first kernel belongs to none
    kernel, function = "", ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            kernel = function = match[1]
            entry = found.kernels[kernel] = LogEntry()
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _STACK.search(line):
            spills = Spills(int(match[2]), int(match[3]))
            if function == kernel:
                entry.stack_bytes, entry.spills = int(match[1]), spills
            else:
                entry.functions[function] = found.functions[function] = spills
        elif (match := _USED.search(line)) and entry.registers is None:
            _read_used(entry, int(match[1]), match[2])
    return found


def _read_used(entry: LogEntry, registers: int, rest: str) -> None:
    entry.registers = registers
    if match := re.search(r"used (\d+) barriers", rest):
        entry.barriers = int(match[1])
    if match := re.search(r"(\d+) bytes smem", rest):
        entry.shared_bytes = int(match[1])
    entry.constant_bytes = sum(int(amount) for amount in _CONSTANT.findall(rest))
