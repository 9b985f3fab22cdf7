"""Where an experiment's kernels run: loaded, with a stream, a timer and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lowgemm.compiler import Build
from lowgemm.device import Gpu
from lowgemm.device.clock import SmClock
from lowgemm.device.stream import DeviceStream
from lowgemm.hardware import GpuRecord
from lowgemm.measure import TimerSettings, Timing, measure, median_clock_mhz
from lowgemm.runtime import Array
from lowgemm.studies.lab.experiment import Variant
from lowgemm.studies.lab.setup import Setup
from lowgemm.studies.lab.trial import Trial

__all__ = ["Bench"]

_MOST_BYTES = 2 << 30


class Bench(Setup):
    """A GPU with an experiment's kernels on it, at the sizes made for timing.

    Parameters
    ----------
    gpu
        The GPU.
    record
        Its figures for the model.
    variants
        The experiment's variants with their builds.
    settings
        How long to measure.
    """

    stream: DeviceStream

    def __init__(
        self,
        gpu: Gpu,
        record: GpuRecord,
        variants: Mapping[str, tuple[Variant, Build]],
        settings: TimerSettings | None = None,
    ) -> None:
        self.gpu = gpu
        self.record = record
        self.stream = gpu.stream()
        self.settings = settings or TimerSettings()
        self.clock = SmClock(gpu)
        #: The median of the SM clocks of the launches timed last; the highest one before.
        self.clock_mhz = round(gpu.attributes.sm_clock_khz / 1000)
        self._variants = variants
        self._modules = {}
        self._flush_buffer: Array | None = None

    @property
    def device(self) -> Gpu:
        return self.gpu

    @property
    def multiprocessors(self) -> int:
        return self.gpu.multiprocessors

    @property
    def l2_bytes(self) -> int:
        return self.gpu.attributes.l2_bytes

    @property
    def most_bytes(self) -> int:
        return min(_MOST_BYTES, self.gpu.memory_bytes()[0] // 4)

    def time_right(self, trials: Mapping[str, Trial]) -> dict[str, Timing]:
        """Run each trial once; time those whose results are right."""
        launches = {name: trial.launch for name, trial in trials.items() if trial.is_right()}
        return self.time(launches) if launches else {}

    def time(
        self, launches: Mapping[str, Callable[[], object]], *, cold: bool = False
    ) -> dict[str, Timing]:
        """Time launches that go on :attr:`stream`, taking turns; see `lowgemm.measure.measure`."""
        timings = measure(
            launches,
            stream=self.stream,
            new_event=self.gpu.event,
            flush=self._flush if cold else None,
            read_clock_mhz=self.clock.read_mhz,
            settings=self.settings,
        )
        clock_mhz = median_clock_mhz(timing.clock_mhz for timing in timings.values())
        self.clock_mhz = clock_mhz or self.clock_mhz
        return timings

    def cycles(self, timing: Timing) -> float:
        """SM cycles of a launch, by the clock at which it ran (or :attr:`clock_mhz`)."""
        return timing.median_us * (timing.clock_mhz or self.clock_mhz)

    def _flush(self) -> None:
        """Overwrite as much memory as the L2 holds, on the stream."""
        if self._flush_buffer is None:
            self._flush_buffer = self.gpu.empty(self.l2_bytes, "uint8")
        self._flush_buffer.fill_bytes(0, stream=self.stream)
