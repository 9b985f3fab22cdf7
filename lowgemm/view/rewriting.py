"""Rewritten kernels: what their loops cost before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from lowgemm.view.columns import plain_table

if TYPE_CHECKING:
    from lowgemm.rewrite import LoopCost
    from lowgemm.studies.rewriting import CubinRewrite, KernelRewrite

__all__ = ["costs_markdown", "rewriting_data", "rewriting_view"]

_LEGEND = (
    "modelled cycles of one iteration, for one warp on its scheduler: issue slots, those that "
    "register banks add, those that loads from shared memory add; share: of the FFMA pipe; alone: "
    "what a warp takes with no other, with its stalls and waits"
)


def rewriting_view(rewrites: Sequence[CubinRewrite]) -> RenderableType:
    """A line for each loop before and after; below, what was left as it is and why."""
    table = plain_table()
    table.add_column("kernel", style="cyan", overflow="fold")
    table.add_column("arch")
    table.add_column("loop")
    for name in ("FFMA", "slots", "banks", "loads", "cycles", "share", "alone", "regs"):
        table.add_column(name, justify="right")
    left: list[Text] = []
    for rewrite in rewrites:
        for kernel in rewrite.kernels:
            if kernel.made is None:
                left.append(Text(f"{kernel.name} ({rewrite.arch}) stays as it is: {kernel.reason}"))
                continue
            before, after = kernel.made.before, kernel.made.after
            table.add_row(kernel.name, rewrite.arch, "before", *_cells(before), "")
            table.add_row("", "", "after", *_cells(after), str(kernel.made.registers))
            left += [Text(f"{kernel.name}: same bits on {each}") for each in kernel.verified_on]
    rows: list[RenderableType] = [table, Text(_LEGEND)] if table.row_count else []
    return Group(*rows, *left)


def _cells(cost: LoopCost) -> tuple[str, ...]:
    return (
        str(cost.ffmas),
        str(cost.issue_slots),
        str(cost.bank_cycles),
        f"{cost.load_cycles:.0f}",
        f"{cost.cycles:.0f}",
        f"{cost.ffma_share:.1%}",
        f"{cost.latency:.0f}",
    )


def costs_markdown(costs: Mapping[str, tuple[LoopCost, LoopCost | None]]) -> str:
    """The cost of a loop before and after, by architecture; None where it stays as it is."""
    head = ("arch", "loop", "FFMA", "slots", "banks", "loads", "cycles", "share", "alone")
    lines = ["| " + " | ".join(head) + " |", "|---|---" + "|--:" * (len(head) - 2) + "|"]
    for arch, (before, after) in costs.items():
        if after is None:
            lines.append(f"| {arch} | stays as it is |" + " |" * (len(head) - 2))
            continue
        for name, cost in (("before", before), ("after", after)):
            lines.append("| " + " | ".join((arch, name, *_cells(cost))) + " |")
    return "\n".join([*lines, "", f"{_LEGEND[0].upper()}{_LEGEND[1:]}."])


def rewriting_data(rewrites: Sequence[CubinRewrite]) -> list[dict[str, Any]]:
    """An object for each kernel."""
    return [_data(rewrite, kernel) for rewrite in rewrites for kernel in rewrite.kernels]


def _data(rewrite: CubinRewrite, kernel: KernelRewrite) -> dict[str, Any]:
    made = kernel.made
    common = {"kernel": kernel.name, "symbol": kernel.symbol, "arch": rewrite.arch}
    if made is None:
        return {**common, "rewritten": False, "reason": kernel.reason}
    return {
        **common,
        "rewritten": True,
        "old_loop": [made.old_loop.start, made.old_loop.stop],
        "new_loop": [made.new_loop.start, made.new_loop.stop],
        "before": {**asdict(made.before), "cycles": made.before.cycles},
        "after": {**asdict(made.after), "cycles": made.after.cycles},
        "registers": made.registers,
        "entry_moves": made.entry_moves,
        "exit_moves": made.exit_moves,
        "original_sha256": made.original,
        "verified_on": list(kernel.verified_on),
    }
