"""Energy of a GEMM against its tile size: the second text's power argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lowgemm.device.clock import SmClock
from lowgemm.device.energy import EnergyMeter
from lowgemm.errors import ToolNotFoundError
from lowgemm.gemm import (
    GemmProblem,
    GuardedOutput,
    Operands,
    Reference,
    exact_operands,
    random_operands,
    rung,
)
from lowgemm.hardware import Architecture, GpuRecord, figure
from lowgemm.measure import PowerMeter, PowerRun, measure_power, median_clock_mhz, power_of
from lowgemm.runtime import Array
from lowgemm.studies.lab.bench import Bench
from lowgemm.studies.lab.bounds import lost_cycles
from lowgemm.studies.lab.experiment import (
    Experiment,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial, gemm_trial
from lowgemm.studies.ladder import upload_operands
from lowgemm.studies.peers import CublasSgemm

__all__ = ["Energy", "EnergyModel"]

_SIDE = 4096
_PEER = "cuBLAS"
_FLOAT = 4
#: The rungs and the wavefronts of an LDS.128 in each. Where all lanes that read A read one or two
#: rows it merges to two; ex7 and ex8 read B as often, whose lanes read eight float4s: four.
_LDS128_WAVEFRONTS = {"ex4_32": 2.0, "ex5": 2.0, "ex7": 3.0, "ex8": 3.0}
_OTHER_WAVEFRONTS = {"LDS.32": 1, "STS.32": 1, "STS.128": 4, "LDG.32": 1, "LDG.128": 4}

# Horowitz, "Computing's Energy Problem" (ISSCC 2014), at 45 nm: 20 pJ to read 8 bytes from 32 KB of
# SRAM, 100 pJ from 1 MB. A quarter of it is assumed for today's processes.
_SHARED_PJ_PER_BYTE = 20 / 8 / 4
_L2_PJ_PER_BYTE = 100 / 8 / 4
# O'Connor et al., "Fine-Grained DRAM" (MICRO 2017): HBM2 takes 3.92 pJ a bit.
_DRAM_PJ_PER_BYTE = 3.92 * 8
# Assumed: leakage, clocks and idle memory take a quarter of the TDP, and SMs that issue an
# instruction in every slot the rest. (SGEMM, near that, draws 610 to 680 of an H200's 700 W.)
_STATIC_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """What each thing that a GEMM does takes on a GPU."""

    static_w: float
    instruction_nj: float

    @classmethod
    def of(cls, gpu: GpuRecord) -> EnergyModel:
        """The model of a GPU.

        Every instruction of a warp takes as much as any other: fetching it and its operands
        outweighs the arithmetic.
        """
        tdp_w = figure(gpu, "tdp_w").value
        slots_per_ns = gpu.sms * gpu.capability.partitions_per_sm * gpu.clock_ghz
        return cls(_STATIC_SHARE * tdp_w, (1 - _STATIC_SHARE) * tdp_w / slots_per_ns)


@dataclass(frozen=True, slots=True)
class _Work:
    """One GEMM of a rung: the time that the machine code needs at least, and what it does."""

    time_s: float
    instructions: float
    shared_bytes: float
    l2_bytes: float
    dram_bytes: float

    def parts_j(self, model: EnergyModel) -> dict[str, float]:
        """Energy by where it goes."""
        return {
            "static": model.static_w * self.time_s,
            "instructions": model.instruction_nj * self.instructions / 1e9,
            "shared memory": _SHARED_PJ_PER_BYTE * self.shared_bytes / 1e12,
            "L2": _L2_PJ_PER_BYTE * self.l2_bytes / 1e12,
            "DRAM": _DRAM_PJ_PER_BYTE * self.dram_bytes / 1e12,
        }


class Energy(Experiment):
    """Rungs with tiles of 32, 64 and 128, back to back."""

    name = "energy"
    title = "Energy per GEMM against tile size"
    claim = (
        "Moving data takes power. A larger tile moves less of it and needs fewer instructions for "
        "each multiply-add, so a GEMM takes less energy, even where the power drawn is higher: a "
        "tile should be as large as possible, not just large enough."
    )
    quantity = f"energy of one GEMM of {_SIDE}^3"
    unit = "J"
    counted = ("FFMA", "LDS.32", "LDS.128", "STS.32", "STS.128", "LDG.32", "LDG.128")

    def variants(self, arch: Architecture) -> tuple[Variant, ...]:
        """Four rungs of the ladder."""
        chosen = [rung(name, arch) for name in _LDS128_WAVEFRONTS]
        return tuple(
            Variant(
                item.name,
                f"tile {item.bm} x {item.bn}, thread tile {item.tm} x {item.tn}",
                item.source,
                item.instance(aligned=True),
                item.defines,
            )
            for item in chosen
        )

    def predict(self, gpu: GpuRecord, codes: Mapping[str, MachineCode]) -> Mapping[str, Prediction]:
        """Static power times time, and so much for each instruction and byte."""
        model = EnergyModel.of(gpu)
        note = figure(gpu, "tdp_w").note
        of_tdp = f"; by the TDP{note}" if note else ""
        found = {}
        for name, code in codes.items():
            work = _work(gpu, name, code)
            parts = work.parts_j(model)
            total = sum(parts.values())
            shares = ", ".join(f"{part} {joules:.2f}" for part, joules in parts.items())
            reason = f"J: {shares}; {total / work.time_s:.0f} W over {work.time_s * 1e3:.2f} ms"
            found[name] = Prediction(total, reason + of_tdp)
        return found

    def trials(self, setup: Setup) -> Mapping[str, Trial]:
        """Each rung on whole numbers."""
        return _Gemm(setup).trials()

    def measure(self, bench: Bench) -> Mapping[str, Measurement]:
        """First the idle power, then each rung and cuBLAS alone, on random data."""
        meter = EnergyMeter(bench.gpu)
        readings = PowerMeter(meter.read_joules, meter.read_watts, SmClock(bench.gpu).read_mhz)
        idle_w = power_of(readings)
        gemm = _Gemm(bench)
        cublas = _cublas(bench)
        trials = gemm.trials() | ({_PEER: gemm.peer(cublas)} if cublas else {})
        right = {name: trial for name, trial in trials.items() if trial.is_right()}
        gemm.upload(random_operands(gemm.problem))
        runs = {
            name: measure_power(
                trial.launch, stream=bench.stream, new_event=bench.gpu.event, meter=readings
            )
            for name, trial in right.items()
        }
        if cublas:
            cublas.close()
        clock_mhz = median_clock_mhz(run.clock_mhz for run in runs.values())
        bench.clock_mhz = clock_mhz or bench.clock_mhz
        peer = runs.pop(_PEER, None)
        checked = "every element of C against whole numbers; timed on random data"
        found = {name: Measurement.wrong(checked) for name in trials if name != _PEER}
        return found | {
            name: _measurement(run, peer, idle_w, checked) for name, run in runs.items()
        }


def _measurement(run: PowerRun, peer: PowerRun | None, idle_w: float, checked: str) -> Measurement:
    details = {
        "power_w": run.power_w,
        "idle_w": idle_w,
        "pj_per_flop": run.joules / (2 * _SIDE**3) * 1e12,
    }
    if peer:
        details["times_cublas"] = run.joules / peer.joules
        details["cublas_w"] = peer.power_w
    if run.clock_mhz:
        details["clock_mhz"] = run.clock_mhz
    return Measurement(
        run.joules, True, checked, run.time_us, samples=run.launches, details=details
    )


def _work(gpu: GpuRecord, name: str, code: MachineCode) -> _Work:
    """Scale the hot loop to the whole GEMM; it takes as long as its slowest pipe."""
    tile = rung(name, Architecture(gpu.capability_major, gpu.capability_minor))
    ffmas = _SIDE**3 / 32
    per_ffma = 1 / code.mix["FFMA"]
    wavefronts = per_ffma * (
        _LDS128_WAVEFRONTS[name] * code.mix["LDS.128"]
        + sum(each * code.mix.get(what, 0) for what, each in _OTHER_WAVEFRONTS.items())
    )
    slots = per_ffma * (code.instructions + lost_cycles(gpu, code))
    cc = gpu.capability
    cycles = max(slots / cc.partitions_per_sm, 32 / cc.ffma_lanes_per_sm, wavefronts)
    return _Work(
        time_s=ffmas / gpu.sms * cycles / (gpu.clock_ghz * 1e9),
        instructions=ffmas * per_ffma * code.instructions,
        shared_bytes=ffmas * wavefronts * 128,
        l2_bytes=_FLOAT * (_SIDE**3 / tile.bm + _SIDE**3 / tile.bn + _SIDE**2),
        dram_bytes=_FLOAT * 3 * _SIDE**2,
    )


def _cublas(bench: Bench) -> CublasSgemm | None:
    try:
        return CublasSgemm(bench.gpu, bench.stream)
    except ToolNotFoundError:
        return None


class _Gemm:
    """The operands on the device, and one C for all."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        side = setup.pick(_SIDE, 128 * setup.scale)
        self.problem = GemmProblem(side, side, side)
        self._a: Array = setup.device.empty(self.problem.a_elements)
        self._b: Array = setup.device.empty(self.problem.b_elements)
        self._output = GuardedOutput(setup.device, self.problem)
        operands = exact_operands(self.problem)
        self._reference = Reference(self.problem, operands)
        self.upload(operands)

    def upload(self, operands: Operands) -> None:
        """Put other operands in the place of those that are there."""
        upload_operands(self.problem, operands, self._a, self._b)

    def trials(self) -> dict[str, Trial]:
        """The rungs."""
        setup, side = self._setup, self.problem.m
        trials = {}
        for name in _LDS128_WAVEFRONTS:
            item = rung(name, setup.device.architecture)
            launch = setup.kernel(name).prepare(
                *(side, side, side, self._a, side, self._b, side, self._output.c, side),
                grid=item.grid(self.problem, setup.multiprocessors),
                block=item.block,
                stream=setup.stream,
            )
            trials[name] = self._trial(launch)
        return trials

    def peer(self, cublas: CublasSgemm) -> Trial:
        """cuBLAS on the same operands."""
        return self._trial(cublas.prepare(self.problem, self._a, self._b, self._output.c))

    def _trial(self, launch: Callable[[], object]) -> Trial:
        return gemm_trial(launch, self._output, self._reference, stream=self._setup.stream)
