"""Machine-code reports of builds and cubins, kept on disk by what they depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import lowgemm
from lowgemm.analysis import LoopReport, SassReport, analyse_build
from lowgemm.analysis.sass import analyse_cubin
from lowgemm.binary.instruction import SourceLine
from lowgemm.binary.sass import disassemble
from lowgemm.compiler import Build, Cache
from lowgemm.compiler.store import Store
from lowgemm.studies.ladder import CompiledRung
from lowgemm.toolchain import cache_directory, tool_version

__all__ = ["inspect_build", "inspect_builds", "inspect_cubin", "inspect_ladder"]

# The packages whose code decides what a report says.
_JUDGES = ("isa", "binary", "analysis", "hardware")


def inspect_build(build: Build) -> tuple[SassReport, ...]:
    """Report on every kernel of a build.

    Raises
    ------
    CubinError, ToolNotFoundError, ToolFailedError, ToolTimeoutError
        See :func:`lowgemm.binary.sass.disassemble`.
    """
    told = [
        (k.name, k.display_name, k.name_expressions, asdict(k.resources)) for k in build.kernels
    ]
    context = json.dumps([str(build.arch), told])
    return _kept(build.cubin, context, lambda: analyse_build(build, disassemble(build.cubin)))


def inspect_builds(builds: Sequence[Build]) -> tuple[tuple[SassReport, ...], ...]:
    """Report on many builds; nvdisasm runs for two of them at a time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return tuple(pool.map(inspect_build, builds))


def inspect_ladder(compiled: Sequence[CompiledRung]) -> dict[tuple[str, str], SassReport]:
    """Report on rungs' instances for aligned rows, by rung and architecture."""
    found = inspect_builds([item.build for item in compiled])
    return {
        (item.rung.name, str(item.arch)): report
        for item, reports in zip(compiled, found, strict=True)
        for report in reports
        if report.symbol == item.kernel.name
    }


def inspect_cubin(cubin: bytes) -> tuple[SassReport, ...]:
    """Report on every kernel of a cubin, whose spills nobody knows.

    Raises
    ------
    CubinError, ToolNotFoundError, ToolFailedError, ToolTimeoutError
        See :func:`lowgemm.binary.sass.disassemble`.
    """
    return _kept(cubin, "", lambda: analyse_cubin(disassemble(cubin)))


def _kept(
    cubin: bytes, context: str, make: Callable[[], tuple[SassReport, ...]]
) -> tuple[SassReport, ...]:
    if Cache.default() is None:  # LOWGEMM_CACHE=0
        return make()
    store = Store(cache_directory() / "reports", "json")
    key = hashlib.sha256(
        b"\0".join((_judges(), tool_version("nvdisasm").encode(), context.encode(), cubin))
    ).hexdigest()
    kept = store.load(key)
    if kept is not None:
        return tuple(_report(fields) for fields in json.loads(kept))
    reports = make()
    store.save(key, json.dumps([asdict(report) for report in reports]).encode())
    return reports


@lru_cache(maxsize=1)
def _judges() -> bytes:
    """A hash over the code that makes reports: a kept report is never older than it."""
    root = Path(lowgemm.__file__).parent
    digest = hashlib.sha256()
    for package in _JUDGES:
        for path in sorted((root / package).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _report(fields: dict[str, Any]) -> SassReport:
    loops = tuple(_loop(loop) for loop in fields.pop("loops"))
    fields |= {name: tuple(fields[name]) for name in ("external_calls", "name_expressions")}
    return replace(SassReport(**fields, loops=()), loops=loops)


def _loop(fields: dict[str, Any]) -> LoopReport:
    lines = tuple(SourceLine(**line) for line in fields.pop("lines"))
    return LoopReport(**fields, lines=lines)
