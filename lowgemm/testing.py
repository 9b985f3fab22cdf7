"""For the test files of lowgemm's users: assert what the compiler makes of a kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lowgemm.analysis.expectations import (
    Expectation,
    instances,
    parse_clauses,
    parse_expectations,
)
from lowgemm.compiler import compile_source
from lowgemm.errors import SourceNotFoundError
from lowgemm.gemm import RUNG_NAMES
from lowgemm.hardware import Architecture
from lowgemm.studies.checking import CheckReport, check_builds, check_file
from lowgemm.view.check import check_text

__all__ = ["assert_sass"]

# No file is called so: source lines come from the text.
_TEXT_NAME = "<text>.cu"
_FILE_NAME = re.compile(r"[^{;\r]*\.[A-Za-z]\w*")


def assert_sass(
    source_or_path: str | Path,
    *expectations: str,
    arch: str | Sequence[str] = "sm_90",
    **compile_options: Any,
) -> None:
    """Assert that a kernel compiles to what is expected; no GPU is needed.

    Parameters
    ----------
    source_or_path
        A ``.cu`` file, a rung's name, or CUDA C++ itself. One line that ends as a file's name does
        and has neither ``{`` nor ``;`` is a file.
    expectations
        Such as ``"hot_loop.LDS.128 == 4"``, also several with ``;`` between them; those in the
        source's comments are checked besides. See :mod:`lowgemm.analysis.expectations`.
    arch
        An architecture, or several.
    compile_options
        ``defines``, ``include_dirs``, ``options``, ``name_expressions``: as in
        :func:`lowgemm.compile_file`.

    Raises
    ------
    AssertionError
        One does not hold; its text is that of ``lowgemm check``.
    ExpectationError, CompilationError
        One cannot be read, or nothing is expected on an architecture; the source does not compile.
    SourceNotFoundError
        The file cannot be read, or the source is neither a path nor a text.
    UnknownArchitectureError
        An architecture is none.

    Examples
    --------
    >>> assert_sass("ex8", "hot_loop.FFMA == 512", "spill_store_bytes == 0", arch="sm_90")
    """
    __tracebackhide__ = True
    archs = _archs(arch)
    if not isinstance(source_or_path, str | Path):
        raise SourceNotFoundError(
            f"{source_or_path!r} is no source but a {type(source_or_path).__name__}",
            "give the path of a .cu file, a rung's name or CUDA C++ as a text",
        )
    if _is_path(source_or_path):
        report = check_file(source_or_path, archs, expectations=expectations, **compile_options)
    else:
        report = _check_text(str(source_or_path), archs, expectations, compile_options)
    if not report.passed:
        raise AssertionError(check_text([report]))


def _archs(arch: object) -> list[str]:
    archs = list(arch) if isinstance(arch, list | tuple | set | frozenset) else [arch]
    return [str(Architecture.parse(item)) for item in archs]  # type: ignore[arg-type]


def _is_path(source: str | Path) -> bool:
    if isinstance(source, Path) or source.lower() in RUNG_NAMES:
        return True
    if "\n" in source or source.lstrip().startswith("#"):
        return False
    return source.endswith(".cu") or _FILE_NAME.fullmatch(source) is not None


def _check_text(
    text: str, archs: Sequence[str], expectations: Sequence[str], compile_options: dict[str, Any]
) -> CheckReport:
    wanted: list[Expectation] = [
        *parse_expectations(text, _TEXT_NAME),
        *(item for text in expectations for item in parse_clauses(text)),
    ]
    given = compile_options.pop("name_expressions", ())
    names = tuple(dict.fromkeys([*given, *instances(wanted)]))
    builds = [
        compile_source(text, name=_TEXT_NAME, arch=arch, name_expressions=names, **compile_options)
        for arch in archs
    ]
    return check_builds(_TEXT_NAME, builds, wanted, text=text)
