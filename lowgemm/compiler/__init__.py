"""NVRTC: source to `Build` (cubin, PTX, resources, log), with a disk cache that cannot be stale."""

from lowgemm.compiler.build import Build, CompiledKernel, KernelResources
from lowgemm.compiler.cache import DEFAULT, Cache
from lowgemm.compiler.compile import (
    compile_file,
    compile_many,
    compile_source,
    find_own_headers,
)
from lowgemm.compiler.log import parse_log

__all__ = [
    "DEFAULT",
    "Build",
    "Cache",
    "CompiledKernel",
    "KernelResources",
    "compile_file",
    "compile_many",
    "compile_source",
    "find_own_headers",
    "parse_log",
]
