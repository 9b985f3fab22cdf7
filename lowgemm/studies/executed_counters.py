"""What Nsight Compute counted of the ladder's instructions, kept as data for exact comparisons.

The counts are whole numbers: how often warps and threads executed each instruction, and what each
access to memory needed. They belong to one machine code, which its SHA-256 names.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lowgemm.binary import read_cubin, spellings
from lowgemm.errors import KernelNotFoundError, MeasurementError, SourceNotFoundError
from lowgemm.studies.counters import timings_directory
from lowgemm.studies.files import read_json, write_json

__all__ = [
    "INSTANCED_METRICS",
    "INSTRUCTION_METRICS",
    "LAUNCH_METRICS",
    "ExecutedCounters",
    "RungExecution",
    "code_sha256",
    "executed_counters",
    "kernel_of",
    "read_executed_counters",
    "read_instances",
    "read_raw_page",
    "read_source_page",
    "rung_execution",
    "whole_number",
    "write_executed_counters",
]

SCHEMA = 1
_FILE = "h200_executed_512.json"
_INSTRUCTION_BYTES = 16
_REMEDY = "write one with scripts/executed_counters.py --output FILE"
_READ_PAGE = "look at the page in the archive of raw output"

#: Metrics with an instance for each opcode; from SASS patching, so exact.
INSTANCED_METRICS: tuple[str, ...] = (
    "sass__inst_executed_per_opcode",
    "sass__thread_inst_executed_true_per_opcode",
)

#: Metrics of each instruction by their name, with the heading of their column on the source page.
INSTRUCTION_METRICS: Mapping[str, str] = {
    "inst_executed": "Instructions Executed",
    "thread_inst_executed": "Thread Instructions Executed",
    "thread_inst_executed_true": "Predicated-On Thread Instructions Executed",
    "memory_l1_tag_requests_global": "L1 Tag Requests Global",
    "memory_l1_wavefronts_shared": "L1 Wavefronts Shared",
    "memory_l1_wavefronts_shared_ideal": "L1 Wavefronts Shared Ideal",
    "derived__memory_l1_conflicts_shared_nway": "L1 Conflicts Shared N-Way",
    "memory_l2_theoretical_sectors_global": "L2 Theoretical Sectors Global",
    "memory_l2_theoretical_sectors_global_ideal": "L2 Theoretical Sectors Global Ideal",
}

#: Metrics of a launch as a whole.
LAUNCH_METRICS: tuple[str, ...] = (
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__sass_inst_executed.sum",
    "smsp__sass_inst_executed_op_shared_ld.sum",
    "smsp__sass_inst_executed_op_shared_st.sum",
    "smsp__sass_inst_executed_op_global_ld.sum",
    "smsp__sass_inst_executed_op_global_st.sum",
    "smsp__sass_inst_executed_op_ldgsts.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    *INSTRUCTION_METRICS,
)


@dataclass(frozen=True, slots=True)
class RungExecution:
    """One launch of a rung's kernel.

    ``kernel`` is its mangled name. ``code_sha256`` is the SHA-256 of its instructions alone, see
    :func:`code_sha256`; ``cubin_sha256`` is that of the file, in which line information names
    folders. ``metrics`` are totals of the launch, ``opcodes`` counts by opcode for each of
    :data:`INSTANCED_METRICS`. ``mnemonics`` are the kernel's instructions in the order of their
    addresses, 16 bytes each, and ``instructions`` the counts of each by the names of
    :data:`INSTRUCTION_METRICS`. ``missing`` says why a metric that was asked for is not there.
    """

    kernel: str
    code_sha256: str
    cubin_sha256: str
    metrics: Mapping[str, int]
    opcodes: Mapping[str, Mapping[str, int]]
    mnemonics: tuple[str, ...]
    instructions: Mapping[str, tuple[int, ...]]
    missing: Mapping[str, str]

    def by_opcode(self, metric: str = "inst_executed") -> Mapping[str, int]:
        """The counts of the single instructions, added up by opcode; opcodes without are left out.

        Raises
        ------
        MeasurementError
            The metric was not read for single instructions.
        """
        if metric not in self.instructions:
            raise MeasurementError(
                f"{metric} of single instructions is not among the counters of {self.kernel}: "
                + self.missing.get(metric, "it was not asked for"),
                f"there are {', '.join(self.instructions)}",
            )
        totals: Counter[str] = Counter()
        for mnemonic, count in zip(self.mnemonics, self.instructions[metric], strict=True):
            totals[mnemonic.partition(".")[0]] += count
        return {opcode: count for opcode, count in totals.items() if count}


@dataclass(frozen=True, slots=True)
class ExecutedCounters:
    """The counters of rungs by name, one launch each of ``problem``, with where they come from."""

    date: str
    command: str
    lowgemm: str
    gpu: str
    compute_capability: str
    multiprocessors: int
    driver: str | None
    driver_cuda: str
    ncu: str
    nvrtc: str
    arch: str
    problem: str
    rungs: Mapping[str, RungExecution]

    @property
    def provenance(self) -> str:
        """GPU, driver, profiler, compiler, date and command in a sentence."""
        return (
            f"measured: {self.gpu}, driver {self.driver}, Nsight Compute {self.ncu}, "
            f"NVRTC {self.nvrtc}, {self.date}, {self.command}"
        )


# ---- the machine code that was counted


def kernel_of(cubin: bytes, name: str) -> str:
    """The mangled name of a cubin's kernel by the name that people write: ``ex8_warp_tile<true>``.

    Raises
    ------
    KernelNotFoundError
        No kernel or several have that name.
    CubinError
        The cubin is damaged.
    """
    kernels = [kernel.name for kernel in read_cubin(cubin).kernels]
    found = [kernel for kernel in kernels if name in spellings(kernel)]
    if len(found) != 1:
        raise KernelNotFoundError(
            f"{len(found)} kernels of the cubin are named {name!r}",
            f"it has: {', '.join(kernels)}",
            available=tuple(kernels),
        )
    return found[0]


def code_sha256(cubin: bytes, kernel: str) -> str:
    """The SHA-256 of a kernel's instructions, in hexadecimal.

    Unlike that of the whole cubin it does not change with the folder of the source, which stands in
    the line information.

    Raises
    ------
    KernelNotFoundError
        The cubin has no kernel of that mangled name.
    CubinError
        The cubin is damaged.
    """
    code = read_cubin(cubin).code
    if kernel not in code:
        raise KernelNotFoundError(
            f"the cubin has no kernel {kernel!r}",
            f"it has: {', '.join(code)}",
            available=tuple(code),
        )
    return hashlib.sha256(code[kernel].content).hexdigest()


# ---- the pages of ncu

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.0*)?"
_INSTANCE = re.compile(rf"\s*([^\s:;]+)\s*:\s*({_WHOLE})\s*")
# A scaled unit, as in Mbyte or Kinst, comes with a rounded value.
_SCALED_UNIT = re.compile(r"[KMGT](?=[a-z])")


def whole_number(text: str) -> int:
    """Read a count as ncu prints it: ``1,048,576``, ``64`` or ``64.0``.

    Raises
    ------
    MeasurementError
        The text is no whole number; one with an exponent is rounded and none either.
    """
    if not re.fullmatch(_WHOLE, text.strip()):
        raise MeasurementError(f"{text.strip()!r} is no whole number", _READ_PAGE)
    return int(text.strip().partition(".")[0].replace(",", ""))


def read_instances(cell: str) -> dict[str, int]:
    """Read a cell of ``--print-metric-instances details``: ``96 (FFMA: 64; BAR: 32)``.

    Raises
    ------
    MeasurementError
        It names no instances, one twice, or one whose value is no whole number.
    """
    _, bracket, inner = cell.strip().partition("(")
    parts = [part for part in inner.removesuffix(")").split(";") if part.strip()]
    matches = [_INSTANCE.fullmatch(part) for part in parts]
    counts = {match[1]: whole_number(match[2]) for match in matches if match}
    if not bracket or not counts or len(counts) != len(parts):
        raise MeasurementError(f"{cell[:200]!r} holds no counts by instance", _READ_PAGE)
    return counts


def read_raw_page(text: str) -> dict[str, str]:
    """Read the page of ``ncu --page raw --csv --print-units base`` with one launch.

    Parameters
    ----------
    text
        The output; lines of ncu's own before the table are passed over.

    Returns
    -------
    dict
        The launch's cells by the name of their column.

    Raises
    ------
    MeasurementError
        There is no table, not exactly one launch in it, or a count in a scaled unit.
    """
    rows = _rows(text)
    start = next((i for i, row in enumerate(rows) if "Kernel Name" in row and len(row) > 2), None)
    if start is None:
        raise MeasurementError("the raw page has no row of column names", _READ_PAGE)
    header, *rest = rows[start:]
    table = [row for row in rest if len(row) == len(header)]
    if len(table) != 2:
        raise MeasurementError(
            f"the raw page has {max(len(table) - 1, 0)} launches, not one", _READ_PAGE
        )
    units, launch = table
    wanted = {*LAUNCH_METRICS, *INSTANCED_METRICS}
    for name, unit in zip(header, units, strict=True):
        if name in wanted and _SCALED_UNIT.match(unit):
            raise MeasurementError(
                f"{name} is in {unit}, rounded", "have the page printed with --print-units base"
            )
    return dict(zip(header, launch, strict=True))


def read_source_page(
    text: str,
) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]], dict[str, str]]:
    """Read the page of ``ncu --page source --csv --print-source sass`` with one kernel.

    Parameters
    ----------
    text
        The output; lines before the table are passed over.

    Returns
    -------
    tuple
        The mnemonics in the order of their addresses; the counts of each instruction by the names
        of :data:`INSTRUCTION_METRICS`, 0 where the page has none for an instruction; and why a
        column is not there.

    Raises
    ------
    MeasurementError
        There is no table, or its addresses do not follow each other in steps of 16 bytes.
    """
    rows = _rows(text)
    start = next((i for i, row in enumerate(rows) if {"Address", "Source"} <= set(row)), None)
    if start is None:
        raise MeasurementError("the source page has no row of column names", _READ_PAGE)
    header = [name.strip() for name in rows[start]]
    table = [row for row in rows[start + 1 :] if len(row) == len(header)]
    _check_addresses([row[header.index("Address")].strip() for row in table])
    mnemonics = tuple(_mnemonic(row[header.index("Source")]) for row in table)
    counts: dict[str, tuple[int, ...]] = {}
    missing: dict[str, str] = {}
    for metric, heading in INSTRUCTION_METRICS.items():
        index = _column(header, (heading, f"# {heading}", metric))
        if index is None:
            missing[metric] = "the source page has no such column"
            continue
        try:
            counts[metric] = _counts([row[index].strip() for row in table])
        except MeasurementError as error:
            missing[metric] = error.what
    return mnemonics, counts, missing


def _rows(text: str) -> list[list[str]]:
    # A cell with the instances of every instruction can pass the reader's 128 KiB.
    csv.field_size_limit(max(csv.field_size_limit(), 1 << 24))
    return [row for row in csv.reader(io.StringIO(text)) if row]


def _column(header: Sequence[str], names: Iterable[str]) -> int | None:
    """The first column of one of the names; ncu repeats some columns with the same counts."""
    return next((header.index(name) for name in names if name in header), None)


def _counts(cells: Sequence[str]) -> tuple[int, ...]:
    absent = ("", "-", "n/a")  # of an instruction that the metric does not apply to
    if all(cell in absent for cell in cells):
        raise MeasurementError("its column of the source page is empty", _READ_PAGE)
    return tuple(0 if cell in absent else whole_number(cell) for cell in cells)


def _mnemonic(source: str) -> str:
    words = [word for word in source.split() if not word.startswith(("@", "{"))]
    return words[0].rstrip(";") if words else ""


def _check_addresses(texts: Sequence[str]) -> None:
    for base in (16, 10):
        try:
            addresses = [int(text, base) for text in texts]
        except ValueError:
            continue
        first = addresses[0] if addresses else 0
        expected = range(first, first + _INSTRUCTION_BYTES * len(addresses), _INSTRUCTION_BYTES)
        if addresses and addresses == list(expected):
            return
    raise MeasurementError(
        f"the {len(texts)} addresses of the source page do not follow each other in steps of "
        f"{_INSTRUCTION_BYTES} bytes",
        _READ_PAGE,
    )


def rung_execution(
    cubin: bytes, kernel: str, *, raw: str, details: str, source: str
) -> RungExecution:
    """Put one launch together from ncu's pages.

    Parameters
    ----------
    cubin
        The machine code that was launched.
    kernel
        The mangled name of its kernel.
    raw
        The raw page. Totals come from it, as the page with instances rounds them.
    details
        The raw page with ``--print-metric-instances details``.
    source
        The source page in SASS.

    Raises
    ------
    MeasurementError
        A page holds no table of one launch.
    KernelNotFoundError, CubinError
        The machine code does not have the kernel.
    """
    mnemonics, instructions, missing = read_source_page(source)
    totals, instanced = read_raw_page(raw), read_raw_page(details)
    metrics: dict[str, int] = {}
    opcodes: dict[str, dict[str, int]] = {}
    for name in LAUNCH_METRICS:
        try:
            metrics[name] = whole_number(_cell(totals, name))
        except MeasurementError as error:
            if name not in instructions:
                missing[name] = error.what
    for name in INSTANCED_METRICS:
        try:
            opcodes[name] = read_instances(_cell(instanced, name))
        except MeasurementError as error:
            missing[name] = error.what
    return RungExecution(
        kernel=kernel,
        code_sha256=code_sha256(cubin, kernel),
        cubin_sha256=hashlib.sha256(cubin).hexdigest(),
        metrics=metrics,
        opcodes=opcodes,
        mnemonics=mnemonics,
        instructions=instructions,
        missing=missing,
    )


def _cell(cells: Mapping[str, str], name: str) -> str:
    if name not in cells:
        raise MeasurementError("the raw page has no such column", _READ_PAGE)
    return cells[name]


# ---- the file


def write_executed_counters(counters: ExecutedCounters, path: Path) -> None:
    """Write counters as JSON, a list a line.

    Raises
    ------
    MeasurementError
        The file cannot be written.
    """
    data = asdict(counters)
    rungs = data.pop("rungs")
    write_json({"schema": SCHEMA, "provenance": data, "rungs": rungs}, path, list_a_line=True)


def read_executed_counters(path: Path) -> ExecutedCounters:
    """Read what :func:`write_executed_counters` wrote.

    Raises
    ------
    MeasurementError
        The file is not there or holds something else.
    """
    data = read_json(path, SCHEMA, "file of executed counters", _REMEDY)
    try:
        rungs = {name: _execution(values) for name, values in data["rungs"].items()}
        return ExecutedCounters(rungs=rungs, **data["provenance"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MeasurementError(
            f"{path} does not have the fields of executed counters: {error}", _REMEDY
        ) from error


def _execution(values: Mapping[str, Any]) -> RungExecution:
    lists = values["instructions"]
    mnemonics = tuple(values["mnemonics"])
    columns = {name: tuple(column) for name, column in lists.items()}
    for name, column in columns.items():
        if len(column) != len(mnemonics):
            raise ValueError(f"{name} has {len(column)} of {len(mnemonics)} instructions")
    return RungExecution(**{**values, "mnemonics": mnemonics, "instructions": columns})


@lru_cache(maxsize=1)
def executed_counters() -> ExecutedCounters:
    """Read the committed counters.

    Raises
    ------
    SourceNotFoundError
        They are not there.
    MeasurementError
        They cannot be read.
    """
    path = timings_directory() / _FILE
    if not path.is_file():
        raise SourceNotFoundError(f"there is no {path}", _REMEDY)
    return read_executed_counters(path)
