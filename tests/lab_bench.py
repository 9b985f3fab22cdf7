"""A bench without a GPU: real builds and argument checks, and a kernel's mirror in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from fakes import FakeArray, FakeDevice, FakeKernel

from lowgemm.binary import KernelSignature
from lowgemm.hardware import Architecture
from lowgemm.measure import Timing
from lowgemm.runtime import Array, Kernel, PreparedLaunch
from lowgemm.studies.lab import Experiment, Measurement, compile_variants
from lowgemm.studies.lab.bench import Bench

#: What a kernel does: its name, its arguments (arrays and numbers), blocks, threads of a block.
Mirror = Callable[[str, Sequence[Any], int, int], None]

TIME_US = 1000.0
CLOCK_MHZ = 2000


class HostArray(FakeArray):
    """An array whose elements lie in host memory."""

    def __init__(self, device: HostDevice, host: np.ndarray[Any, Any], pointer: int) -> None:
        super().__init__(device, host.shape, host.dtype, pointer)
        self.host = host

    def upload(self, host: np.ndarray[Any, Any], *, stream: object = None) -> None:
        assert host.shape == self.host.shape
        self.host[...] = host

    def download(self, *, stream: object = None) -> np.ndarray[Any, Any]:
        return self.host.copy()

    def view(self, offset: int, shape: int | Sequence[int]) -> Array:
        assert isinstance(shape, int)
        assert isinstance(self.device, HostDevice)
        return HostArray(self.device, self.host[offset : offset + shape], self.pointer)


class HostDevice(FakeDevice):
    """Two multiprocessors of an H200, on paper."""

    def __init__(self) -> None:
        super().__init__("sm_90")
        self.multiprocessors = 2
        self.attributes = SimpleNamespace(
            l2_bytes=2**20,
            threads_per_multiprocessor=2048,
            shared_bytes_per_multiprocessor=228 * 1024,
        )

    def empty(self, shape: int | Sequence[int], dtype: object = np.float32) -> Array:
        return self.upload(np.empty(shape, np.dtype(cast(Any, dtype))))

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

    def launch(self, stream: object = None) -> None:
        self._run()


class HostBench:
    """What an experiment's ``measure`` uses of a bench; each launch takes a millisecond."""

    def __init__(self, experiment: Experiment, mirror: Mirror) -> None:
        self.gpu = HostDevice()
        self.stream = None
        self.clock_mhz = CLOCK_MHZ
        self._variants = compile_variants(experiment, Architecture(9, 0))
        self._mirror = mirror

    def kernel(self, variant: str) -> Kernel:
        chosen, build = self._variants[variant]
        signature = build.kernel(chosen.kernel).signature
        return HostKernel(self.gpu, signature, chosen.kernel, self._mirror)

    def time(self, launches: Mapping[str, object], *, cold: bool = False) -> dict[str, Timing]:
        timing = Timing(TIME_US, TIME_US, TIME_US, 10, 1, "hot", True)
        return dict.fromkeys(launches, timing)


def measured(experiment: Experiment, mirror: Mirror) -> Mapping[str, Measurement]:
    """What an experiment makes of kernels that do what the mirror does."""
    return experiment.measure(cast(Bench, HostBench(experiment, mirror)))


def all_wrong(experiment: Experiment, mirror: Mirror) -> bool:
    """Whether it gives no figure where one word of the result is off."""

    def spoiled(name: str, arguments: Sequence[Any], blocks: int, threads: int) -> None:
        mirror(name, arguments, blocks, threads)
        result = next(arg for arg in reversed(arguments) if isinstance(arg, np.ndarray))
        result.reshape(-1)[-1] += 1

    found = measured(experiment, spoiled)
    return all(not m.correct and m.value is None for m in found.values())
