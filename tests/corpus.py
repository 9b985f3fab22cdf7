"""The cubins that the tests of machine code read: every rung and thirty-two other files."""

from __future__ import annotations

import hashlib
import pickle
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lowgemm.binary import base_name
from lowgemm.binary.sass import SassKernel, disassemble
from lowgemm.compiler import Build, compile_file, compile_source
from lowgemm.compiler.store import Store
from lowgemm.gemm import RUNG_NAMES, compile_rung, rung
from lowgemm.toolchain import cache_directory

KERNELS = Path(__file__).parent / "kernels"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
OTHERS = tuple(sorted(path.stem for path in KERNELS.glob("*.cu")))
ALL = (*RUNG_NAMES, *OTHERS)


def case_name(case: Any) -> str:
    """The kernel's name in a case of :data:`EVERYWHERE`."""
    return str((case if isinstance(case, tuple) else case.values)[0])


def takes_long(name: str, arch: str) -> bool:
    """Whether a rung is large, or its loop rewritten, on an architecture that others stand for."""
    others = ("sm_90",) if name.endswith("_rewritten") else ("sm_90", "sm_100")
    return name.startswith(("ex11", "ex12", "ex13")) and arch not in others


#: Every kernel on every architecture.
EVERYWHERE = tuple(
    pytest.param(name, arch, marks=pytest.mark.slow) if takes_long(name, arch) else (name, arch)
    for name in ALL
    for arch in ARCHS
)
#: Files that hold more for architectures whose code runs on no other.
SPECIFIC = {
    "sm_90a": ("wgmma",),
    "sm_100a": ("tcgen05", "precision", "mma"),
    "sm_103a": ("tcgen05",),
    "sm_120a": ("precision", "mma"),
}

# A kernel whose only loop stands in a function that only a pointer names.
POINTER = """\
typedef float (*Function)(const float*, int);
__device__ __noinline__ float horner(const float* p, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) sum = sum * p[i] + 1.0f;
    return sum;
}
__device__ __noinline__ float pick(const float* p, int n) { return p[n]; }
__device__ Function table[2] = {horner, pick};
__global__ void k(const float* p, float* out, int n, int which) {
    out[threadIdx.x] = table[which](p, n);
}
"""


@cache
def build(name: str, arch: str) -> Build:
    """A rung, or a file of ``tests/kernels``, compiled once a process."""
    if name in RUNG_NAMES:
        return compile_rung(rung(name, arch), arch)
    return compile_file(KERNELS / f"{name}.cu", arch=arch)


@cache
def kernels(name: str, arch: str) -> tuple[SassKernel, ...]:
    """Its machine code with nvdisasm's text."""
    if name in RUNG_NAMES:
        return _disassembled(build(name, arch).cubin)
    text = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
    names = set(re.findall(r"__global__[^;{(]*?(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(", text))
    files = SPECIFIC.get(arch, OTHERS)
    return tuple(k for k in _together(arch, files) if base_name(k.name) in names)


@cache
def _together(arch: str, files: tuple[str, ...]) -> tuple[SassKernel, ...]:
    """Files of ``tests/kernels`` as one: nvdisasm's start costs more than their text."""
    text = "".join(f'#include "{name}.cu"\n' for name in files)
    made = compile_source(text, name=str(KERNELS / "all.cu"), arch=arch)
    return _disassembled(made.cubin)


def _disassembled(cubin: bytes) -> tuple[SassKernel, ...]:
    """Disassembled once a test run, whatever the process."""
    kept = Store(cache_directory() / "disassembled", "pickle")
    key = hashlib.sha256(cubin).hexdigest()
    if (content := kept.load(key)) is not None:
        found: tuple[SassKernel, ...] = pickle.loads(content)  # of this run's own cache
        return found
    made = disassemble(cubin, live_registers=False)
    kept.save(key, pickle.dumps(made))
    return made
