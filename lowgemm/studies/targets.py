"""What a command line names: a rung of the ladder, a ``.cu`` file, or a ``.cubin`` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lowgemm.compiler import Build, compile_many
from lowgemm.errors import SourceNotFoundError, UnknownRungError
from lowgemm.gemm import RUNG_NAMES, compile_rung, rung
from lowgemm.hardware import Architecture
from lowgemm.studies.releases import compile_with, find_release

__all__ = ["is_cubin", "is_rung", "load_cubin", "refuse_cubin", "resolve_builds"]


def is_cubin(target: str | Path) -> bool:
    """Whether a target is the name of a cubin, in any case of letters."""
    return str(target).lower().endswith(".cubin")


def is_rung(target: str) -> bool:
    """Whether a target is a rung's name, in any case of letters.

    Raises
    ------
    UnknownRungError
        It can be nothing else, having no suffix and being no file, and there is no such rung.
    """
    if target.lower() in RUNG_NAMES:
        return True
    if not Path(target).suffix and not Path(target).exists():
        raise UnknownRungError(
            f"{target!r} is neither a rung nor a file", f"the ladder has {', '.join(RUNG_NAMES)}"
        )
    return False


def load_cubin(path: str | Path) -> bytes:
    """Read a ``.cubin`` file.

    Raises
    ------
    SourceNotFoundError
        It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SourceNotFoundError(
            f"{path} cannot be read: {error.strerror or error}", "name a .cubin file"
        ) from error


def refuse_cubin(target: str | Path) -> None:
    """Raise SourceNotFoundError where a cubin is named and its source is needed."""
    if is_cubin(target):
        raise SourceNotFoundError(
            f"{target} is no CUDA source but machine code", "name the .cu file that it is made from"
        )


def resolve_builds(
    target: str,
    archs: Sequence[Architecture | str],
    *,
    defines: Mapping[str, str | int | float | bool | None] | None = None,
    include_dirs: Sequence[str] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    nvrtc: str | None = None,
) -> tuple[Build, ...]:
    """Compile what a name stands for, for each architecture.

    Parameters
    ----------
    target
        A rung's name, compiled as its record says, or a path.
    archs
        The architectures, in order.
    defines, include_dirs, options, name_expressions
        For a path: as in :func:`lowgemm.compiler.compile_file`. For a rung: added to its own.
    nvrtc
        A release of NVRTC other than the installed one; see
        :func:`lowgemm.studies.releases.find_release`.

    Raises
    ------
    UnknownRungError, SourceNotFoundError
        It is neither a rung nor a file, or a cubin.
    CompilationError, UnknownArchitectureError, ToolNotFoundError
        See :func:`lowgemm.compiler.compile_file`.
    """
    refuse_cubin(target)
    wanted = list(dict.fromkeys(Architecture.parse(arch) for arch in archs))
    if nvrtc is not None:
        return compile_with(
            find_release(nvrtc),
            target,
            [str(arch) for arch in wanted],
            defines=defines,
            include_dirs=include_dirs,
            options=options,
            name_expressions=name_expressions,
        )
    if not is_rung(target):
        builds = compile_many(
            target,
            wanted,
            defines=defines,
            include_dirs=include_dirs,
            options=options,
            name_expressions=name_expressions,
        )
        return tuple(builds[arch] for arch in wanted)
    if not (defines or include_dirs or options or name_expressions):
        return tuple(compile_rung(rung(target, arch), arch) for arch in wanted)
    return tuple(
        build
        for arch in wanted
        for record in (rung(target, arch),)
        for build in compile_many(
            record.path,
            [arch],
            defines={**record.defines, **(defines or {})},
            include_dirs=include_dirs,
            options=options,
            name_expressions=[
                *(record.name_expressions if record.has_float4 else ()),
                *name_expressions,
            ],
        ).values()
    )
