"""The committed pages on machine code: an index and a page a rung, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lowgemm.analysis import LoopReport, SassReport, count_in
from lowgemm.analysis.difference import per_thousand
from lowgemm.gemm import Rung
from lowgemm.hardware import Architecture, capability
from lowgemm.report import LadderReport

__all__ = ["index_page", "rung_page"]

_NONE = "–"
_STORY_ARCH = "sm_90"
_EXECUTED = (
    "Counted on the emulator, which runs this machine code without a GPU; at 512 x 512 x 512 its",
    "counts equal Nsight Compute's on an H200, instruction by instruction (but for how often a",
    "block asks while it waits for another). Wavefronts are passes through shared memory, sectors",
    "32-byte pieces of global memory; each beside the least.",
)
_HEADINGS = ("Idea", "Loop", "Tile", "Shared", "Registers", "Expected", "Needs")


def index_page(
    reports: Mapping[str, Mapping[str, SassReport]], rungs: Sequence[Rung], nvrtc: str
) -> str:
    """Every rung on every architecture.

    Parameters
    ----------
    reports
        By rung's name, then architecture: the instance for aligned rows.
    rungs
        In the order of the ladder.
    nvrtc
        The compiler's version.
    """
    archs = list(next(iter(reports.values())))
    lines = [
        "# What the compiler made of the ladder",
        "",
        f"NVRTC {nvrtc}; written by `make sass`. The kernels for aligned rows. What the steps gain",
        "on a GPU, and why, is told in [README.md](README.md).",
        "",
    ]
    for title, cell in (
        ("Registers (most in use at once)", _registers),
        ("Instructions of the hot loop (FFMA share)", _hot_share),
        ("Modelled issue slots that do FFMAs", _slots),
    ):
        lines += [f"## {title}", "", "| rung | " + " | ".join(archs) + " |"]
        lines += ["|---" + "|--:" * len(archs) + "|"]
        for rung in rungs:
            cells = [cell(reports[rung.name][arch]) for arch in archs]
            lines.append(f"| [{rung.name}]({rung.name}.md) | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [
        "FFMA / (instructions + cycles of register-bank conflicts) of the hot loop, on chips whose",
        "128 lanes per SM make an FFMA take every issue slot. With 64 lanes (sm_80) it takes every",
        "second one, and the others are free for the rest.",
        "",
    ]
    return "\n".join(lines)


def _registers(report: SassReport) -> str:
    live = _NONE if report.registers_live is None else str(report.registers_live)
    return f"{report.registers} ({live})"


def _hot_share(report: SassReport) -> str:
    hot = report.hot
    return _NONE if hot is None else f"{hot.instructions} ({100 * hot.ffma_share:.1f} %)"


def _slots(report: SassReport) -> str:
    hot = report.hot
    arch = Architecture.parse(report.arch)
    full_rate = capability(arch.major, arch.minor).ffma_lanes_per_sm == 128
    # FFMA2 takes a slot for two multiply-adds: its share of the slots says nothing of the pipe.
    if hot is None or not hot.instructions or not full_rate or "FFMA2" in hot.mix:
        return _NONE
    return f"{100 * hot.mix.get('FFMA', 0) / (hot.instructions + hot.conflict_cycles):.0f} %"


def rung_page(
    rung: Rung,
    reports: Mapping[str, SassReport],
    before: tuple[Rung, SassReport] | None,
    timings: Mapping[str, LadderReport],
    note: str,
    executed: str,
    rewriting: str = "",
) -> str:
    """One rung: its idea, its loop on each architecture, what changed, what was measured.

    Parameters
    ----------
    rung
        The rung.
    reports
        By architecture: the instance for aligned rows.
    before
        The rung before it and its report on sm_90, where there is one.
    timings
        Measured ladders by the name of their file.
    note
        Why the change matters, written by hand.
    executed
        What the emulator counted, as Markdown; see :func:`lowgemm.view.executed.executed_markdown`.
    rewriting
        What a rewritten loop costs: :func:`lowgemm.view.rewriting.costs_markdown`.
    """
    lines = [f"# {rung.name}: {rung.idea}", "", f"Source: [{rung.source}](../cu/{rung.source})", ""]
    lines += [f"**{name}.** {text}  " for name, text in _header(rung.path)]
    lines += ["", "## The hot loop", "", *_loop_table(rung, reports), ""]
    lines += _per_k_step(rung, reports[_STORY_ARCH])
    lines += [
        "Bank cycles are modelled: what register-bank conflicts cost an iteration beyond one issue",
        "slot an FFMA. The rule was measured on sm_90; elsewhere it is carried over.",
        "",
    ]
    if rewriting:
        lines += ["## Rewritten", "", rewriting, ""]
    if before is not None:
        lines += _difference(rung, reports[_STORY_ARCH], *before)
    lines += ["## Executed", "", *_EXECUTED, "", executed.strip(), ""]
    lines += ["## Why it matters", "", note.strip(), ""]
    lines += _measured(rung, timings)
    return "\n".join(lines)


def _header(path: Path) -> list[tuple[str, str]]:
    """The named paragraphs of a kernel's opening comment."""
    found: list[tuple[str, list[str]]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        text = line.removeprefix("//")
        head = re.match(r" (\w+)\s+(.*)", text)
        if head and head[1] in _HEADINGS:
            found.append((head[1], [head[2]]))
        elif found and text.startswith("           "):
            found[-1][1].append(text.strip())
        elif found:
            break
    return [(name, " ".join(parts)) for name, parts in found]


def _per_k_step(rung: Rung, report: SassReport) -> list[str]:
    """What one step along k takes, where an iteration's number of steps is known."""
    if rung.k_steps is None or report.hot is None:
        return []
    counts = {
        "FFMA": count_in(report.hot.mix, "FFMA"),
        "LDS": count_in(report.hot.mix, "LDS"),
        "other instructions": report.hot.instructions
        - count_in(report.hot.mix, "FFMA")
        - count_in(report.hot.mix, "LDS"),
        "bank cycles": report.hot.conflict_cycles,
    }
    per_step = ", ".join(f"{count / rung.k_steps:.1f} {name}" for name, count in counts.items())
    steps = f"An iteration computes {rung.k_steps} steps along k; each takes, on {_STORY_ARCH},"
    return [f"{steps} {per_step}.", ""]


_COLUMNS = ("instr.", "FFMA", "LDS.128", "LDS.64", "LDS.32", "LDG", "LDGSTS", "STS", "BAR")


def _loop_table(rung: Rung, reports: Mapping[str, SassReport]) -> list[str]:
    head = ("arch", "registers", "live", "shared B", *_COLUMNS, "FFMA share", "bank cycles")
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    for arch, report in reports.items():
        live = _NONE if report.registers_live is None else str(report.registers_live)
        cells = [arch, str(report.registers), live, str(report.shared_bytes + rung.shared_bytes)]
        cells += [_NONE] * (len(head) - 4) if report.hot is None else _loop_cells(report.hot)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _loop_cells(loop: LoopReport) -> list[str]:
    counts = [str(count_in(loop.mix, name)) for name in _COLUMNS[1:]]
    share = f"{100 * loop.ffma_share:.1f} %"
    return [str(loop.instructions), *counts, share, str(loop.conflict_cycles)]


def _difference(rung: Rung, report: SassReport, before: Rung, earlier: SassReport) -> list[str]:
    lines = [f"## Against {before.name}, on {_STORY_ARCH}", ""]
    if report.hot is None or earlier.hot is None:
        return lines
    mine, theirs = (per_thousand(r.hot.mix, "FFMA") for r in (report, earlier) if r.hot)
    # By name where the change is equal: a set has no order of its own.
    names = sorted({*mine, *theirs}, key=lambda n: (-abs(mine.get(n, 0.0) - theirs.get(n, 0.0)), n))
    lines += [
        "Instructions of the hot loop per 1000 FFMAs, the largest changes first:",
        "",
        f"| | {before.name} | {rung.name} |",
        "|---|--:|--:|",
    ]
    for name in [name for name in names if name != "FFMA"][:8]:
        lines.append(f"| {name} | {theirs.get(name, 0.0):.1f} | {mine.get(name, 0.0):.1f} |")
    conflicts = f"{_conflicts(earlier.hot):.1f} | {_conflicts(report.hot):.1f}"
    lines += [
        f"| bank cycles (modelled) | {conflicts} |",
        "",
        f"Registers {earlier.registers} to {report.registers}, shared memory "
        f"{earlier.shared_bytes + before.shared_bytes} to "
        f"{report.shared_bytes + rung.shared_bytes} bytes.",
        "",
    ]
    return lines


def _conflicts(loop: LoopReport) -> float:
    ffma = loop.mix.get("FFMA", 0)
    return 1000 * loop.conflict_cycles / ffma if ffma else 0.0


def _measured(rung: Rung, timings: Mapping[str, LadderReport]) -> list[str]:
    lines = [
        "## Measured",
        "",
        "| GPU | problem | ms | TFLOP/s | / ex3 | / cuBLAS | NVRTC | date |",
    ]
    lines += ["|---|---|--:|--:|--:|--:|---|---|"]
    rows = 0
    for name, report in timings.items():
        row = next((row for row in report.rows if row.rung == rung.name), None)
        p = report.provenance
        if row is None or p is None or row.time_us is None or row.tflops is None:
            continue
        rows += 1
        ratio = [
            _NONE if value is None else f"{value:.2f}"
            for value in (row.ratio_to_ex3, row.ratio_to_cublas)
        ]
        lines.append(
            f"| [{p.gpu}](timings/{name}) | {row.problem} | {row.time_us / 1e3:.3f} | "
            f"{row.tflops:.1f} | {ratio[0]} | {ratio[1]} | {p.nvrtc} | {p.date} |"
        )
    return [*lines, ""] if rows else ["## Measured", "", "Not yet.", ""]
