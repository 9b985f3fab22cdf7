"""Compile CUDA C++ for one architecture or several, through the cache."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lowgemm.compiler.build import Build, CompiledKernel, assemble_kernels
from lowgemm.compiler.cache import DEFAULT, Cache, CachedOutput, DefaultCache
from lowgemm.compiler.kernels import kernel_names
from lowgemm.compiler.nvrtc import Program, check_architecture, run_program
from lowgemm.compiler.sources import HOST_HEADERS, HeaderSet, find_headers
from lowgemm.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CompilationError,
    CubinError,
    EmptyCubinError,
    SourceNotFoundError,
)
from lowgemm.hardware import Architecture
from lowgemm.toolchain import (
    cuda_include_dirs,
    nvrtc_full_version,
    nvrtc_library,
    nvrtc_version,
)

__all__ = ["compile_file", "compile_many", "compile_source", "find_own_headers", "read_source"]

Define = str | int | float | bool | None
CacheChoice = Cache | DefaultCache | None

_CACHE_FORMAT = 2
_MACRO = re.compile(r"([A-Za-z_]\w*)(?:=(.*))?", re.ASCII | re.DOTALL)
# Options that make NVRTC read or write files which the header scan does not see.
_TOUCHES_FILES = re.compile(
    r"(?!-[DIU])-{1,2}[a-z-]*(?:pch|trace|time|bundled|include$|include=|options-file|optf)"
)
_ARCHITECTURE = re.compile(r"-arch\b|--gpu-architecture\b")
# NVRTC declares by itself what these declare; sources written for nvcc include them.
_STUBS = ("cuda_runtime.h", "device_launch_parameters.h")
# Headers that CUDA's directories lack, so that looking there, and unpacking 26 MB, is in vain.
_NOT_IN_CUDA = {*_STUBS, *HOST_HEADERS}
# What NVRTC trims from an option. Not more: a directory may end in a blank of Unicode.
_BLANKS = " \t\n\v\f\r"
_VALUED = re.compile(r"(-I|--include-path|-D|--define-macro)(=?)(.*)", re.DOTALL)


def compile_file(
    path: str | Path,
    *,
    arch: str | int | Architecture,
    defines: Mapping[str, Define] | None = None,
    include_dirs: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    line_info: bool = True,
    cache: CacheChoice = DEFAULT,
) -> Build:
    """Compile a ``.cu`` file.

    Parameters
    ----------
    path
        The source. Quoted includes are looked for beside it.
    arch
        A real architecture: ``"sm_90"``, ``90``, ``"9.0"``, ``"sm_90a"``.
    defines
        Macros: None defines the name alone, True and False give 1 and 0.
    include_dirs
        Directories for includes, in order. CUDA's own headers need not be given: if the source
        includes something that is not here, their directories are added at the end.
    options
        Further options for NVRTC, in order (``"--use_fast_math"``). C++17 unless one says
        ``-std=``.
    name_expressions
        Instances of templates to compile: ``("ex8<true>",)``.
    line_info
        Whether the cubin names source lines.
    cache
        A `Cache`, None for none, or `DEFAULT`.

    Returns
    -------
    Build

    Raises
    ------
    SourceNotFoundError
        The file is not there or cannot be read.
    UnknownArchitectureError
        The architecture is unknown to this NVRTC.
    CompilationError
        NVRTC refused the source or an option.
    EmptyCubinError
        The source has no kernel, or only templates of which no instance was asked for.
    ArgumentTypeError, ArgumentValueError
        A define, directory, option or name is impossible.
    CubinError
        NVRTC made something else than what was asked for.
    ToolNotFoundError
        NVRTC is not installed.
    """
    source, absolute = read_source(path)
    job = _job(source, absolute, defines, include_dirs, options, name_expressions, line_info)
    return _build(job, Architecture.parse(arch), Path(absolute), _chosen(cache))


def compile_source(
    text: str,
    *,
    name: str = "kernel.cu",
    arch: str | int | Architecture,
    defines: Mapping[str, Define] | None = None,
    include_dirs: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    line_info: bool = True,
    cache: CacheChoice = DEFAULT,
) -> Build:
    """Compile a text.

    ``name`` stands for its path in messages and line information, and quoted includes are looked
    for beside it; a relative one counts from the working directory. The rest is as in
    :func:`compile_file`.
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(
            f"the source is a {type(text).__name__}, not a text",
            "give str; compile_file() takes a path",
        )
    absolute = str(Path(_checked_path("the name", name)).absolute())
    source = _encoded("the source", text)
    job = _job(source, absolute, defines, include_dirs, options, name_expressions, line_info)
    return _build(job, Architecture.parse(arch), None, _chosen(cache))


def compile_many(
    path: str | Path,
    archs: Sequence[str | int | Architecture],
    *,
    defines: Mapping[str, Define] | None = None,
    include_dirs: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    line_info: bool = True,
    cache: CacheChoice = DEFAULT,
) -> dict[Architecture, Build]:
    """Compile a ``.cu`` file for several architectures, side by side in threads.

    NVRTC's binding releases the interpreter lock: two architectures on two cores take the time of
    one. Parameters and errors are those of :func:`compile_file`; all architectures are checked
    before the first is compiled.

    Returns
    -------
    dict
        A build per architecture, in the order asked for.
    """
    source, absolute = read_source(path)
    job = _job(source, absolute, defines, include_dirs, options, name_expressions, line_info)
    wanted = list(dict.fromkeys(Architecture.parse(arch) for arch in archs))
    for arch in wanted:
        check_architecture(arch)
    store = _chosen(cache)
    workers = max(1, min(len(wanted), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers) as pool:
        builds = pool.map(lambda arch: _build(job, arch, Path(absolute), store), wanted)
        return dict(zip(wanted, builds, strict=True))


# ---- what to compile


def find_own_headers(
    path: str | Path,
    *,
    defines: Mapping[str, Define] | None = None,
    include_dirs: Sequence[str | Path] = (),
    options: Sequence[str] = (),
) -> tuple[Path, ...]:
    """The headers in a source's folder, or below it, that compiling the source may read.

    Whether an ``#if`` around an ``#include`` holds is not asked.

    Parameters
    ----------
    path
        The ``.cu`` file.
    defines, include_dirs, options
        As in :func:`compile_file`.

    Raises
    ------
    SourceNotFoundError
        The file cannot be read.
    """
    source, name = read_source(path)
    job = _job(source, name, defines, include_dirs, options, (), line_info=True)
    folder = Path(name).parent
    headers = (Path(header) for header, _ in job.headers.files)
    return tuple(header for header in headers if header.is_relative_to(folder))


@dataclass(frozen=True, slots=True)
class _Job:
    """A source with all that does not depend on the architecture."""

    source: bytes
    path: str
    options: tuple[str, ...]
    name_expressions: tuple[str, ...]
    stubs: tuple[str, ...]
    directories: tuple[str, ...]
    macros: Mapping[str, str]
    headers: HeaderSet

    def program(self, arch: Architecture) -> Program:
        options = (f"-arch={arch}", *self.options)
        return Program(self.source, self.path, options, self.name_expressions, self.stubs)

    def scan(self) -> HeaderSet:
        return find_headers(self.source, self.path, self.directories, self.macros)

    @property
    def is_cacheable(self) -> bool:
        touches = any(_touches_files(option) for option in self.options)
        return not (self.headers.doubts or self.headers.uses_clock or touches)


def _encoded(what: str, text: str) -> bytes:
    """A text as NVRTC takes it; Python's stand-ins for undecodable bytes become these bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ArgumentValueError(
            f"{what} holds the lone surrogate {text[error.start]!r}", "give Unicode text"
        ) from error


def _checked_text(what: str, text: object) -> str:
    """A text for NVRTC, which reads up to the first NUL."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{what} {text!r} is not a text", "give str")
    if b"\0" in _encoded(what, text):
        raise ArgumentValueError(f"{what} {text!r} holds a NUL character", "leave it out")
    return text


def _checked_path(what: str, path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(f"{what} {path!r} is not a path", "give str or pathlib.Path")
    return _checked_text(what, os.fspath(path))


def read_source(path: str | Path) -> tuple[bytes, str]:
    """A source file's content and its absolute path.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The path is none.
    SourceNotFoundError
        It cannot be read.
    """
    absolute = str(Path(_checked_path("the path", path)).absolute())
    try:
        source = Path(absolute).read_bytes()
    except OSError as error:
        raise SourceNotFoundError(
            f"{absolute} cannot be read: {error.strerror or error}",
            f"check the path; the working directory is {Path.cwd()}",
        ) from error
    return source, absolute


def _without_nvrtc_cache() -> list[str]:
    """From 12.9 on, NVRTC keeps a cache of its own where there is a driver.

    What comes from there has no ptxas log, so neither spills nor barriers would be known.
    """
    return ["--no-cache"] if nvrtc_version() >= (12, 9) else []


def _job(
    source: bytes,
    path: str,
    defines: Mapping[str, Define] | None,
    include_dirs: Sequence[str | Path],
    options: Sequence[str],
    name_expressions: Sequence[str],
    line_info: bool,
) -> _Job:
    if source.startswith(b"\x7fELF"):
        raise CompilationError(
            f"{path} is no CUDA source but an ELF file, machine code", "give CUDA C++ as UTF-8 text"
        )
    if b"\0" in source:
        raise CompilationError(f"{path} holds a NUL byte", "give CUDA C++ as UTF-8 text")
    source = source.removeprefix(b"\xef\xbb\xbf")  # NVRTC refuses a byte order mark
    macro_options = _defines(defines)
    own = [_directory(directory) for directory in _sequence("include_dirs", include_dirs)]
    options = _trimmed(_sequence("options", options))
    names = [
        _checked_text("the name expression", name)
        for name in _sequence("name_expressions", name_expressions)
    ]
    given_directories, macros = _read_options([*macro_options, *options])
    directories = [*own, *given_directories]
    headers = find_headers(source, path, directories, macros)
    extra: list[str] = []
    if _needs_cuda_headers(headers):
        extra = [str(directory) for directory in cuda_include_dirs()]
        headers = find_headers(source, path, [*directories, *extra], macros)
    standard = [] if any(re.match(r"-{1,2}std\b", o) for o in options) else ["-std=c++17"]
    return _Job(
        source=source,
        path=path,
        options=(
            *standard,
            *(["-lineinfo"] if line_info else []),
            "--ptxas-options=-v",
            *_without_nvrtc_cache(),
            *macro_options,
            *(f"-I{directory}" for directory in own),
            *options,
            *(f"-I{directory}" for directory in extra),
        ),
        name_expressions=tuple(names),
        stubs=_needed_stubs(headers),
        directories=(*directories, *extra),
        macros=macros,
        headers=headers,
    )


def _needs_cuda_headers(headers: HeaderSet) -> bool:
    named = headers.missing | headers.probed
    return bool(named - _NOT_IN_CUDA or headers.doubts)


def _needed_stubs(headers: HeaderSet) -> tuple[str, ...]:
    there = {Path(path).name for path, _ in headers.files}
    return tuple(name for name in _STUBS if name in headers.missing and name not in there)


def _sequence(what: str, given: Any) -> list[Any]:
    if isinstance(given, (str, bytes)):
        raise ArgumentTypeError(
            f"{given!r} is one text where a sequence is needed", f"write ({given!r},)"
        )
    try:
        return list(given)
    except TypeError as error:
        raise ArgumentTypeError(f"{what} is {given!r}, not a sequence", "give a tuple") from error


def _directory(given: object) -> str:
    directory = str(Path(_checked_path("the include directory", given)).absolute())
    if directory != directory.strip(_BLANKS):
        raise ArgumentValueError(
            f"the include directory {directory!r} ends in a blank, which NVRTC leaves out",
            "rename it, or give another path to it",
        )
    return directory


def _trimmed(options: Sequence[Any]) -> list[str]:
    """The options without the blanks around them and their values, as NVRTC takes them."""
    trimmed = []
    for option in options:
        text = _checked_text("the option", option).strip(_BLANKS)
        match = _VALUED.fullmatch(text)
        if match:
            text = f"{match[1]}{match[2]}{match[3].strip(_BLANKS)}"
        trimmed.append(text)
    return trimmed


def _defines(defines: Mapping[str, Define] | None) -> list[str]:
    if defines is None:
        return []
    if not isinstance(defines, Mapping):
        raise ArgumentTypeError(
            f"defines is {defines!r}, not a mapping", 'give {"NAME": value, ...}'
        )
    return [_define(name, value) for name, value in defines.items()]


def _define(name: str, value: Define) -> str:
    match = _MACRO.fullmatch(name) if isinstance(name, str) else None
    if match is None or match[2] is not None:
        raise ArgumentValueError(
            f"{name!r} is not the name of a macro", "use letters, digits and underscores"
        )
    if value is None:
        return f"-D{name}"
    if isinstance(value, str):
        if "\n" in value or "\r" in value or "\0" in value:
            raise ArgumentValueError(
                f"the macro {name} has more than one line: {value!r}", "give one line"
            )
        _encoded(f"the macro {name}", value)
        return f"-D{name}={value.strip(_BLANKS)}"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ArgumentValueError(
                f"the macro {name} is {value}, for which C++ has no literal", "give it as text"
            )
        return f"-D{name}={float(value)!r}"
    try:
        return f"-D{name}={operator.index(value)}"
    except TypeError:
        raise ArgumentTypeError(
            f"the macro {name} is a {type(value).__name__}", "give str, int, float, bool or None"
        ) from None


def _read_options(options: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Include directories and macros among NVRTC options, in any of their spellings."""
    directories: list[str] = []
    macros: dict[str, str] = {}
    remaining = iter(options)
    for option in remaining:
        if _ARCHITECTURE.match(option):
            raise CompilationError(f"{option!r} is among the options", "name it with arch=")
        match = _VALUED.fullmatch(option)
        if match is None:
            continue
        value = match[3] or next(remaining, "")
        if match[1] in ("-I", "--include-path"):
            directories.append(str(Path(value).absolute()))
        elif macro := _MACRO.match(value):
            # What follows the name of a macro with parameters is no body, but may look for headers.
            macros[macro[1]] = macro[2] if macro[2] is not None else value[macro.end() :]
    return directories, macros


def _touches_files(option: str) -> bool:
    return not option.startswith("--include-path") and bool(_TOUCHES_FILES.match(option))


# ---- compile it


def _chosen(cache: CacheChoice) -> Cache | None:
    return Cache.default() if isinstance(cache, DefaultCache) else cache


def _build(job: _Job, arch: Architecture, source: Path | None, cache: Cache | None) -> Build:
    check_architecture(arch)
    program = job.program(arch)
    if cache is None or not job.is_cacheable:
        return _assemble(program, arch, source, run_program(program))
    key = _key(program, arch, job.headers)
    stored = cache.load(key)
    if stored is not None:
        try:
            return replace(_assemble(program, arch, source, stored), from_cache=True)
        except (CubinError, EmptyCubinError):
            pass  # damaged in a way that its checksum does not show: compile anew
    output = run_program(program)
    build = _assemble(program, arch, source, output)
    # A header may have changed between the scan and NVRTC's reading it.
    if job.scan() == job.headers:
        cache.store(key, output)
    return build


def _key(program: Program, arch: Architecture, headers: HeaderSet) -> str:
    library = nvrtc_library()
    try:
        status = library.stat()
        identity = [str(library), status.st_size, status.st_mtime_ns]
    except OSError:
        identity = [str(library)]
    parts = [
        _CACHE_FORMAT,
        nvrtc_full_version(),
        identity,
        str(arch),
        program.path,  # stands in line information and in __FILE__
        program.options,
        program.name_expressions,
        program.stubs,
        hashlib.sha256(program.source).hexdigest(),
        headers.files,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _assemble(
    program: Program, arch: Architecture, source: Path | None, output: CachedOutput
) -> Build:
    kernels: tuple[CompiledKernel, ...] = ()
    if output.cubin:
        kernels = assemble_kernels(output.cubin, output.ptx, output.log, output.lowered, arch)
    if not kernels:
        raise _empty(program)
    return Build(
        source=source,
        arch=arch,
        cubin=output.cubin,
        ptx=output.ptx,
        log=output.log,
        kernels=kernels,
        nvrtc_version=nvrtc_full_version(),
        options=program.options,
    )


def _empty(program: Program) -> EmptyCubinError:
    text = program.source.decode("utf-8", errors="replace")
    templates = kernel_names(text, templates=True)
    if templates:
        return EmptyCubinError(
            f"{program.path} compiled to no kernel: of its templates ({', '.join(templates)}) no "
            "instance was asked for",
            f"name one: -k '{templates[0]}<float>' on a command line, "
            f'name_expressions=("{templates[0]}<float>",) in Python',
        )
    if "__global__" in text:
        remedy = "check its #if conditions; a template needs an instance by name, and -dlto no code"
    else:
        remedy = "mark a function __global__"
    return EmptyCubinError(f"{program.path} compiled to no kernel", remedy)
