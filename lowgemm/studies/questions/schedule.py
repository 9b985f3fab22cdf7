"""Questions on time: how loads, multiply-adds and stores overlap, and what cp.async changes."""

from __future__ import annotations

from collections.abc import Sequence

from lowgemm.analysis import count_in
from lowgemm.binary.instruction import Instruction
from lowgemm.model import in_flight, occupancy_report
from lowgemm.studies.questions.answer import Answer, AnswerTable, Subject

__all__ = ["async_copies", "overlap"]

_COLUMNS = 64
_LANES_OF_PICTURE = ("LDG", "LDGSTS", "LDS", "FFMA", "STS", "BAR")
_SHADES = " ▁▂▃▄▅▆▇█"
_NONE = "–"


def overlap(subject: Subject) -> Answer:
    """How the loads, multiply-adds and stores of a double-buffered loop overlap."""
    name = "ex9"
    loop = subject.hot_loop(name)
    loads, stores = _places(loop, "LDG"), _places(loop, "STS")
    cycles = _cycles_between(subject, name, loop, loads[0], stores[0])
    latency = subject.machine.dram_latency_cycles
    ffma = sum(i.name == "FFMA" for i in loop[loads[0] : stores[0]])
    return Answer(
        5,
        "How do LDG, FFMA and STS overlap in a double-buffered loop?",
        subject.gpu.name,
        (
            f"The picture is the hot loop of {name} as it stands in the machine code for "
            f"{subject.arch}: {len(loop)} instructions from left to right, "
            f"{-(-len(loop) // _COLUMNS)} a column; the darker, the more of them are of that kind. "
            "The loads of the next k-tile are issued at the beginning of a tile's multiply-adds; "
            "their values are stored to the other buffer at its end, and one barrier follows.",
            f"Between the first LDG and the first STS stand {ffma} FFMAs. With the warps that an "
            f"SM holds, that is {cycles:,.0f} cycles of its sub-partitions; "
            f"{_hidden(cycles, latency, subject.machine.name)}.",
        ),
        (),
        _picture(loop),
    )


def _hidden(cycles: float, latency: float | None, gpu: str) -> str:
    """Whether that many cycles hide a load; nothing is said where its latency is not known."""
    if latency is None:
        return (
            f"whether they hide a load from DRAM is not known, for nobody has published how long "
            f"one takes on {gpu}"
        )
    kept = "hidden" if cycles >= latency else "not hidden by one block alone"
    return f"a load from DRAM takes {latency:g} cycles on {gpu}: {kept}"


def _places(loop: Sequence[Instruction], name: str) -> list[int]:
    return [index for index, instruction in enumerate(loop) if instruction.name == name]


def _cycles_between(
    subject: Subject, name: str, loop: Sequence[Instruction], first: int, last: int
) -> float:
    """Cycles in which a sub-partition issues that part of the loop for all its warps."""
    cc = subject.machine.capability
    rung = subject.rungs[name]
    used = subject.build(name).kernel(rung.instance(aligned=True)).resources
    held = occupancy_report(
        cc, threads=rung.threads, registers=used.registers, shared_bytes=used.shared_bytes
    )
    pipe = cc.threads_per_warp * cc.partitions_per_sm / cc.ffma_lanes_per_sm
    part = loop[first:last]
    ffma = sum(instruction.name == "FFMA" for instruction in part)
    issue = max(pipe * ffma, float(len(part)))
    return issue * held.warps_per_sm / cc.partitions_per_sm


def _picture(loop: Sequence[Instruction]) -> str:
    """Density of each kind of instruction along the loop."""
    size = -(-len(loop) // _COLUMNS)
    parts = [loop[start : start + size] for start in range(0, len(loop), size)]
    lines = []
    for name in _LANES_OF_PICTURE:
        counts = [sum(instruction.name == name for instruction in part) for part in parts]
        if not any(counts):
            continue
        shades = "".join(_shade(count, size) for count in counts)
        lines.append(f"{name:>7} |{shades}| {sum(counts)}")
    return "\n".join(lines)


def _shade(count: int, size: int) -> str:
    """Nothing for none; else at least the lightest shade."""
    return _SHADES[0 if not count else max(1, count * (len(_SHADES) - 1) // size)]


def async_copies(subject: Subject) -> Answer:
    """What cp.async changes against load and store."""
    rows = []
    for name in ("ex9", "ex10"):
        report = subject.report(name)
        rung = subject.rungs[name]
        hot = report.hot
        mix = hot.mix if hot else {}
        counts = [count_in(mix, wanted) for wanted in ("LDG", "STS", "LDGSTS")]
        ffma = mix.get("FFMA", 0)
        per_step = len(mix) and ffma / (rung.tm * rung.tn)
        rows.append(
            (
                name,
                str(report.registers),
                str(report.registers_live or _NONE),
                f"{report.shared_bytes:,}",
                *(f"{count / per_step:.2f}" if per_step else _NONE for count in counts),
            )
        )
    needed = [item for item in in_flight(subject.machine) if item.level == "DRAM"]
    little = (
        f"{needed[0].bytes_per_sm / 1024:.1f} KiB an SM must be under way to keep DRAM busy "
        f"({needed[0].latency_cycles:g} cycles x {needed[0].bytes_per_cycle_per_sm:.1f} bytes)."
        if needed
        else "How much must be under way is not known: nobody has published this GPU's latency."
    )
    return Answer(
        10,
        "What does cp.async (LDGSTS) change against LDG and STS?",
        subject.gpu.name,
        (
            "One instruction copies from global to shared memory; the values never pass through "
            "registers, and groups are waited for one by one, so several k-tiles can be under way. "
            f"{little}",
            "What a 16-byte copy cannot do is transpose. In ex10 A lies in shared memory as it "
            "does in global memory, and a thread holds four steps of its rows at once: the "
            "registers that the copy frees go there. Copies save registers only where the tile may "
            "lie as it comes, or is copied in pieces of 4 bytes; they always save the stores.",
        ),
        (
            AnswerTable(
                (
                    "rung",
                    "registers",
                    "live",
                    "shared B",
                    "LDG per k-step",
                    "STS per k-step",
                    "LDGSTS per k-step",
                ),
                tuple(rows),
                f"machine code for {subject.arch}",
            ),
        ),
    )
