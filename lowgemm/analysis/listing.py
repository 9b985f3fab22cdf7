"""A kernel instruction by instruction: labels, the loops around each, and its source line."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.analysis.sass import LoopReport, analyse_kernel
from lowgemm.analysis.texts import SourceTexts
from lowgemm.binary import function_name
from lowgemm.binary.flow import sass_flow
from lowgemm.binary.instruction import Instruction
from lowgemm.binary.sass import SassKernel

__all__ = ["KernelListing", "ListedInstruction", "list_kernel"]


@dataclass(frozen=True, slots=True)
class ListedInstruction:
    """An instruction and where it stands.

    ``label`` is the name by which branches call its address, ``loop`` the index of the innermost
    loop around it, ``depth`` the number of loops around it. ``source`` is its line's text as the
    file has it now. ``is_padding`` tells of NOPs that no path reaches.
    """

    instruction: Instruction
    label: str
    loop: int | None
    depth: int
    is_hot: bool
    source: str | None
    is_padding: bool


@dataclass(frozen=True, slots=True)
class KernelListing:
    """One kernel's instructions and its loops."""

    kernel: str
    arch: str
    loops: tuple[LoopReport, ...]
    hot_loop: int | None
    instructions: tuple[ListedInstruction, ...]


def list_kernel(kernel: SassKernel, display_name: str | None = None) -> KernelListing:
    """List a kernel.

    Parameters
    ----------
    kernel
        Its machine code, with nvdisasm's text, lines and labels.
    display_name
        Its name for people; otherwise made from the mangled name.
    """
    report = analyse_kernel(kernel)
    flow = sass_flow(kernel)
    inner = {block: loop for loop in flow.loops for block in loop.own_blocks}
    texts = SourceTexts()
    listed = []
    for block in flow.blocks:
        loop = inner.get(block.index)
        reached = flow.reachable(block.index)
        for item in kernel.instructions[block.first : block.last + 1]:
            listed.append(
                ListedInstruction(
                    instruction=item,
                    label=kernel.labels.get(item.address, ""),
                    loop=None if loop is None else loop.index,
                    depth=0 if loop is None else loop.depth,
                    is_hot=loop is not None and loop.index == report.hot_loop,
                    source=texts.line(item.line),
                    is_padding=item.name == "NOP" and not reached,
                )
            )
    name = display_name or function_name(kernel.name)
    return KernelListing(name, str(kernel.arch), report.loops, report.hot_loop, tuple(listed))
