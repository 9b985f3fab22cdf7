"""One record per rung and architecture: what was compiled, checked and measured, and where from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from lowgemm.errors import MeasurementError
from lowgemm.report.plain import plain
from lowgemm.studies.files import read_json, write_json

__all__ = [
    "LadderReport",
    "LadderRow",
    "Provenance",
    "by_architecture",
    "read_report",
    "write_report",
]

SCHEMA = 1
_WRITE_ONE = "write one with lowgemm ladder --output FILE"


@dataclass(frozen=True, slots=True)
class LadderRow:
    """A rung on an architecture.

    Static (from the compiler): ``registers`` to ``spill_load_bytes``. Computed by the rules of the
    architecture: ``occupancy`` (resident warps over the most possible), ``blocks_per_sm`` and
    ``occupancy_limiter``. ``is_rewritten`` is False where the rewriter refused a rung's
    hot loop or was turned off, so that the compiler's ran, None for rungs that want none. From the
    machine code, None where it was not read: ``hot_loop_...``, the
    conflict cycles modelled. Emulated, None where they were not: ``executed_...``, summed over the
    warps of one launch. ``problem`` to ``error_over_bound`` are of the device that ran, a GPU or
    the emulator. Measured, None where they were not: the rest. A rate is never given for a kernel
    whose result was not found right.
    """

    rung: str
    idea: str
    arch: str
    kernel: str
    block_tile: tuple[int, int, int]
    thread_tile: tuple[int, int]
    threads: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    occupancy: float
    blocks_per_sm: int
    occupancy_limiter: str
    is_rewritten: bool | None = None
    hot_loop_instructions: int | None = None
    hot_loop_ffma_share: float | None = None
    hot_loop_lds_128: int | None = None
    hot_loop_conflict_cycles: int | None = None
    problem: str | None = None
    correct: bool | None = None
    check: str | None = None
    error_over_bound: float | None = None
    time_us: float | None = None
    time_q1_us: float | None = None
    time_q3_us: float | None = None
    samples: int | None = None
    settled: bool | None = None
    tflops: float | None = None
    ratio_to_cublas: float | None = None
    ratio_to_ex3: float | None = None
    ratio_to_previous: float | None = None
    executed_instructions: int | None = None
    executed_ffma_share: float | None = None
    executed_ffma_threads: int | None = None
    executed_shared_wavefronts: int | None = None
    executed_shared_wavefronts_ideal: int | None = None
    executed_global_sectors: int | None = None
    executed_global_sectors_ideal: int | None = None
    executed_conflict_ways: int | None = None

    @property
    def is_emulated(self) -> bool:
        """Whether the emulator ran it."""
        return self.executed_instructions is not None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the measured numbers come from. ``cache`` is ``"hot"`` or ``"cold"``."""

    date: str
    command: str
    lowgemm: str
    nvrtc: str
    gpu: str
    compute_capability: str
    multiprocessors: int
    driver: str | None
    driver_cuda: str
    clock_mhz: int | None
    cache: str
    cublas: str | None = None
    cublas_kernels: tuple[str, ...] = ()
    cublas_time_us: float | None = None
    cublas_tflops: float | None = None
    cublas_correct: bool | None = None


@dataclass(frozen=True, slots=True)
class LadderReport:
    """The rows of a ladder; ``provenance`` is None where nothing ran.

    ``unmeasured`` says why the measured fields are empty, where they are.
    """

    rows: tuple[LadderRow, ...]
    provenance: Provenance | None = None
    unmeasured: str | None = None

    @property
    def is_emulated(self) -> bool:
        """Whether the emulator ran some of the rungs."""
        return any(row.is_emulated for row in self.rows)

    def rows_as_json(self) -> list[dict[str, Any]]:
        """The rows as plain data, a dict each."""
        return [plain(row) for row in self.rows]


def write_report(report: LadderReport, path: Path) -> None:
    """Write a report with its provenance as JSON.

    Raises
    ------
    MeasurementError
        The report holds no measurement, or the file cannot be written.
    """
    if report.provenance is None:
        raise MeasurementError(
            f"there is nothing measured to write to {path}",
            report.unmeasured or "run the ladder on a GPU",
        )
    data = {
        "schema": SCHEMA,
        "provenance": plain(report.provenance),
        "rows": report.rows_as_json(),
    }
    write_json(data, path)


def read_report(path: Path) -> LadderReport:
    """Read a report that :func:`write_report` wrote.

    Raises
    ------
    MeasurementError
        The file is not there or holds something else.
    """
    data = read_json(path, SCHEMA, "ladder report", _WRITE_ONE)
    try:
        return LadderReport(
            tuple(_record(LadderRow, row) for row in data["rows"]),
            _record(Provenance, data["provenance"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise MeasurementError(
            f"{path} does not have the fields of a ladder report: {error}", _WRITE_ONE
        ) from error


def _record(kind: Callable[..., _Record], values: dict[str, Any]) -> _Record:
    """A record from plain data, each field of the type that it is declared with."""
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    record = kind(**given)
    for field in fields(record):
        allowed = _TYPES[str(field.type).partition("[")[0].removesuffix(" | None")]
        value = getattr(record, field.name)
        if not isinstance(value, allowed) and not (value is None and "None" in str(field.type)):
            raise TypeError(f"{field.name} is {value!r}")
    return record


_Record = TypeVar("_Record", LadderRow, Provenance)
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "tuple": (tuple,),
}


def by_architecture(rows: Iterable[LadderRow]) -> dict[str, Sequence[LadderRow]]:
    """Group rows by architecture, in the order of their first appearance."""
    groups: dict[str, list[LadderRow]] = {}
    for row in rows:
        groups.setdefault(row.arch, []).append(row)
    return dict(groups)
