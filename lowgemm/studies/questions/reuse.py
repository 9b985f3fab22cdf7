"""Questions on tiles and reuse: intensity, the steps of a kernel, outer product, warp tiles."""

from __future__ import annotations

from lowgemm.analysis import count_in
from lowgemm.hardware.shared_memory import wavefronts
from lowgemm.model import (
    estimate_registers,
    register_tile_requirement,
    ridge_fma_per_byte,
    shared_tile_requirement,
    tile_flop_per_byte,
)
from lowgemm.studies.questions.answer import Answer, AnswerTable, Subject

__all__ = ["intensity", "outer_product", "steps_of_a_kernel", "warp_tiles"]

_FLOAT = 4


def intensity(subject: Subject) -> Answer:
    """How tiling takes the intensity from 0.25 to 32 FLOP/byte."""
    machine = subject.machine
    ridge = 2 * ridge_fma_per_byte(machine)
    needed = shared_tile_requirement(machine)
    tiles = dict.fromkeys((r.bm, r.bn) if r.bk > 1 else (1, 1) for r in subject.rungs.values())
    rows = []
    for bm, bn in sorted(tiles):
        names = [r.name for r in subject.rungs.values() if _loaded(r.bm, r.bn, r.bk) == (bm, bn)]
        value = tile_flop_per_byte(bm, bn)
        bound = "DRAM, without multicast" if bm < needed.min_tile else "not DRAM"
        rows.append((f"{bm} x {bn}", ", ".join(names), f"{value:g}", f"{value / ridge:.2f}", bound))
    return Answer(
        1,
        "How does tiling take a GEMM's arithmetic intensity from 0.25 to 32 FLOP/byte?",
        subject.gpu.name,
        (
            "Without a tile each output reads a row of A and a column of B: 2K floats, 8K bytes, "
            "for 2K FLOP, so 0.25 FLOP/byte. A block of BM x BN outputs loads BK (BM + BN) floats "
            "for 2 BM BN BK FLOP: BM BN / (2 (BM + BN)) FLOP/byte. BK drops out; only the sides "
            f"count. 128 x 128 gives {tile_flop_per_byte(128, 128):g}, 128 times as much.",
            f"On {machine.name} an SM gets {machine.dram_bytes_per_cycle_per_sm:.1f} bytes a cycle "
            f"from DRAM and its lanes eat {machine.need_bytes_per_cycle_per_sm}: each loaded "
            f"element must be used {needed.amplification:.1f} times, a square tile of "
            f"{needed.min_tile} ({needed.next_power_of_two} in practice). The ridge is at "
            f"{ridge:.1f} FLOP/byte. What blocks have in common L2 hands out once more, so that a "
            "smaller tile can do.",
        ),
        (
            AnswerTable(
                ("block tile", "rungs", "FLOP/byte", "of the ridge", "bound"),
                tuple(rows),
                "modelled",
            ),
        ),
    )


def _loaded(bm: int, bn: int, bk: int) -> tuple[int, int]:
    """The tile that shared memory holds; the naive kernel has none."""
    return (bm, bn) if bk > 1 else (1, 1)


def steps_of_a_kernel(subject: Subject) -> Answer:
    """The steps of a kernel with tiles in shared memory and registers."""
    machine = subject.machine
    shared, registers = shared_tile_requirement(machine), register_tile_requirement(machine)
    rung, report = subject.rungs["ex7"], subject.report("ex7")
    mix = report.mix
    counted = (
        ("global to shared", "LDG.128, STS", count_in(mix, "LDG"), count_in(mix, "STS")),
        ("barrier: the tile is there", "BAR", count_in(mix, "BAR"), None),
        ("shared to registers", "LDS.128", count_in(mix, "LDS"), None),
        ("outer products", "FFMA", count_in(mix, "FFMA"), None),
        ("registers to global", "STG", count_in(mix, "STG"), None),
    )
    return Answer(
        3,
        "What are the steps of an SGEMM with tiles in shared memory and registers?",
        subject.gpu.name,
        (
            f"1. Choose the tiles. On {machine.name} the block tile wants "
            f"{shared.next_power_of_two} x {shared.next_power_of_two} to hide DRAM, the thread "
            f"tile {registers.next_power_of_two} x {registers.next_power_of_two} to hide shared "
            "memory.",
            "2. All threads of the block carry a BM x BK piece of A and a BK x BN piece of B from "
            "global to shared memory; A is laid so that a thread's rows are neighbours. "
            "3. Barrier. 4. For each of the BK steps a thread reads TM values of A and TN of B "
            "into registers, as float4, and does the TM x TN multiply-adds. 5. Barrier, next "
            "k-tile; after the last one the accumulators go to C.",
            f"ex7 is that and no more: {rung.bm} x {rung.bn} x {rung.bk}, "
            f"{rung.tm} x {rung.tn} a thread, {rung.threads} threads. Its machine code on "
            f"{subject.arch}:",
        ),
        (
            AnswerTable(
                ("step", "instructions", "in the kernel"),
                tuple(
                    (step, names, f"{n} + {more}" if more is not None else str(n))
                    for step, names, n, more in counted
                ),
                "machine code",
            ),
        ),
    )


def outer_product(subject: Subject) -> Answer:
    """Why an outer product reads shared memory less than an inner product."""
    machine = subject.machine
    needed = register_tile_requirement(machine)
    lanes = machine.ffma_lanes_per_sm
    rows = []
    for side in (1, 2, 4, 8, 16):
        loads = 2 / side
        bytes_per_cycle = lanes * loads * _FLOAT
        share = min(1.0, machine.shared_bytes_per_cycle_per_sm / bytes_per_cycle)
        rows.append(
            (
                f"{side} x {side}",
                f"{loads:g}",
                f"{bytes_per_cycle:g}",
                f"{100 * share:.0f} %",
                str(estimate_registers(side, side)),
            )
        )
    return Answer(
        4,
        "Why does an outer product use shared memory better than an inner product?",
        subject.gpu.name,
        (
            "An inner product reads two values for each multiply-add. An outer product takes TM "
            "values of a column of A and TN of a row of B and does TM TN multiply-adds with them: "
            "(TM + TN) / (TM TN) reads for each.",
            f"{lanes} lanes at full rate and shared memory's "
            f"{machine.shared_bytes_per_cycle_per_sm:g} bytes a cycle: {machine.name} needs a "
            f"thread tile of {needed.next_power_of_two} x {needed.next_power_of_two} when every "
            "lane reads for itself. Lanes of a warp that read the same word share it, which is why "
            "smaller tiles come further than the table says.",
        ),
        (
            AnswerTable(
                (
                    "thread tile",
                    "reads per FMA",
                    "bytes per cycle and SM at full rate",
                    "FMA rate that shared memory allows",
                    "registers (estimate)",
                ),
                tuple(rows),
                "modelled",
            ),
        ),
    )


# ---- warp tiles

_WARP_SHAPES = ((1, 32), (2, 16), (4, 8), (8, 4), (32, 1))
_TM, _TN = 8, 8
_PITCH = 128 * _FLOAT


def warp_tiles(subject: Subject) -> Answer:
    """Why a warp tile of 4 x 8 lanes is better than one of 1 x 32."""
    rows = []
    for down, across in _WARP_SHAPES:
        a, b = _fragment_wavefronts(down, across, z_order=False)
        values = down * _TM + across * _TN
        rows.append(
            (f"{down} x {across}", str(values), f"{_TM * _TN * 32 / values:.1f}", f"{a} + {b}")
        )
    a, b = _fragment_wavefronts(4, 8, z_order=True)
    values = 4 * _TM + 8 * _TN
    rows.append(('4 x 8, lanes in "z" order', str(values), f"{2048 / values:.1f}", f"{a} + {b}"))
    ffma_cycles = _TM * _TN * 32 / subject.machine.ffma_lanes_per_sm
    shapes = {sum(_fragment_wavefronts(*shape, z_order=False)) for shape in _WARP_SHAPES}
    spread = f"{min(shapes)}" if len(shapes) == 1 else f"{min(shapes)} to {max(shapes)}"
    return Answer(
        8,
        "Why is a warp tile of 4 x 8 lanes better than one of 1 x 32?",
        subject.gpu.name,
        (
            f"Each lane has a thread tile of {_TM} x {_TN}. A warp of R x C lanes reads R x {_TM} "
            f"values of A and C x {_TN} of B for {_TM * _TN * 32} multiply-adds: the sum is least "
            "when the warp tile is nearly square.",
            "Shared memory hands a word to all lanes that ask for it, but passes 16-byte reads in "
            "groups of eight lanes; only if each lane n reads what lane n^1 reads, or each what "
            'n^2 reads, do groups of sixteen pass. In "z" order (lane bit 0 moves along N alone, '
            "bit 1 along M alone) both A and B are read so. The multiply-adds of a step take "
            f"{ffma_cycles:g} cycles of the SM for a warp; the wavefronts must stay below.",
            f"So on chips that pass words this way the shape alone decides little: {spread} "
            f'wavefronts for every one of them, {a + b} in "z" order. What the square shape does '
            "save is distinct values, and with them the sides of the block tile that a few warps "
            "can cover.",
        ),
        (
            AnswerTable(
                ("lanes", "values per step", "FMA per value", "wavefronts for A + B"),
                tuple(rows),
                "modelled, by the measured rules of shared memory",
            ),
        ),
    )


def _fragment_wavefronts(down: int, across: int, *, z_order: bool) -> tuple[int, int]:
    """Wavefronts in which a warp reads its operands of one step as float4."""
    places = [_lane_place(lane, across, z_order) for lane in range(32)]
    a = sum(
        wavefronts([_quad(row, quad, down) for row, _ in places], 16) for quad in range(_TM // 4)
    )
    b = sum(
        wavefronts([_quad(column, quad, across) for _, column in places], 16)
        for quad in range(_TN // 4)
    )
    return a, b


def _lane_place(lane: int, across: int, z_order: bool) -> tuple[int, int]:
    if not z_order:
        return lane // across, lane % across
    # Bits 0, 2, 4 of the lane count columns, 1 and 3 rows: 4 x 8.
    column = (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4)
    row = (lane >> 1 & 1) | (lane >> 2 & 2)
    return row, column


def _quad(index: int, quad: int, lanes: int) -> int:
    """Address of a lane's four neighbours: quads of one number lie side by side over the lanes."""
    return (quad * lanes + index) * 4 * _FLOAT
