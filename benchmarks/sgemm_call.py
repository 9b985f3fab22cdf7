"""What one call of sgemm() costs the host, beside torch.mm and CuPy's matmul.

Usage: python benchmarks/sgemm_call.py [--json FILE] [--rounds N] [--calls N] [SIZE ...]

Each way computes the same product of small square matrices, into an array that is there already, in
batches that are interleaved round by round. A batch is shorter than the GPU's queue, and the GPU is
idle before each: where the GPU needs less for a product than the host for a call, a batch measures
the host alone. The median over the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from host_launch import Ways, cell, interleaved

import lowgemm
from lowgemm.device import Gpu, driver_version
from lowgemm.gemm import GemmProblem, Sgemm, SgemmCall

Call = Callable[[], object]


def ours_prepared(gpu: Gpu, size: int) -> Call:
    arrays = [gpu.zeros((size, size)) for _ in range(3)]
    launch = Sgemm(gpu).prepare(SgemmCall.of(GemmProblem(size, size, size)))
    a, b, c = (array.pointer for array in arrays)

    def call(keep: object = arrays) -> None:
        launch(c, a, b, 1.0, 0.0)

    return call


def ours(gpu: Gpu, size: int) -> Call:
    a, b, c = (gpu.zeros((size, size)) for _ in range(3))
    return partial(lowgemm.sgemm, a, b, c)


def ours_torch(gpu: Gpu, size: int) -> Call:
    import torch

    a, b, c = (torch.zeros(size, size, device="cuda") for _ in range(3))
    return partial(lowgemm.sgemm, a, b, c)


def ours_cupy(gpu: Gpu, size: int) -> Call:
    import cupy

    a, b, c = (cupy.zeros((size, size), "f4") for _ in range(3))
    return partial(lowgemm.sgemm, a, b, c)


def torch_mm(gpu: Gpu, size: int) -> Call:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b, c = (torch.zeros(size, size, device="cuda") for _ in range(3))
    return partial(torch.mm, a, b, out=c)


def cupy_matmul(gpu: Gpu, size: int) -> Call:
    import cupy

    a, b, c = (cupy.zeros((size, size), "f4") for _ in range(3))
    return partial(cupy.matmul, a, b, out=c)


WAYS: dict[str, Callable[[Gpu, int], Call]] = {
    "sgemm, prepared": ours_prepared,
    "sgemm, own arrays": ours,
    "sgemm, torch arrays": ours_torch,
    "sgemm, CuPy arrays": ours_cupy,
    "torch.mm": torch_mm,
    "cupy.matmul": cupy_matmul,
}


def measure(gpu: Gpu, size: int, rounds: int, calls: int) -> dict[str, dict[str, Any]]:
    """The host's microseconds per call of each way, over interleaved rounds."""
    ways: Ways = {}
    for name, make in WAYS.items():
        try:
            ways[name] = make(gpu, size)
        except Exception as error:
            ways[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return interleaved(gpu, ways, rounds, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[32, 128])
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--calls", type=int, default=200, help="per batch; below 1024")
    options = parser.parse_args()
    gpu = Gpu()
    results = {
        str(size): measure(gpu, size, options.rounds, options.calls) for size in options.sizes
    }
    print(
        f"{gpu.name}, driver for CUDA {'.'.join(map(str, driver_version()))}, "
        f"Python {platform.python_version()}: host microseconds per call"
    )
    print(f"{'':22}" + "".join(f"{f'{size} x {size}':>30}" for size in results))
    for way in WAYS:
        print(f"{way:22}" + "".join(f"{cell(result[way]):>30}" for result in results.values()))
    if options.json:
        record = {
            "gpu": gpu.name,
            "driver": driver_version(),
            "python": platform.python_version(),
            "calls_per_batch": options.calls,
            "host_cost_per_call": results,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
