"""Which kernel for which call: a table of measurements, and what to do between its entries."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowgemm.errors import ArgumentValueError, OutputError, ProblemSizeError
from lowgemm.gemm.call import SgemmCall
from lowgemm.gemm.kernels import KERNELS, Chip, Choice, choices, kernel_named
from lowgemm.toolchain import cache_directory

__all__ = ["Chooser", "Measured", "Tuned", "TuningTable"]

_FORMAT = 1
#: An entry speaks for calls whose sizes differ by less than this many doublings, all together.
_NEAR = 1.0
#: What another way of copying an operand counts for, in doublings.
_OTHER_KIND = 0.3
_MOST_KNOWN = 4096
_SIZE = r"([1-9]\d{0,9})"
_KEY = re.compile(rf"{_SIZE}x{_SIZE}x{_SIZE}(?: b{_SIZE})? (\w+) (\w+)")


@dataclass(frozen=True, slots=True)
class Measured:
    """The time of one choice: the median and the quartiles of its samples."""

    choice: Choice
    median_us: float
    q1_us: float
    q3_us: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was measured for one call, the fastest first."""

    key: str
    measured: tuple[Measured, ...]

    @property
    def best(self) -> tuple[Choice, ...]:
        """The fastest, and all that cannot be told from it: whose quartiles reach its own."""
        first = self.measured[0]
        return tuple(each.choice for each in self.measured if each.q1_us <= first.q3_us)


@dataclass(slots=True)
class TuningTable:
    """Measurements of one GPU.

    Attributes
    ----------
    gpu
        Its name, as the driver says it.
    entries
        What was measured, by :attr:`SgemmCall.key`.
    """

    gpu: str
    entries: dict[str, Tuned] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> TuningTable | None:
        """Read a table; None where there is none, or one of another format.

        Raises
        ------
        ArgumentValueError
            The file is damaged.
        """
        try:
            content = json.loads(path.read_text())
        except OSError:
            return None
        except (ValueError, RecursionError) as error:
            raise _damaged(path) from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            return None
        try:
            read = (_entry(key, rows) for key, rows in content["entries"].items())
            entries = {each.key: each for each in read if each is not None}
            return cls(str(content["gpu"]), entries)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(path) from error

    def save(self, path: Path) -> None:
        """Write the table, replacing the file at once.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        entries = {
            key: {
                str(each.choice): [round(t, 3) for t in (each.median_us, each.q1_us, each.q3_us)]
                for each in tuned.measured
            }
            for key, tuned in sorted(self.entries.items())
        }
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in entries.items())
        text = (
            f'{{"format": {_FORMAT}, "gpu": {json.dumps(self.gpu)},\n"entries": {{\n{rows}\n}}}}\n'
        )
        scratch = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
            with open(handle, "w") as file:  # noqa: PTH123  # a descriptor, not a path
                file.write(text)
            os.replace(scratch, path)  # noqa: PTH105
        except OSError as error:
            if scratch is not None:
                Path(scratch).unlink(missing_ok=True)
            raise OutputError(
                f"the table {path} cannot be written: {error}", "name another file"
            ) from error


def _entry(key: str, rows: Mapping[str, Any]) -> Tuned | None:
    """What was measured for a call; None where no kernel of it is there any more."""
    if not rows or not _KEY.fullmatch(key):
        raise ValueError(key)
    known = {kernel.name for kernel in KERNELS}
    measured = [
        Measured(Choice.parse(name), *_three(times))
        for name, times in rows.items()
        if name.partition("/")[0] in known
    ]
    if not all(0 < t < math.inf for m in measured for t in (m.median_us, m.q1_us, m.q3_us)):
        raise ValueError(key)
    if not measured:
        return None
    return Tuned(key, tuple(sorted(measured, key=lambda each: each.median_us)))


def _three(times: object) -> tuple[float, float, float]:
    if not isinstance(times, list):
        raise TypeError(times)
    first, second, third = map(float, times)
    return first, second, third


def _damaged(path: Path) -> ArgumentValueError:
    return ArgumentValueError(f"{path} is no table of tuning", "delete it, and tune anew")


class Chooser:
    """Picks a kernel: the fastest measured for that call or one near it, or by the model.

    Parameters
    ----------
    tables
        Measurements; those of an earlier table count before those of a later one.
    """

    def __init__(self, tables: Iterable[TuningTable] = ()) -> None:
        self.entries: dict[str, Tuned] = {}
        for table in tables:
            self.entries = {**table.entries, **self.entries}
        self._known: dict[tuple[str, Chip], Choice] = {}
        self._places = {key: _place(key) for key in self.entries}

    @classmethod
    def of(cls, gpu: str) -> Chooser:
        """The one with the tables of a GPU: the user's, and the one that lowgemm brings."""
        paths = (user_table(gpu), shipped_table(gpu))
        tables = (TuningTable.load(path) for path in paths)
        return cls(table for table in tables if table is not None and table.gpu == gpu)

    def choose(self, call: SgemmCall, chip: Chip) -> Choice:
        """What computes a (canonical) call."""
        key = (call.key, chip)
        known = self._known.get(key)
        # Kernels also look at strides, which are not in the key.
        if known is None or not kernel_named(known.kernel).accepts(call):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = self._find(call, chip)
        return known

    def _find(self, call: SgemmCall, chip: Chip) -> Choice:
        modelled = choices(call, chip)
        near = self._nearest(call)
        for tuned in near:
            # Of those that cannot be told apart, the one that the model would take.
            for choice in (each for each in modelled if each in tuned.best):
                return choice
            # It may be the splits alone that do not fit here.
            names = {choice.kernel for choice in tuned.best}
            for choice in (each for each in modelled if each.kernel in names):
                return choice
        if not modelled:
            raise ProblemSizeError(
                f"{call.key} has more tiles than a launch has blocks", "split it into smaller ones"
            )
        return modelled[0]

    def _nearest(self, call: SgemmCall) -> list[Tuned]:
        exact = self.entries.get(call.key)
        if exact is not None:
            return [exact]
        here = _place(call.key)
        found = [(_distance(here, place), key) for key, place in self._places.items()]
        return [self.entries[key] for distance, key in sorted(found) if distance < _NEAR]


_Place = tuple[tuple[float, ...], tuple[str, str]]


def _place(key: str) -> _Place:
    match = _KEY.fullmatch(key)
    assert match is not None
    return tuple(math.log2(int(size or 1)) for size in match.groups()[:4]), (match[5], match[6])


def _distance(one: _Place, other: _Place) -> float:
    sizes = sum(abs(x - y) for x, y in zip(one[0], other[0], strict=True))
    return sizes + _OTHER_KIND * sum(x != y for x, y in zip(one[1], other[1], strict=True))


def table_name(gpu: str) -> str:
    """The file's name for a GPU."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") + ".json"


def user_table(gpu: str) -> Path:
    """Where ``lowgemm tune`` keeps what it measured: in the cache directory."""
    return cache_directory() / "tuned" / table_name(gpu)


def shipped_table(gpu: str) -> Path:
    """Where the table lies that lowgemm brings."""
    return Path(__file__).parent / "tuned" / table_name(gpu)
