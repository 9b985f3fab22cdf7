"""Code with other control words, and rungs that run with it on the emulator in strict mode."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lowgemm.binary.patch import with_code
from lowgemm.binary.sass import SassKernel
from lowgemm.emulator import Emulator, Finding, FindingKind
from lowgemm.errors import EmulationError
from lowgemm.gemm import GemmProblem, random_operands, rung
from lowgemm.isa import ControlWord
from lowgemm.studies.ladder import upload_operands

__all__ = [
    "Mutant",
    "hazards_of_a_run",
    "mutants",
    "overwrites_what_it_keeps",
    "reuse_mutants",
    "with_control",
]


def with_control(code: bytes, index: int, control: ControlWord) -> bytes:
    """A kernel's code in which one instruction has another control word."""
    changed = bytearray(code)
    low, high = struct.unpack_from("<QQ", code, 16 * index)
    struct.pack_into("<QQ", changed, 16 * index, low, control.encode(high))
    return bytes(changed)


@dataclass(frozen=True)
class Mutant:
    """One change of one control word: what, where, and the word."""

    what: str
    index: int
    control: ControlWord

    def cubin(self, cubin: bytes, name: str, code: bytes) -> bytes:
        """The cubin with it in a kernel's code."""
        return with_code(cubin, name, with_control(code, self.index, self.control))


def mutants(kernel: SassKernel, first: int, last: int) -> Iterator[Mutant]:
    """Each wait bit dropped, each stall count lowered to 1, each write scoreboard dropped."""
    for index in range(first, last + 1):
        control = kernel.instructions[index].control
        for board in control.waits_for:
            less = control.wait_mask & ~(1 << board)
            yield Mutant("wait", index, replace(control, wait_mask=less))
        if control.stall > 1:
            yield Mutant("stall", index, replace(control, stall=1))
        if control.write_scoreboard is not None:
            yield Mutant("scoreboard", index, replace(control, write_scoreboard=None))


def reuse_mutants(kernel: SassKernel, first: int, last: int) -> Iterator[Mutant]:
    """Each reuse flag cleared where it is set, and set where it is clear."""
    for index in range(first, last + 1):
        control = kernel.instructions[index].control
        for slot in range(3):
            what = "reuse flag cleared" if control.reuse >> slot & 1 else "reuse flag set"
            yield Mutant(what, index, replace(control, reuse=control.reuse ^ 1 << slot))


def overwrites_what_it_keeps(kernel: SassKernel, mutant: Mutant) -> bool:
    """Whether a reuse flag is on a register that the instruction writes itself."""
    registers = kernel.instructions[mutant.index].registers
    written = {each.number for each in registers if each.written}
    kept = [slot for bit, slot in enumerate("abc") if mutant.control.reuse >> bit & 1]
    return any(not r.written and r.slot in kept and r.number in written for r in registers)


def hazards_of_a_run(
    cubin: bytes, name: str, arch: str, kernel: str, depths: Sequence[float] = (3,)
) -> list[Finding]:
    """What strict mode finds in a rung with another cubin, at depths in tiles of K.

    Whole depths run one tile of C, others more than one in a ragged shape; the first with a hazard
    ends it.
    """
    chosen = rung(name, arch)
    for depth in depths:
        m, n = chosen.bm, chosen.bn
        if depth % 1:
            m, n = m + m // 2 + 3, n + 5
        p = GemmProblem(m, n, max(1, int(depth * chosen.bk)))
        with Emulator(arch, strict=True, findings="collect", instructions=60_000) as device:
            a, b = device.empty(p.a_elements), device.empty(p.b_elements)
            c = device.zeros(p.c_elements)
            upload_operands(p, random_operands(p), a, b)
            launch = chosen.launch(device, p, a, b, c)
            arguments = list(launch.arguments)
            if not depth:
                arguments[2] = 0  # K: no step at all, which no problem has
            # With a wrong value in it a loop may have no end.
            with suppress(EmulationError):
                device.load(cubin).kernel(kernel).launch(*arguments, **launch.geometry)
            found = [each for each in device.findings if each.kind is FindingKind.HAZARD]
        if found:
            return found
    return []
