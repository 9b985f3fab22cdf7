"""What a kernel executes, from a run on the emulator: by kernel, by loop, by instruction."""

from __future__ import annotations

from dataclasses import dataclass

from lowgemm.analysis.listing import KernelListing, list_kernel
from lowgemm.analysis.sass import LoopReport
from lowgemm.binary.sass import disassemble
from lowgemm.compiler import Build, CompiledKernel
from lowgemm.emulator import Counts, Emulator, EmulatorKernel, ExecutedTotals, Finding
from lowgemm.gemm import GemmProblem, Rung, compile_rung
from lowgemm.hardware import Architecture
from lowgemm.runtime.workload import Workload
from lowgemm.studies.ladder import EMULATED_PROBLEM, emulate_rung

__all__ = ["ExecutedLoop", "Execution", "execute_build", "execute_rung"]


@dataclass(frozen=True, slots=True)
class ExecutedLoop:
    """A loop and what was executed of it, without the loops inside; ``loop`` is None: the rest."""

    loop: LoopReport | None
    is_hot: bool
    trips_per_warp: float
    executed: ExecutedTotals


@dataclass(frozen=True, slots=True)
class Execution:
    """One launch of a kernel on the emulator.

    ``warps`` is how many ran. ``approximate`` is how many of the instructions that were executed
    are approximate functions, whose last bits may differ from a GPU's.
    """

    kernel: str
    arch: str
    launch: str
    warps: int
    executed: ExecutedTotals
    loops: tuple[ExecutedLoop, ...]
    listing: KernelListing
    counts: Counts
    findings: tuple[Finding, ...]
    approximate: int


def execute_rung(
    rung: Rung, arch: Architecture | str, problem: GemmProblem = EMULATED_PROBLEM
) -> Execution:
    """Run a rung on the emulator.

    Raises
    ------
    EmulationError, UnknownArchitectureError
        The emulator cannot run it.
    """
    build = compile_rung(rung, arch)
    result, kernel = emulate_rung(rung, build, problem)
    blocks = rung.grid(problem, kernel.module.device.multiprocessors)
    warps = blocks * -(-rung.threads // 32)
    name = build.kernel(rung.instance(aligned=problem.allows_float4()))
    return _execution(build, name, kernel, f"{problem}", warps, result.findings)


def execute_build(build: Build, workload: Workload, kernel: str | None = None) -> Execution:
    """Run a kernel of a build on the emulator.

    Parameters
    ----------
    build
        The build.
    workload
        Its launch and inputs.
    kernel
        The kernel's name; None for the only one.

    Raises
    ------
    KernelNotFoundError
        There is no such kernel, or several and none is named.
    EmulationError, UnknownArchitectureError
        The emulator cannot run it.
    """
    with Emulator(build.arch, findings="collect") as device:
        loaded = device.load(build).kernel(kernel)
        workload.launch(loaded, device)
        shape = workload.shape
        what = f"grid {shape.grid}, block {shape.block}"
        warps = shape.blocks * -(-shape.threads_per_block // 32)
        compiled = build.kernel(loaded.name)
        return _execution(build, compiled, loaded, what, warps, tuple(device.findings))


def _execution(
    build: Build,
    compiled: CompiledKernel,
    kernel: EmulatorKernel,
    launch: str,
    warps: int,
    findings: tuple[Finding, ...],
) -> Execution:
    (sass,) = (
        each
        for each in disassemble(build.cubin, live_registers=False)
        if each.name == compiled.name
    )
    listing, counts = list_kernel(sass, compiled.display_name), kernel.counts
    approximate = sum(int(counts.warps[at >> 4]) for at in kernel.program.approximate)
    return Execution(
        kernel=compiled.display_name,
        arch=str(build.arch),
        launch=launch,
        warps=warps,
        executed=counts.totals(),
        loops=tuple(_loops(listing, counts, warps)),
        listing=listing,
        counts=counts,
        findings=findings,
        approximate=approximate,
    )


def _loops(listing: KernelListing, counts: Counts, warps: int) -> list[ExecutedLoop]:
    members: dict[int | None, list[int]] = {}
    for item in listing.instructions:
        members.setdefault(item.loop, []).append(item.instruction.address >> 4)
    found = []
    for loop in listing.loops:
        indices = members.get(loop.index, [])
        trips = int(counts.warps[loop.start >> 4]) / warps
        is_hot = loop.index == listing.hot_loop
        found.append(ExecutedLoop(loop, is_hot, trips, counts.totals(indices)))
    rest = counts.totals(members.get(None, []))
    return [*found, ExecutedLoop(None, False, 1.0, rest)]
