"""A kernel whose loop of FFMAs gets other registers: what it holds, and the loop rewritten."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowgemm.binary.instruction import Instruction
from lowgemm.binary.patch import with_code, with_registers
from lowgemm.binary.sass import SassKernel, read_sass
from lowgemm.errors import CubinError
from lowgemm.hardware.register_banks import BANKS
from lowgemm.isa import ControlWord

__all__ = ["Bank", "FfmaLoop", "Role", "Step", "read_loop"]

#: What a register is for, such as ``("sum", 3)``.
Role = tuple[str, int]
#: The register bank, 0 or 1, that a role wants.
Bank = Callable[[Role], int]

# A branch or a store may read what the last FFMA wrote five cycles after it at the earliest.
_LAST_STALL = 6
# No fixed-latency instruction of another kind takes longer than this to give its result.
_LONGEST_LATENCY = 20
_MOST_STALL = 11  # with the stay bit


@dataclass(frozen=True, slots=True)
class Step:
    """One FFMA by roles: ``total += a * b``."""

    total: Role
    a: Role
    b: Role


@dataclass(frozen=True, slots=True)
class FfmaLoop:
    """A kernel with one loop of FFMAs, between loads and stores of all its registers.

    ``registers`` are those that are loaded before the loop and stored behind it, by their place in
    memory (in units of ``pitch_bytes``); they alone are used by the loop's FFMAs. ``places`` are
    the indices of these in the kernel.
    """

    kernel: SassKernel
    registers: Mapping[int, int]
    places: tuple[int, ...]

    def assign(self, roles: Iterable[Role], bank: Bank) -> dict[Role, int]:
        """A register for each role, in the bank that it wants.

        Raises
        ------
        CubinError
            The compiler did not use enough registers of a bank.
        """
        free = {b: [r for r in sorted(self.registers.values()) if r % BANKS == b] for b in (0, 1)}
        chosen = {}
        for role in dict.fromkeys(roles):
            if not free[bank(role)]:
                raise CubinError(
                    f"{self.kernel.name} has no register left in bank {bank(role)} for {role}",
                    "use fewer accumulators, or give the kernel more registers",
                )
            chosen[role] = free[bank(role)].pop(0)
        return chosen

    def rewrite(
        self, cubin: bytes, steps: Sequence[Step], bank: Bank, *, kept: str, stall: int, stay: bool
    ) -> bytes:
        """The cubin with other operands, stall and stay bits in the loop's FFMAs.

        Parameters
        ----------
        cubin
            The cubin that the kernel was read from.
        steps
            The FFMAs in their order, as many as the loop has.
        bank
            Where the registers shall lie.
        kept
            The operand slots, of ``a`` and ``b``, that get ``.reuse`` where the very next
            instruction is an FFMA that reads the same register there.
        stall
            Cycles from one FFMA to the warp's next instruction. They grow where the distance
            between two other instructions would become shorter than their latency may be.
        stay
            Whether the scheduler stays on the warp.

        Raises
        ------
        CubinError, EncodingError
            There are more or fewer steps than FFMAs, or a register cannot be had.
        """
        if len(steps) != len(self.places):
            raise CubinError(
                f"{len(steps)} FFMAs for the {len(self.places)} of {self.kernel.name}",
                "give as many as the loop has",
            )
        roles = [role for step in steps for role in (step.a, step.b, step.total)]
        registers = self.assign(roles, bank)
        numbers = {
            place: {
                "d": registers[step.total],
                "a": registers[step.a],
                "b": registers[step.b],
                "c": registers[step.total],
            }
            for step, place in zip(steps, self.places, strict=True)
        }
        stalls = self._stalls(stall)
        code = list(self.kernel.instructions)
        for place in self.places:
            control = ControlWord(
                stall=stalls[place],
                stay=stay,
                write_scoreboard=None,
                read_scoreboard=None,
                # Any register may come first now.
                wait_mask=self._wait_for_loads() if place == self.places[0] else 0,
                reuse=_reuse(numbers[place], numbers.get(place + 1), kept),
            )
            code[place] = with_registers(code[place], numbers[place], control, self.kernel.arch)
        packed = b"".join(struct.pack("<QQ", i.low, i.high) for i in code)
        return with_code(cubin, self.kernel.name, packed)

    def results(self, inputs: NDArray[np.float32], rounds: int) -> NDArray[np.float32]:
        """What the kernel stores, computed from its machine code.

        No FFMA may have a sum as a factor: then each round adds the same, and whole numbers below
        2^24 come out exact.

        Parameters
        ----------
        inputs
            What is loaded, a row for each place in memory.
        rounds
            How often the loop runs.
        """
        values = {number: inputs[place] for place, number in self.registers.items()}
        zeros = np.zeros_like(inputs[0])
        added: dict[int, NDArray[np.float32]] = {}
        for place in self.places:
            registers = self.kernel.instructions[place].registers
            numbers = {register.slot: register.number for register in registers}
            product = values[numbers["a"]] * values[numbers["b"]]
            added[numbers["d"]] = added.get(numbers["c"], zeros) + product
        stored = (number for _, number in sorted(self.registers.items()))
        return np.stack([values[n] + np.float32(rounds) * added.get(n, zeros) for n in stored])

    def _wait_for_loads(self) -> int:
        """The wait mask for every load and for what the loop's FFMAs waited for."""
        mask = 0
        for instruction in self.kernel.instructions[: self.places[0]]:
            if instruction.name == "LDG" and instruction.control.write_scoreboard is not None:
                mask |= 1 << instruction.control.write_scoreboard
        for place in self.places:
            mask |= self.kernel.instructions[place].control.wait_mask
        return mask

    def _stalls(self, stall: int) -> dict[int, int]:
        """The stall of each FFMA, by its place."""
        stalls = dict.fromkeys(self.places, stall)
        for run in _runs(self.places):
            before = sum(self.kernel.instructions[place].control.stall for place in run)
            lacking = min(before, _LONGEST_LATENCY) - stall * len(run)
            for place in reversed(run):
                more = max(0, min(lacking, _MOST_STALL - stalls[place]))
                stalls[place] += more
                lacking -= more
        stalls[self.places[-1]] = max(_LAST_STALL, stalls[self.places[-1]])
        return stalls


def read_loop(cubin: bytes, kernel: str, pitch_bytes: int) -> FfmaLoop:
    """Find a kernel's FFMAs and the registers that are loaded before and stored behind them.

    Parameters
    ----------
    cubin
        The cubin.
    kernel
        The kernel's (mangled) name.
    pitch_bytes
        The distance in memory between what is loaded into two registers.

    Raises
    ------
    CubinError
        The kernel is not built so.
    """
    found = next((k for k in read_sass(cubin) if k.name == kernel), None)
    code = found.instructions if found else ()
    places = tuple(n for n, instruction in enumerate(code) if instruction.name == "FFMA")
    if found is None or not places:
        raise _unsuited(kernel, "it has no FFMA")
    loads = _moved(code[: places[0]], "LDG", "d", pitch_bytes)
    stores = _moved(code[places[-1] :], "STG", "b", pitch_bytes)
    if loads != stores or len(set(loads.values())) != len(loads):
        raise _unsuited(kernel, "what it stores lies in other registers than what it loaded")
    between = [i for n, i in enumerate(code[: places[-1]]) if n > places[0] and i.name != "FFMA"]
    taken = {r.number for i in between for r in i.registers if not r.uniform}
    if taken & set(loads.values()):
        raise _unsuited(kernel, "instructions between its FFMAs use their registers")
    return FfmaLoop(found, loads, places)


def _unsuited(kernel: str, what: str) -> CubinError:
    return CubinError(
        f"the registers of {kernel} cannot be chosen: {what}",
        "its loop must hold FFMAs on registers that are loaded before and stored behind it",
    )


def _moved(code: Sequence[Instruction], name: str, slot: str, pitch_bytes: int) -> dict[int, int]:
    """The registers that loads fill or stores empty, by their place in memory."""
    moved = {}
    for instruction in code:
        register = instruction.register(slot)
        if instruction.name == name and register is not None:
            moved[_offset_bytes(instruction) // pitch_bytes] = register.number
    return moved


def _offset_bytes(instruction: Instruction) -> int:
    """The signed 24 bits that LDG and STG add to their address (bits 40-63)."""
    bits = instruction.low >> 40
    return bits - (1 << 24) if bits >> 23 else bits


def _reuse(numbers: Mapping[str, int], following: Mapping[str, int] | None, kept: str) -> int:
    """The reuse bits of an FFMA in front of another one, or of another instruction (None)."""
    if following is None:
        return 0
    return sum(1 << "ab".index(slot) for slot in kept if numbers[slot] == following[slot])


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Places cut where other instructions lie between."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] + 1 == place:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs
