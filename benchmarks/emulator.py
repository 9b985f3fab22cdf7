"""How fast the emulator is: ex9 at three sizes, beside the least that its FFMAs cost in numpy.

``python benchmarks/emulator.py`` prints seconds, the ratio to the time of the FFMAs alone (the same
number of fused multiply-adds, in blocks of the batch's lanes), and the process's peak memory.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from lowgemm.emulator import Emulator
from lowgemm.emulator.arithmetic import ffma
from lowgemm.gemm import GemmProblem, RungKernel, random_operands, rung
from lowgemm.studies.ladder import upload_operands

SIZES = (256, 512, 1024)
LANES = 4096


def emulated_seconds(size: int) -> float:
    """Seconds of one launch of ex9, compiled and loaded before."""
    problem = GemmProblem(size, size, size)
    with Emulator("sm_90") as device:
        kernel = RungKernel(device, rung("ex9", "sm_90"))
        a, b, c = (device.empty(size * size) for _ in "abc")
        upload_operands(problem, random_operands(problem), a, b)
        launch = kernel.prepare(problem, a, b, c)
        begin = time.perf_counter()
        launch.launch()
        return time.perf_counter() - begin


def ffma_seconds(size: int) -> float:
    """Seconds of as many exact FFMAs in blocks of the batch's lanes, nothing else."""
    calls, sample = size**3 // LANES, 2000
    generator = np.random.default_rng(0)
    a, b, c = (generator.random(LANES, np.float32).view(np.uint32) for _ in "abc")
    out = np.empty(LANES, np.uint32)
    with np.errstate(all="ignore"):
        begin = time.perf_counter()
        for _ in range(sample):
            ffma(a, b, c, out=out)
        each = (time.perf_counter() - begin) / sample
    return calls * each


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'ex9':>12}  {'seconds':>8}  {'/ FFMAs alone':>13}  {'peak MiB':>8}")
    for size in SIZES:
        seconds = emulated_seconds(size)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{size:>10}^3  {seconds:8.2f}  {seconds / ffma_seconds(size):13.2f}  {peak:8.0f}")


if __name__ == "__main__":
    main()
