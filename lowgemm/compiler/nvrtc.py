"""The calls to NVRTC: the only place in lowgemm that makes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lowgemm.compiler.cache import CachedOutput
from lowgemm.compiler.kernels import kernel_names
from lowgemm.compiler.sources import HOST_HEADERS
from lowgemm.errors import CompilationError, UnknownArchitectureError
from lowgemm.hardware import Architecture
from lowgemm.toolchain import FIRST_BUNDLED, nvrtc_full_version, nvrtc_version

__all__ = ["Program", "check_architecture", "run_program", "supported_architectures"]

_MISSING_HEADER = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
# First compute capabilities with architecture-specific ("a") and family ("f") targets.
_FIRST_WITH_SUFFIX = {"": 0, "a": 90, "f": 100}


@dataclass(frozen=True, slots=True)
class Program:
    """All that NVRTC is given. ``stubs`` are names of headers that it shall find empty."""

    source: bytes
    path: str
    options: tuple[str, ...]
    name_expressions: tuple[str, ...]
    stubs: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def supported_architectures() -> tuple[int, ...]:
    """Numbers of the architectures that this NVRTC compiles for (90 for sm_90).

    Raises
    ------
    ToolNotFoundError
        NVRTC is not installed.
    """
    nvrtc_version()  # refuses in lowgemm's words if there is no NVRTC
    from cuda.bindings import nvrtc

    return tuple(int(number) for number in _checked(nvrtc.nvrtcGetSupportedArchs())[0])


def check_architecture(arch: Architecture) -> None:
    """Refuse an architecture that this NVRTC does not know.

    Raises
    ------
    UnknownArchitectureError
        The error lists those that it knows.
    """
    known = supported_architectures()
    if arch.number in known and arch.number >= _FIRST_WITH_SUFFIX.get(arch.suffix, 1 << 30):
        return
    names = ", ".join(f"sm_{number}" for number in known)
    raise UnknownArchitectureError(
        f"NVRTC {nvrtc_full_version()} does not compile for {arch}",
        f"it knows {names}; with suffix a from sm_90 on, with suffix f from sm_100 on",
    )


def run_program(program: Program) -> CachedOutput:
    """Compile; NVRTC's program object is destroyed whatever happens.

    The binding releases Python's interpreter lock while NVRTC compiles.

    Raises
    ------
    CompilationError
        NVRTC refused the source or an option.
    """
    from cuda.bindings import nvrtc

    names = [name.encode() for name in program.stubs]
    empty = [b"#pragma once\n" for _ in names]
    (handle,) = _checked(
        nvrtc.nvrtcCreateProgram(program.source, _encoded(program.path), len(names), empty, names)
    )
    try:
        return _compile(handle, program)
    finally:
        nvrtc.nvrtcDestroyProgram(handle)


def _compile(handle: Any, program: Program) -> CachedOutput:
    from cuda.bindings import nvrtc

    for expression in program.name_expressions:
        _checked(nvrtc.nvrtcAddNameExpression(handle, _encoded(expression)))
    options = [_encoded(option) for option in program.options]
    status = nvrtc.nvrtcCompileProgram(handle, len(options), options)[0]
    log = _text(handle, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    if int(status) != 0:
        raise _refusal(program, status, log)
    lowered = tuple(
        (name, _checked(nvrtc.nvrtcGetLoweredName(handle, _encoded(name)))[0].decode())
        for name in program.name_expressions
    )
    return CachedOutput(
        cubin=_bytes(handle, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        ptx=_text(handle, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
        log=log,
        lowered=lowered,
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _checked(answer: Any) -> Any:
    """The values of a binding's answer ``(status, value...)``."""
    status, *values = answer
    if int(status) != 0:
        raise CompilationError(
            f"NVRTC {nvrtc_full_version()} answered {status.name}",
            "check that libnvrtc and libnvrtc-builtins are of one version",
        )
    return values


def _bytes(handle: Any, get_size: Any, get: Any) -> bytes:
    (size,) = _checked(get_size(handle))
    buffer = bytes(size + 1)  # a fresh object, of which Python keeps no other copy
    if size:
        _checked(get(handle, buffer))  # the binding writes into the object that it is given
    return buffer[:size]


def _text(handle: Any, get_size: Any, get: Any) -> str:
    return _bytes(handle, get_size, get).rstrip(b"\0").decode("utf-8", errors="replace").rstrip(" ")


# ---- refusals


def _refusal(program: Program, status: Any, log: str) -> CompilationError:
    messages = log.strip() or status.name
    return CompilationError(
        f"NVRTC {nvrtc_full_version()} refused {program.path} ({status.name}):\n{messages}",
        _remedy(program, status.name, log),
        log=log,
    )


def _remedy(program: Program, status: str, log: str) -> str:
    missing = _MISSING_HEADER.search(log)
    if missing:
        return _header_remedy(program, missing[1])
    if "INVALID_OPTION" in status:
        return f"correct the options given: {' '.join(program.options)}"
    if "name expression" in log or "NAME_EXPRESSION" in status:
        names = ", ".join(kernel_names(program.source.decode(errors="replace")))
        return (
            f"a name expression must name a kernel of the source ({names or 'none'}), with all "
            f"template arguments: given were {', '.join(map(repr, program.name_expressions))}"
        )
    if "ptxas" in log and any('"' in text for text in (program.path, *program.options)):
        return (
            'line information cannot hold a path with a quotation mark ("): rename it, or compile '
            "with line_info=False"
        )
    if "JIT mode" in log:
        return (
            "NVRTC compiles device code alone: put host code behind #ifndef __CUDACC_RTC__, or "
            "mark variables and functions __device__ or __constant__"
        )
    return "correct the source at the line named above"


def _header_remedy(program: Program, name: str) -> str:
    flags = [option for option in program.options if option.startswith("-I")]
    searched = ", ".join(flag[2:] for flag in flags) or "(none)"
    advice = "give its directory with include_dirs (lowgemm compile: -I)"
    if name in HOST_HEADERS:
        advice = (
            "NVRTC has no headers of the host's C++ library: put it behind #ifndef __CUDACC_RTC__, "
            "or take <cuda/std/...>"
        )
    elif nvrtc_version() < FIRST_BUNDLED:
        advice += (
            "; CUDA's own headers come with NVRTC 13.3 and later, before that with "
            "pip install nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt"
        )
    return (
        f"{name} was looked for in the directory of the file that includes it (if quoted) and in "
        f"the include path: {searched}; {advice}"
    )
