"""The register file's banks: when an instruction's operands cannot be read in one cycle."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["BANKS", "operand_cycles"]

#: Register Rn lies in bank n mod 2; each bank gives one 32-lane row per cycle (sm_75 and later).
BANKS = 2


def operand_cycles(fresh: Iterable[int]) -> int:
    """Cycles to read the operands of one instruction that a full-rate pipe issues every cycle.

    Parameters
    ----------
    fresh
        The numbers of the registers that must be read: without those that the operand collector
        kept (``.reuse``), and without RZ, immediates, constants and uniform registers, which cost
        nothing. A register in two slots is read once.

    Returns
    -------
    int
        The most reads of one bank, at least 1.

    Notes
    -----
    Measured with loops of FFMA on an H200 (sm_90): the rule gives their rates to about 3 %.
    """
    reads = [0] * BANKS
    for number in set(fresh):
        reads[number % BANKS] += 1
    return max(1, *reads)
