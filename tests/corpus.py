"""The cubins that the tests of machine code read: every rung and twenty other kernels."""

from __future__ import annotations

import hashlib
import pickle
from functools import cache
from pathlib import Path

from lowgemm.binary.sass import SassKernel, disassemble
from lowgemm.compiler import Build, compile_file
from lowgemm.compiler.store import Store
from lowgemm.gemm import RUNG_NAMES, compile_rung, rung
from lowgemm.toolchain import cache_directory

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
OTHERS = tuple(sorted(path.stem for path in (Path(__file__).parent / "kernels").glob("*.cu")))
ALL = (*RUNG_NAMES, *OTHERS)


@cache
def build(name: str, arch: str) -> Build:
    """A rung, or a file of ``tests/kernels``, compiled once a process."""
    if name in RUNG_NAMES:
        return compile_rung(rung(name, arch), arch)
    return compile_file(Path(__file__).parent / "kernels" / f"{name}.cu", arch=arch)


@cache
def kernels(name: str, arch: str) -> tuple[SassKernel, ...]:
    """Its machine code with nvdisasm's text, disassembled once a test run."""
    cubin = build(name, arch).cubin
    kept = Store(cache_directory() / "disassembled", "pickle")
    key = hashlib.sha256(cubin).hexdigest()
    if (content := kept.load(key)) is not None:
        found: tuple[SassKernel, ...] = pickle.loads(content)  # of this run's own cache
        return found
    made = disassemble(cubin, live_registers=False)
    kept.save(key, pickle.dumps(made))
    return made
