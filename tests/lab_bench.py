"""A bench without a GPU: real builds and argument checks, and kernels' mirrors in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np
from fakes import FakeArray, FakeDevice, FakeKernel

from lowgemm.binary import KernelSignature
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.measure import Timing
from lowgemm.runtime import Array, DeviceLimits, Kernel, PreparedLaunch
from lowgemm.studies.lab import Experiment, LabRow, Measurement, compile_variants, run_experiment
from lowgemm.studies.lab.bench import Bench

#: What a kernel does: its name, its arguments (arrays and numbers), blocks, threads of a block.
Mirror = Callable[[str, Sequence[Any], int, int], None]

TIME_US = 1000.0
CLOCK_MHZ = 2000


class HostArray(FakeArray):
    """An array whose elements lie in host memory."""

    def __init__(self, device: FakeDevice, host: np.ndarray[Any, Any], pointer: int) -> None:
        super().__init__(device, host.shape, host.dtype, pointer)
        self.host = host

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        assert host.shape == self.host.shape
        self.host[...] = host

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        return self.host.copy()

    def fill_bytes(self, value: int, *, stream: object = None) -> None:
        self.host.view(np.uint8)[...] = value

    def view(self, offset: int, shape: int | Sequence[int]) -> HostArray:
        extent = (shape,) if isinstance(shape, int) else tuple(shape)
        part = self.host.reshape(-1)[offset : offset + int(np.prod(extent))].reshape(extent)
        assert isinstance(self.device, FakeDevice)
        return HostArray(self.device, part, self.pointer + offset * self.dtype.itemsize)


class HostDevice(FakeDevice):
    """A few multiprocessors of an H200, on paper."""

    def __init__(self, multiprocessors: int, l2_bytes: int) -> None:
        super().__init__("sm_90")
        self.multiprocessors = multiprocessors
        self.limits = DeviceLimits(capability=self.capability, max_shared_bytes_per_block=227 << 10)
        self.attributes = SimpleNamespace(
            l2_bytes=l2_bytes,
            threads_per_multiprocessor=2048,
            shared_bytes_per_multiprocessor=228 * 1024,
        )

    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        return self.upload(np.full(shape, 7, np.dtype(cast(Any, dtype))))

    def zeros(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        return self.upload(np.zeros(shape, np.dtype(cast(Any, dtype))))

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> Array:
        array = super().empty(host.shape, host.dtype)
        return HostArray(self, np.array(host, order="C"), array.pointer)


class HostKernel(FakeKernel):
    """A kernel that is checked as on a GPU and then mirrored."""

    def __init__(
        self, device: HostDevice, signature: KernelSignature, name: str, mirror: Mirror
    ) -> None:
        super().__init__(device, signature)
        self._name = name
        self._mirror = mirror

    def prepare(self, *args: object, **shape: Any) -> PreparedLaunch:
        super().prepare(*args, **shape)
        values = [arg.host if isinstance(arg, HostArray) else arg for arg in args]
        return HostLaunch(lambda: self._mirror(self._name, values, shape["grid"], shape["block"]))


class HostLaunch(PreparedLaunch):
    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    @property
    def parameters(self) -> memoryview:
        return memoryview(b"")

    def launch(self, stream: object = None) -> None:
        self._run()


class HostBench(Bench):
    """A bench on which each launch takes a millisecond, by default at two GHz."""

    def __init__(
        self,
        experiment: Experiment,
        mirror: Mirror,
        *,
        sms: int = 2,
        l2_bytes: int = 1 << 20,
        clocks_mhz: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.gpu: Any = HostDevice(sms, l2_bytes)
        self.record = gpu_record("h200")
        self.stream: Any = None
        self.clock_mhz = CLOCK_MHZ
        self._clocks_mhz = clocks_mhz
        self._variants = compile_variants(experiment, Architecture(9, 0))
        self._mirror = mirror

    def kernel(self, variant: str) -> Kernel:
        chosen, build = self._variants[variant]
        signature = build.kernel(chosen.kernel).signature
        return HostKernel(self.gpu, signature, chosen.kernel, self._mirror)

    def time(
        self, launches: Mapping[str, Callable[[], object]], *, cold: bool = False
    ) -> dict[str, Timing]:
        """Run each once; every clock is that of its launch."""
        for launch in launches.values():
            launch()
        return {name: self._timing(name) for name in launches}

    def _timing(self, name: str) -> Timing:
        clock_mhz = self._clocks_mhz.get(name, CLOCK_MHZ)
        return Timing(TIME_US, TIME_US, TIME_US, 10, 1, "hot", True, clock_mhz)


def by_name(mirrors: Mapping[str, Callable[..., None]]) -> Mirror:
    """The mirror whose name begins the kernel's, the longest; it gets arguments and blocks."""

    def mirror(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
        chosen = max((begin for begin in mirrors if name.startswith(begin)), key=len)
        mirrors[chosen](*arguments, blocks=blocks)

    return mirror


def measured(experiment: Experiment, mirror: Mirror, **bench: Any) -> Mapping[str, Measurement]:
    """What an experiment makes of kernels that do what the mirror does, on a bench made so."""
    return experiment.measure(HostBench(experiment, mirror, **bench))


def rows(experiment: Experiment, gpu: str) -> dict[str, LabRow]:
    """An experiment's predictions and machine code for a GPU, by variant."""
    return {row.variant: row for row in run_experiment(experiment, gpu_record(gpu)).rows}


def all_wrong(experiment: Experiment, mirror: Mirror) -> bool:
    """Whether it gives no figure where one word of the result is off."""

    def spoiled(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
        mirror(name, arguments, blocks, threads)
        result = next(arg for arg in reversed(arguments) if isinstance(arg, np.ndarray))
        result.reshape(-1)[-1] += 1

    found = measured(experiment, spoiled)
    return all(not m.correct and m.value is None for m in found.values())
