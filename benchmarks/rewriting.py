"""What rewriting a rung's hot loop gains on the GPU at hand.

Usage: python benchmarks/rewriting.py [--size N] [RUNG ...]

Each rung is compiled, its hot loop rewritten, and both kernels launched on the same random data:
the bits of their results are compared, and their times taken in turns.
"""

from __future__ import annotations

import argparse

import numpy as np

from lowgemm.device import Gpu
from lowgemm.errors import RewriteError
from lowgemm.gemm import GemmProblem, Rung, compile_rung, rung
from lowgemm.measure import measure
from lowgemm.rewrite import rewrite_kernel
from lowgemm.runtime import Array


def compare(gpu: Gpu, item: Rung, p: GemmProblem, a: Array, b: Array) -> str:
    """One line: whether the bits are equal, and the speed before and after."""
    build = compile_rung(item, gpu.architecture)
    symbol = build.kernel(item.instance(aligned=True)).name
    try:
        made = rewrite_kernel(build.cubin, symbol)
    except RewriteError as error:
        return f"stays as it is: {error.what}"
    stream = gpu.stream()
    results = [gpu.zeros(p.c_elements) for _ in range(2)]
    launches = []
    for cubin, c in zip((build.cubin, made.cubin), results, strict=True):
        launch, kernel = item.launch(gpu, p, a, b, c), gpu.load(cubin).kernel(symbol)
        launches.append(kernel.prepare(*launch.arguments, **launch.geometry, stream=stream))
    for each in launches:
        each.launch()
    stream.synchronize()
    one, two = (c.download().view(np.uint32) for c in results)
    names = dict(zip(("before", "after"), (each.launch for each in launches), strict=True))
    times = measure(names, stream=stream, new_event=gpu.event)
    before, after = (p.flop / times[name].median_us / 1e6 for name in names)
    equal = "equal" if np.array_equal(one, two) else "DIFFERENT"
    return f"bits {equal}, {before:.2f} -> {after:.2f} TFLOP/s ({after / before - 1:+.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rungs", nargs="*", default=["ex8", "ex9", "ex10", "two_ideas"])
    parser.add_argument("--size", default="4096")
    options = parser.parse_args()
    gpu = Gpu()
    p = GemmProblem.parse(options.size)
    rng = np.random.default_rng(0)
    a, b = (gpu.upload(rng.random(n, np.float32) * 2 - 1) for n in (p.a_elements, p.b_elements))
    print(f"{gpu.name}, {p}")
    for name in options.rungs:
        print(f"{name:10} {compare(gpu, rung(name, gpu.architecture), p, a, b)}", flush=True)


if __name__ == "__main__":
    main()
