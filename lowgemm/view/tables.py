"""Small tables: the toolchain, builds, verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowgemm.compiler import Build, CompiledKernel
from lowgemm.studies.doctor import Finding
from lowgemm.view.columns import plain_table

__all__ = ["builds_table", "doctor_view", "verdict_table"]


def doctor_view(findings: Sequence[Finding]) -> RenderableType:
    """What was found, a line each; below, what was not, what for, and how to get it."""
    table = plain_table()
    for name in ("component", "", "version"):
        table.add_column(name, no_wrap=True)
    table.add_column("where", overflow="fold")
    missing = []
    for item in findings:
        if item.found:
            table.add_row(item.component, Text("found", "green"), item.version, item.where)
            continue
        mark = Text("missing", "bold red" if item.required else "yellow")
        table.add_row(item.component, mark, "", f"for {item.needed_for}")
        if item.remedy:
            missing.append(f"{item.component}: {item.where}\n  remedy: {item.remedy}")
    return Group(table, Text("\n".join(missing))) if missing else table


def builds_table(rows: Sequence[tuple[Build, CompiledKernel]]) -> RenderableType:
    """Kernels and their resources, a line each.

    All of it is with the functions that a kernel calls; a stack that nobody knows is a ``?``.
    """
    table = plain_table()
    table.add_column("kernel", style="cyan", overflow="fold")
    table.add_column("arch")
    for name in ("regs", "shared", "stack", "spill st", "spill ld", "barriers"):
        table.add_column(name, justify="right")
    for build, kernel in rows:
        r, whole = kernel.resources, kernel.signature
        stack = "?" if whole.stack_bytes is None else str(whole.stack_bytes)
        table.add_row(
            kernel.display_name,
            str(build.arch),
            *(str(whole.registers), str(whole.shared_bytes), stack),
            *(str(r.spill_store_bytes), str(r.spill_load_bytes), str(r.barriers)),
        )
    return Group(table, Text("shared memory, stack, spill stores and spill loads in bytes"))


def verdict_table(results: Sequence[tuple[str, int, int, str]]) -> Table:
    """Rungs with their passed and tried checks and the first failure."""
    table = plain_table()
    table.add_column("rung", style="cyan")
    table.add_column("passed", justify="right")
    table.add_column("first failure", overflow="fold")
    for rung, passed, tried, failure in results:
        count = f"{passed} of {tried}"
        table.add_row(rung, Text(count, style="green" if passed == tried else "bold red"), failure)
    return table
