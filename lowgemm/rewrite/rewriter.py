"""Rewrite the hot loop of a kernel: taken apart, ordered anew, put behind the kernel's code."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.binary.cubin import read_cubin
from lowgemm.binary.flow import Loop
from lowgemm.binary.patch import with_grown_code
from lowgemm.binary.sass import read_sass
from lowgemm.emulator.program import compile_program
from lowgemm.errors import RewriteError
from lowgemm.rewrite.allocate import allocate
from lowgemm.rewrite.body import hot_loop, take_apart
from lowgemm.rewrite.emit import Word, branch, emit_body, emit_moves, pack, with_control
from lowgemm.rewrite.hazards import find_hazards
from lowgemm.rewrite.schedule import plan_schedule
from lowgemm.rewrite.scoreboards import assign_scoreboards, mend
from lowgemm.rewrite.tile import find_tile
from lowgemm.rewrite.walk import plan_walk

__all__ = ["Rewritten", "rewrite_kernel"]

_NOP: Word = (0x7918, 0x000FC00000000000)
_ALIGNMENT = 128
_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A cubin with another hot loop.

    ``loop`` is where the old loop lay, ``start`` and ``end`` where the new one lies.
    """

    cubin: bytes
    kernel: str
    loop: Loop
    start: int
    end: int


def rewrite_kernel(cubin: bytes, name: str, *, most: int = 253, lead: int = 32) -> Rewritten:
    """Rewrite a kernel's hot loop.

    Raises
    ------
    RewriteError
        The loop is left as it is; the error says why.
    """
    kernel = next(each for each in read_sass(cubin) if each.name == name)
    program = compile_program(kernel)
    loop = hot_loop(program)
    body = take_apart(program, loop)
    tile = find_tile(body)
    walk = plan_walk(tile)
    schedule = plan_schedule(body, tile, walk, lead)
    allocation = allocate(body, tile, walk, schedule, most)
    boards, mask = assign_scoreboards(body, tile, walk, schedule)
    arch = kernel.arch
    words = emit_body(schedule, allocation, boards)
    code = read_cubin(cubin).code[name].content
    entry = emit_moves(allocation.entry, allocation.spare[0], mask)
    exits = emit_moves(allocation.exit, allocation.spare[1], mask)
    begin = len(code)
    head = [*entry]
    if not head:
        head = [with_wait(_NOP, mask)]
    while (begin + 16 * len(head)) % _ALIGNMENT:
        head.append(with_wait(_NOP, 0))
    start = begin + 16 * len(head)
    end = start + 16 * len(words)
    closing = body.items[-1].instruction
    words[-1] = branch(end - 16, start, arch, closing)
    if not exits:
        exits = [with_wait(_NOP, mask)]
    tail = [*exits, branch(end + 16 * len(exits), loop.end, arch)]
    new = bytearray(code)
    new[loop.start : loop.end] = pack([_NOP] * (len(body.items)))
    new[loop.start : loop.start + 16] = pack([branch(loop.start, begin, arch)])
    everything = [*head, *words, *tail]
    count = max(allocation.count, kernel.signature.registers or 0)
    for _ in range(_ROUNDS):
        made = with_grown_code(cubin, name, bytes(new) + pack(everything), count)
        hazards = find_hazards(next(e for e in read_sass(made) if e.name == name))
        if not hazards:
            return Rewritten(made, name, loop, start, end)
        if not mend(everything, begin, hazards, arch):
            break
    raise RewriteError(f"hazards are left: {hazards[0]}", "report this loop")


def with_wait(word: Word, mask: int) -> Word:
    from lowgemm.isa import ControlWord

    return with_control(word, ControlWord(1, True, None, None, mask, 0))
