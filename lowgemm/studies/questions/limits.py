"""Questions on what binds: bottlenecks, stall reasons, bank conflicts, registers and occupancy."""

from __future__ import annotations

from collections.abc import Callable

from lowgemm.errors import ArgumentValueError, SourceNotFoundError
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.model import estimate_registers, judge_tile, occupancy_report
from lowgemm.studies.counters import LadderCounters, ladder_counters
from lowgemm.studies.modelling import rung_config
from lowgemm.studies.questions.answer import Answer, AnswerTable, Subject

__all__ = ["bank_conflicts", "bottlenecks", "registers_and_occupancy", "stall_reasons"]

_FLOAT = 4
_SIZE = 4096
_NONE = "–"
#: Nsight Compute's names of stall reasons, and what a warp waits for.
_REASONS = {
    "long_scoreboard": "a load from global or local memory",
    "short_scoreboard": "a load from shared memory, or another result of the MIO",
    "mio_throttle": "room in the queue of the MIO, which shared memory's accesses go through",
    "lg_throttle": "room in the queue of global and local accesses",
    "barrier": "the other warps of its block",
    "dispatch_stall": "the dispatcher: register banks, pipes that are taken",
    "not_selected": "its turn: another warp of the sub-partition issued",
}


def _counters() -> LadderCounters | None:
    try:
        return ladder_counters()
    except SourceNotFoundError:
        return None


def bottlenecks(subject: Subject) -> Answer:
    """What binds each rung."""
    counters = _counters()
    rows = []
    for name, rung in subject.rungs.items():
        build = subject.build(name).kernel(rung.instance(aligned=True))
        try:
            verdict = judge_tile(
                rung_config(rung),
                subject.machine,
                *(_SIZE, _SIZE, _SIZE),
                registers=build.resources.registers,
                shared_bytes=build.resources.shared_bytes,
            )
            binding = verdict.binding.level if rung.bk > 1 else "L1 and its load path"
            share = f"{100 * verdict.share_of_peak:.0f} %" if rung.bk > 1 else _NONE
        except ArgumentValueError:
            binding, share = "does not fit", _NONE
        rows.append((name, rung.idea, binding, share, _worst(counters, name)))
    source = "modelled; the last column " + (counters.provenance if counters else "not there")
    return Answer(
        2,
        "What is the bottleneck of each step: naive, shared-memory tile, register tile, pipeline?",
        subject.gpu.name,
        (
            "Naive: each multiply-add asks for two operands, so the load path binds. A tile in "
            "shared memory moves the traffic there: shared memory's bandwidth and the barriers "
            "bind. A tile in registers relieves shared memory: now latency shows, as nothing is "
            "fetched ahead. With prefetch and double buffer the FFMA pipe remains, and on "
            f"{subject.machine.ffma_lanes_per_sm} lanes an SM what shares its issue slots and "
            "register banks.",
        ),
        (
            AnswerTable(
                ("rung", "idea", "binds (model)", "of peak (model)", "largest stall, H200"),
                tuple(rows),
                source,
            ),
        ),
    )


def _worst(counters: LadderCounters | None, rung: str) -> str:
    if counters is None:
        return _NONE
    # A warp that is not selected could issue: that is no wait.
    reasons = (reason for reason in _REASONS if reason != "not_selected")
    waits = ((reason, counters.stall(rung, reason)) for reason in reasons)
    known = [(value, reason) for reason, value in waits if value is not None]
    value, reason = max(known, default=(0.0, _NONE))
    return f"{reason} {value:.2f}"


def stall_reasons(subject: Subject) -> Answer:
    """What stall reasons mean, and which rung shows them."""
    counters = _counters()
    rows = []
    for reason, meaning in _REASONS.items():
        found = sorted(
            (
                (value, rung)
                for rung in (counters.rungs if counters else ())
                if counters and (value := counters.stall(rung, reason)) is not None
            ),
            reverse=True,
        )
        most = ", ".join(f"{rung} {value:.2f}" for value, rung in found[:2]) or _NONE
        least = f"{found[-1][1]} {found[-1][0]:.2f}" if found else _NONE
        rows.append((reason.replace("_", " "), meaning, most, least))
    return Answer(
        6,
        "What do Long Scoreboard, Short Scoreboard and MIO Throttle mean, and what helps?",
        subject.gpu.name,
        (
            "A figure is the warps that wait for that reason for each instruction issued. Long "
            "scoreboard: fetch earlier (prefetch, more stages), or reuse more. MIO throttle: fewer "
            "and wider shared-memory accesses, no bank conflicts. Short scoreboard: read the next "
            "step's fragments while this one computes. Barrier: two blocks an SM, or a second "
            "buffer. Dispatch: the FFMA loop itself, its register banks. A wait only costs when no "
            "other warp can issue: ex9's loop waits little and still loses at dispatch.",
        ),
        (
            AnswerTable(
                ("reason", "a warp waits for", "most", "least"),
                tuple(rows),
                counters.provenance if counters else "not there",
            ),
        ),
    )


# ---- bank conflicts

_LAYOUTS: dict[str, Callable[[int, int], int]] = {
    "plain, pitch 32": lambda row, k: row * 32 + k,
    "padded, pitch 33": lambda row, k: row * 33 + k,
    "transposed": lambda row, k: k * 32 + row,
    "swizzled, k xor row": lambda row, k: row * 32 + (k ^ row),
}


def bank_conflicts(subject: Subject) -> Answer:
    """When bank conflicts happen, and three cures."""
    rows = []
    for name, place in _LAYOUTS.items():
        column = wavefronts([_FLOAT * place(lane, 0) for lane in range(32)])
        row = wavefronts([_FLOAT * place(0, lane) for lane in range(32)], store=True)
        extra = {"padded, pitch 33": "128 B, and no float4"}.get(name, "none")
        rows.append((name, str(column), str(row), extra))
    return Answer(
        7,
        "When do shared-memory bank conflicts happen, and what are three cures?",
        subject.gpu.name,
        (
            "Shared memory has 32 banks of 4 bytes, each good for one word a cycle. Lanes of a "
            "warp that want different words of one bank take turns; lanes that want the same word "
            "share it. 8-byte accesses go by half warps, 16-byte accesses by eight lanes.",
            "Cures: pad the rows by a word; store the tile transposed, so that what is read "
            "together lies together (the store must then spread over the banks, or the conflict "
            "only moves); or place column k of row m at k xor m. `lowgemm lab bank-conflicts` "
            "measures all of them.",
        ),
        (
            AnswerTable(
                ("a 32 x 32 tile", "a column read", "a row stored", "extra memory"),
                tuple(rows),
                "modelled: wavefronts of a warp's access, by the measured rules",
            ),
        ),
    )


def registers_and_occupancy(subject: Subject) -> Answer:
    """How registers and occupancy follow from TM, TN, BM and BN."""
    cc = subject.machine.capability
    rows = []
    for name, rung in subject.rungs.items():
        used = subject.build(name).kernel(rung.instance(aligned=True)).resources
        report = occupancy_report(
            cc,
            threads=rung.threads,
            registers=used.registers,
            shared_bytes=used.shared_bytes,
            barriers=used.barriers,
        )
        step = next(step for step in report.steps if step.resource == "registers")
        rows.append(
            (
                name,
                f"{rung.tm} x {rung.tn}",
                str(estimate_registers(rung.tm, rung.tn)),
                str(used.registers),
                f"{report.blocks_per_sm} ({report.limiter})",
                f"{100 * report.occupancy:.1f} %",
                _NONE if step.less_for_next is None else str(step.less_for_next),
            )
        )
    example = occupancy_report(cc, threads=256, registers=80)
    return Answer(
        9,
        "How do registers and occupancy follow from TM, TN, BM and BN?",
        subject.gpu.name,
        (
            "Registers: TM + TN for the fragments and TM TN accumulators; 8 x 8 makes 80. The "
            "compiler adds a second set of fragments, what is on its way from global memory, and "
            "addresses.",
            "Blocks per SM: the least of what registers, shared memory and threads allow. By hand "
            "65536 / (registers x threads); the hardware hands registers out by the warp, in units "
            "of 256, from the quarter of the file that the warp's sub-partition owns, and shared "
            f"memory with 1 KiB more a block. 80 registers and 256 threads: "
            f"{example.blocks_per_sm} blocks, {100 * example.occupancy:.1f} % on "
            f"{subject.machine.name}.",
        ),
        (
            AnswerTable(
                (
                    "rung",
                    "thread tile",
                    "registers (hand)",
                    "registers (compiler)",
                    "blocks per SM (limiter)",
                    "occupancy",
                    "registers less for one block more",
                ),
                tuple(rows),
                f"machine code for {subject.arch}; occupancy by the driver's rules",
            ),
        ),
    )
