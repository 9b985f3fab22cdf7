"""GPUs as a frozen table: what of a chip the machine model needs, each figure with its source."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from lowgemm.errors import ArgumentValueError, UnknownGpuError
from lowgemm.hardware.capability import ComputeCapability, capability

__all__ = [
    "DATA_SHEET",
    "DEVICE",
    "GPUS",
    "MEASURED",
    "MICROBENCHMARK",
    "GpuFigure",
    "GpuRecord",
    "figure",
    "gpu_record",
    "record_from_attributes",
    "record_with_measurements",
]

#: Published by the maker.
DATA_SHEET = "data sheet"
#: Measured by the public: RRZE's gpu-benches and markdewing/AI_kernels.
MICROBENCHMARK = "public microbenchmark"
#: Read from a device through its driver.
DEVICE = "read from the device"
#: Measured by lowgemm's own experiments on the GPU at hand.
MEASURED = "measured here"

_MEASURED_FIELDS = (
    "shared_latency_cycles",
    "l1_latency_cycles",
    "l2_latency_cycles",
    "dram_latency_cycles",
    "l2_gb_per_s",
)
_SHEET_FIELDS = ("sms", "clock_ghz", "dram_gb_per_s", "l2_mib", "tdp_w")


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """What of a GPU the machine model needs.

    ``clock_ghz`` is the highest clock of the SMs, ``dram_gb_per_s`` the memory's peak and
    ``l2_gb_per_s`` the rate at which all SMs together read from L2. A figure that nobody has
    published is None. ``own_sources`` names the fields whose source is not the usual one of their
    kind; :meth:`source` answers for every field.
    """

    name: str
    aliases: tuple[str, ...]
    capability_major: int
    capability_minor: int
    sms: int
    clock_ghz: float
    dram_gb_per_s: float
    l2_mib: float
    shared_latency_cycles: float | None = None
    l1_latency_cycles: float | None = None
    l2_latency_cycles: float | None = None
    dram_latency_cycles: float | None = None
    l2_gb_per_s: float | None = None
    tdp_w: float | None = None
    own_sources: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for field in (*_SHEET_FIELDS, *_MEASURED_FIELDS):
            value = getattr(self, field)
            required = field not in ("tdp_w", *_MEASURED_FIELDS)
            if value is None and not required:
                continue
            if not _positive(value):
                raise ArgumentValueError(
                    f"{field} = {value!r} of the GPU {self.name!r}", "give a positive number"
                )

    @property
    def capability(self) -> ComputeCapability:
        """The limits of its compute capability.

        Raises
        ------
        UnknownArchitectureError
            lowgemm has no table for it.
        """
        return capability(self.capability_major, self.capability_minor)

    def source(self, field: str) -> str | None:
        """Where a figure comes from; None for one that is not known.

        Raises
        ------
        ArgumentValueError
            The record has no such figure.
        """
        if field not in (*_SHEET_FIELDS, *_MEASURED_FIELDS):
            raise ArgumentValueError(
                f"{field!r} is no figure of a GPU",
                f"the figures are {', '.join((*_SHEET_FIELDS, *_MEASURED_FIELDS))}",
            )
        if getattr(self, field) is None:
            return None
        usual = MICROBENCHMARK if field in _MEASURED_FIELDS else DATA_SHEET
        return dict(self.own_sources).get(field, usual)

    def sources(self) -> dict[str, str]:
        """The source of every figure that is known."""
        found = {field: self.source(field) for field in (*_SHEET_FIELDS, *_MEASURED_FIELDS)}
        return {field: source for field, source in found.items() if source is not None}


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


# H100 and H200: published L2 latencies range from 205 to 281 cycles with the distance of the slice;
# the table holds the middle.
_HOPPER_L2_LATENCY = 243.0

#: Every GPU of the table, in the order of their compute capabilities.
GPUS: tuple[GpuRecord, ...] = (
    GpuRecord(
        "V100 SXM2 32GB", ("v100", "v100 sxm2"), 7, 0, 80, 1.53, 900, 6,
        l1_latency_cycles=36, l2_latency_cycles=221, dram_latency_cycles=460, tdp_w=300,
    ),
    GpuRecord(
        "A100 80GB SXM", ("a100", "a100 sxm", "a100 sxm4 80gb"), 8, 0, 108, 1.41, 2039, 40,
        l1_latency_cycles=33, l2_latency_cycles=205,
        dram_latency_cycles=552, l2_gb_per_s=5400, tdp_w=400,
    ),
    GpuRecord("RTX 3090", ("3090", "geforce rtx 3090"), 8, 6, 82, 1.70, 936, 6, tdp_w=350),
    GpuRecord(
        "A40", ("a40 pcie",), 8, 6, 84, 1.74, 696, 6,
        l1_latency_cycles=33, l2_latency_cycles=250, dram_latency_cycles=556, tdp_w=300,
    ),
    GpuRecord(
        "L40", ("l40 pcie",), 8, 9, 142, 2.49, 864, 96,
        l1_latency_cycles=34, l2_latency_cycles=274, dram_latency_cycles=625,
        l2_gb_per_s=5200, tdp_w=300,
    ),
    GpuRecord(
        "RTX 4090", ("4090", "geforce rtx 4090"), 8, 9, 128, 2.52, 1008, 72,
        l1_latency_cycles=40, l2_latency_cycles=296,
        dram_latency_cycles=636, tdp_w=450,
    ),
    GpuRecord(
        "H100 SXM", ("h100", "h100 sxm5", "h100 80gb hbm3"), 9, 0, 132, 1.98, 3350, 50,
        l1_latency_cycles=32, l2_latency_cycles=_HOPPER_L2_LATENCY,
        dram_latency_cycles=688, tdp_w=700,
    ),
    GpuRecord(
        "H200 SXM", ("h200", "h200 sxm5", "h200 141gb hbm3e"), 9, 0, 132, 1.98, 4800, 60,
        l1_latency_cycles=32, l2_latency_cycles=_HOPPER_L2_LATENCY,
        dram_latency_cycles=688, l2_gb_per_s=10200, tdp_w=700,
        own_sources=(("l2_mib", DEVICE),),
    ),
    GpuRecord(
        "B200", ("b200 sxm",), 10, 0, 148, 1.97, 8000, 126,
        l1_latency_cycles=40, l2_latency_cycles=295, dram_latency_cycles=860, tdp_w=1000,
    ),
    GpuRecord("RTX 5080", ("5080", "geforce rtx 5080"), 12, 0, 84, 2.62, 960, 64, tdp_w=360),
    GpuRecord(
        "RTX 5090", ("5090", "geforce rtx 5090"), 12, 0, 170, 2.41, 1792, 96,
        l1_latency_cycles=44, l2_latency_cycles=360, dram_latency_cycles=936, tdp_w=575,
    ),
)  # fmt: skip


def _key(name: str) -> str:
    """A name without case, maker, product line and punctuation."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "".join(word for word in words if word not in ("nvidia", "geforce", "tesla"))


_BY_KEY = {_key(name): record for record in GPUS for name in (record.name, *record.aliases)}


def gpu_record(name: str) -> GpuRecord:
    """Find a GPU of the table by its name or an alias, in any case.

    ``NVIDIA``, ``GeForce``, ``Tesla`` and punctuation do not matter, so the driver's own name of a
    device finds it as well.

    Raises
    ------
    UnknownGpuError
        The table has no such GPU; the error lists those that it has.

    Examples
    --------
    >>> gpu_record("a100").sms
    108
    >>> gpu_record("NVIDIA GeForce RTX 5080").name
    'RTX 5080'
    """
    found = _BY_KEY.get(_key(str(name)))
    if found is None:
        raise UnknownGpuError(
            f"no GPU of the table is called {str(name)[:60]!r}",
            f"use one of {', '.join(record.name for record in GPUS)}",
        )
    return found


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """A figure, and the GPU whose it is.

    ``note``, to stand behind the value, names that GPU where it is another one, and is empty else.
    """

    value: float
    owner: GpuRecord
    note: str = ""


def figure(gpu: GpuRecord, field: str) -> GpuFigure:
    """A GPU's own figure, or where nobody has published it that of the nearest GPU of the table.

    The SM of a chip for data centres holds 2048 threads, that of the others fewer, and the memory
    systems differ as much: one of the same class is preferred, then the nearest compute capability,
    then the earlier entry of the table.

    Raises
    ------
    ArgumentValueError
        A record has no such figure, or no GPU of the table has it.

    Examples
    --------
    >>> figure(gpu_record("3090"), "dram_latency_cycles").value
    556
    >>> figure(gpu_record("3090"), "dram_latency_cycles").note
    ' (that of the A40)'
    """
    if gpu.source(field) is not None:
        return GpuFigure(getattr(gpu, field), gpu)
    known = [record for record in GPUS if getattr(record, field) is not None]
    if not known:
        raise ArgumentValueError(f"no GPU of the table has {field}", "measure it")
    owner = min(known, key=lambda record: _distance(gpu, record))
    return GpuFigure(getattr(owner, field), owner, f" (that of the {owner.name})")


def _distance(one: GpuRecord, other: GpuRecord) -> tuple[bool, int]:
    large = {record.capability.threads_per_sm >= 2048 for record in (one, other)}
    versions = [10 * r.capability_major + r.capability_minor for r in (one, other)]
    return len(large) > 1, abs(versions[0] - versions[1])


def record_from_attributes(
    name: str,
    *,
    capability_major: int,
    capability_minor: int,
    multiprocessors: int,
    sm_clock_khz: int,
    memory_clock_khz: int,
    memory_bus_bits: int,
    l2_bytes: int,
) -> GpuRecord:
    """Make a record of what ``cuDeviceGetAttribute`` says of a device.

    The memory's peak is twice its clock (two transfers a cycle, as the driver counts clocks) times
    the bus. Latencies, L2 bandwidth and power, which no attribute tells, come from the table where
    it has a GPU of that name. So does the memory's peak where the driver gives 0 for its clock.

    Raises
    ------
    ArgumentValueError
        An attribute that no GPU can have, or no memory clock and no GPU of that name in the table.
    """
    known = _BY_KEY.get(_key(name))
    peak = 2 * memory_clock_khz * 1e3 * (memory_bus_bits / 8) / 1e9
    read = ["sms", "clock_ghz", "l2_mib"]
    if peak > 0:
        read.append("dram_gb_per_s")
    elif known is not None:
        peak = known.dram_gb_per_s
    measured = GpuRecord(
        name,
        known.aliases if known else (),
        capability_major,
        capability_minor,
        multiprocessors,
        sm_clock_khz / 1e6,
        peak,
        l2_bytes / 2**20,
        own_sources=tuple((field, DEVICE) for field in read),
    )
    if known is None:
        return measured
    return replace(
        measured, **{field: getattr(known, field) for field in ("tdp_w", *_MEASURED_FIELDS)}
    )


def record_with_measurements(record: GpuRecord, **figures: float) -> GpuRecord:
    """A record in which measured figures take the place of published ones.

    Parameters
    ----------
    record
        The GPU.
    **figures
        By field: ``l2_latency_cycles=262``.

    Raises
    ------
    ArgumentValueError
        The record has no such figure, or a value is no positive number.
    """
    for field in figures:
        record.source(field)  # refuses what is no figure
    sources = dict(record.own_sources) | dict.fromkeys(figures, MEASURED)
    changed: dict[str, Any] = {**figures, "own_sources": tuple(sources.items())}
    return replace(record, **changed)
