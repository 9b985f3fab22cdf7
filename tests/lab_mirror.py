"""A bench whose kernels are numpy mirrors: what an experiment does around its kernels, run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes import FakeArray, FakeDevice

from lowgemm.binary.signature import KernelSignature
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.measure import Timing
from lowgemm.runtime.arguments import pack
from lowgemm.runtime.launch import DeviceLimits, LaunchShape, check_launch
from lowgemm.studies.lab import Experiment, LabRow, Measurement, compile_variants, run_experiment

#: What a kernel does: its arguments, arrays as numpy arrays, and its number of blocks.
Mirror = Callable[..., None]


class HostArray(FakeArray):
    """An array that has its elements."""

    def __init__(self, device: FakeDevice, data: np.ndarray[Any, Any], pointer: int) -> None:
        super().__init__(device, data.shape, data.dtype, pointer)
        self.data = data

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        self.data[...] = host

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        return self.data.copy()

    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        self.data.view(np.uint8)[...] = value

    def view(self, offset: int, shape: int | Sequence[int]) -> HostArray:
        extent = (shape,) if isinstance(shape, int) else tuple(shape)
        part = self.data.reshape(-1)[offset : offset + int(np.prod(extent))].reshape(extent)
        assert isinstance(self.device, FakeDevice)
        return HostArray(self.device, part, self._pointer + offset * self.dtype.itemsize)


class HostDevice(FakeDevice):
    """A small device whose arrays are numpy's."""

    def __init__(self, arch: str, multiprocessors: int, l2_bytes: int) -> None:
        super().__init__(arch)
        self.multiprocessors = multiprocessors
        self.attributes = SimpleNamespace(l2_bytes=l2_bytes)
        self.limits = DeviceLimits(capability=self.capability, max_shared_bytes_per_block=227 << 10)

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> HostArray:
        place = super().empty(host.shape, host.dtype)
        return HostArray(self, np.array(host), place.pointer)

    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> HostArray:
        return self.upload(np.full(shape, 7, np.dtype(dtype)))  # type: ignore[call-overload]

    def zeros(self, shape: int | Sequence[int], dtype: object = np.float32) -> HostArray:
        return self.upload(np.zeros(shape, np.dtype(dtype)))  # type: ignore[call-overload]


@dataclass(frozen=True)
class HostKernel:
    """Checks a launch as a device does, then runs the mirror."""

    device: HostDevice
    signature: KernelSignature
    mirror: Mirror

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of a block."""
        return self.signature.shared_bytes

    def prepare(
        self, *args: object, grid: int, block: int, shared_bytes: int = 0, stream: object = None
    ) -> Callable[[], None]:
        """A launch of the mirror on the arrays' elements."""
        check_launch(
            self.signature,
            LaunchShape.of(grid, block, None, shared_bytes),
            self.device.limits,
        )
        pack(self.signature, args, device=self.device)
        arguments = [each.data if isinstance(each, HostArray) else each for each in args]
        return lambda: self.mirror(*arguments, blocks=grid)


class HostBench:
    """Stands in for `lowgemm.studies.lab.bench.Bench`; every launch takes 100 us at 1000 MHz."""

    stream = None
    clock_mhz = 1000
    record = gpu_record("h200")

    def __init__(
        self, experiment: Experiment, mirrors: Mapping[str, Mirror], sms: int, l2_bytes: int
    ) -> None:
        self.gpu = HostDevice("sm_90", sms, l2_bytes)
        self._variants = compile_variants(experiment, Architecture(9, 0))
        self._mirrors = mirrors

    def kernel(self, variant: str) -> HostKernel:
        """The mirror whose name begins the kernel's, the longest of them."""
        chosen, build = self._variants[variant]
        name = max((n for n in self._mirrors if chosen.kernel.startswith(n)), key=len)
        return HostKernel(self.gpu, build.kernel(chosen.kernel).signature, self._mirrors[name])

    def time(self, launches: Mapping[str, Callable[[], object]]) -> dict[str, Timing]:
        """Run each once."""
        for launch in launches.values():
            launch()
        timing = Timing(100.0, 99.0, 101.0, 10, 1, "hot", True, 1000)
        return dict.fromkeys(launches, timing)


def measured(
    experiment: Experiment, mirrors: Mapping[str, Mirror], *, sms: int = 2, l2_bytes: int = 1 << 18
) -> Mapping[str, Measurement]:
    """An experiment's measurements on mirrors of its kernels."""
    bench: Any = HostBench(experiment, mirrors, sms, l2_bytes)
    return experiment.measure(bench)


def rows(experiment: Experiment, gpu: str) -> dict[str, LabRow]:
    """An experiment's predictions and machine code for a GPU, by variant."""
    return {row.variant: row for row in run_experiment(experiment, gpu_record(gpu)).rows}
