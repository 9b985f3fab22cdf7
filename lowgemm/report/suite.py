"""What the suite of sgemm() measured, as one record that can be kept."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowgemm.errors import OutputError
from lowgemm.report.plain import plain

if TYPE_CHECKING:
    from lowgemm.studies.suite import SuiteResult

__all__ = ["SuiteReport", "SuiteRow", "read_suite", "suite_row", "write_suite"]

_KIND = "sgemm suite"


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One shape: which kernel, whether right, and the times of a call with their quartiles.

    ``time_us`` and ``cublas_us`` are medians, ``ratio`` cuBLAS's time over ours; the checks are
    None where nothing was judged: see :class:`lowgemm.studies.suite.SuiteCheck`.
    """

    group: str
    name: str
    m: int
    n: int
    k: int
    batches: int
    choice: str
    time_us: float
    time_q1_us: float
    time_q3_us: float
    cublas_us: float
    cublas_q1_us: float
    cublas_q3_us: float
    exact: bool | None
    error_over_bound: float | None
    same_bits: bool | None

    @property
    def ratio(self) -> float:
        """cuBLAS's time over ours."""
        return self.cublas_us / self.time_us

    @property
    def tflops(self) -> float:
        """10^12 floating-point operations a second."""
        return 2 * self.m * self.n * self.k * self.batches / self.time_us / 1e6

    @property
    def passed(self) -> bool:
        """Whether nothing that was judged was wrong."""
        small = self.error_over_bound is None or self.error_over_bound <= 1
        return self.exact is not False and self.same_bits is not False and small


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """All shapes, and where the numbers come from: GPU, driver, date, command, library."""

    facts: dict[str, Any] = field(default_factory=dict)
    rows: tuple[SuiteRow, ...] = ()

    @property
    def geometric_mean(self) -> float:
        """Of the ratios."""
        return math.exp(sum(math.log(row.ratio) for row in self.rows) / len(self.rows))


def suite_row(result: SuiteResult) -> SuiteRow:
    """A result as a row."""
    case, check = result.case, result.check
    assert result.peer is not None
    return SuiteRow(
        case.group,
        case.name,
        *(case.problem.m, case.problem.n, case.problem.k, case.batches),
        result.choice,
        *(result.timing.median_us, result.timing.q1_us, result.timing.q3_us),
        *(result.peer.median_us, result.peer.q1_us, result.peer.q3_us),
        None if check is None else check.exact,
        None if check is None else check.error_over_bound,
        None if check is None else check.same_bits,
    )


def write_suite(report: SuiteReport, path: Path) -> None:
    """Write a report as JSON, a row a line.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    rows = ",\n".join(f"  {json.dumps(plain(_rounded(row)))}" for row in report.rows)
    facts = json.dumps({"kind": _KIND, **report.facts})
    try:
        path.write_text(f'{{"facts": {facts},\n"rows": [\n{rows}\n]}}\n')
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}", "name a file that can be written"
        ) from error


#: What stands for an error without bound: JSON has no infinity, and None is "not judged".
_UNBOUNDED = 1e30


def _rounded(row: SuiteRow) -> dict[str, Any]:
    data = {
        key: float(f"{value:.5g}") if key.endswith("_us") else value
        for key, value in asdict(row).items()
    }
    if row.error_over_bound is not None:
        data["error_over_bound"] = min(row.error_over_bound, _UNBOUNDED)
    return data


def _is_sound(row: SuiteRow) -> bool:
    times = [value for key, value in asdict(row).items() if key.endswith("_us")]
    sizes = (row.m, row.n, row.k, row.batches)
    texts = (row.group, row.name, row.choice)
    return (
        all(isinstance(time, (int, float)) and 0 < time < math.inf for time in times)
        and all(isinstance(size, int) and size > 0 for size in sizes)
        and all(isinstance(text, str) for text in texts)
        and isinstance(row.error_over_bound, (int, float, type(None)))
    )


def read_suite(path: Path) -> SuiteReport:
    """Read a report that was written before.

    Raises
    ------
    OutputError
        It is none.
    """
    try:
        content = json.loads(path.read_text())
        if content["facts"].pop("kind") != _KIND:
            raise ValueError("another kind of file")
        names = {each.name for each in fields(SuiteRow)}
        given: Sequence[dict[str, Any]] = content["rows"]
        rows = tuple(SuiteRow(**{k: v for k, v in row.items() if k in names}) for row in given)
        if not all(map(_is_sound, rows)):
            raise ValueError("a value that cannot be")
        return SuiteReport(content["facts"], rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OutputError(f"{path} is no timings file of the suite", "name another") from error
