"""What one launch costs the host, by each way to make it.

Usage: python benchmarks/host_launch.py [--json FILE] [--rounds N] [--launches N]

Each way launches the same two kernels, an empty one without arguments and an empty one with eight,
in batches that are interleaved round by round. A batch is shorter than the GPU's queue, and the
GPU is idle before each, so that a batch measures the host alone. The median over the rounds counts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowgemm.compiler import compile_source
from lowgemm.device import Gpu, driver_version
from lowgemm.device.driver import bindings
from lowgemm.runtime import pack

SOURCE = """
extern "C" __global__ void none() {}
extern "C" __global__ void eight(float* a, float* b, float* c, int m, int n, int k, float alpha,
                                 float beta) {}
"""

Launch = Callable[[], object]
Ways = dict[str, Launch | str]  # a string is the reason why a way is skipped


class Case:
    """One kernel with its arguments."""

    def __init__(self, gpu: Gpu, cubin: bytes, name: str, arguments: tuple[Any, ...]) -> None:
        self.gpu, self.cubin, self.name, self.arguments = gpu, cubin, name, arguments
        self.kernel = gpu.load(cubin).kernel(name)
        self.stream = gpu.stream()
        # Pointers as numbers, for the libraries that know nothing of lowgemm's arrays.
        self.raw = tuple(getattr(value, "pointer", value) for value in arguments)


def is_pointer(value: float) -> bool:
    return value >= 2**31


def ours_prepared(case: Case) -> Launch:
    prepared = case.kernel.prepare(*case.arguments, grid=1, block=32, stream=case.stream)
    launch: Launch = prepared.launch
    return launch


def ours_plain(case: Case) -> Launch:
    def launch() -> None:
        case.kernel.launch(*case.arguments, grid=1, block=32, stream=case.stream)

    return launch


def raw_bindings(case: Case) -> Launch:
    driver = bindings()
    packed = pack(case.kernel.signature, case.arguments)
    function = case.kernel.function
    stream = driver.CUstream(case.stream.handle)
    call, address = driver.cuLaunchKernel, packed.address

    def launch(packed: object = packed) -> None:
        (code,) = call(function, 1, 1, 1, 32, 1, 1, 0, stream, address, 0)
        if code:
            raise RuntimeError(code)

    return launch


def raw_ctypes(case: Case) -> Launch:
    driver = bindings()
    packed = pack(case.kernel.signature, case.arguments)
    address = int(driver.cuGetProcAddress(b"cuLaunchKernel", 12000, 1)[1])  # 1: legacy stream
    call = ctypes.CFUNCTYPE(ctypes.c_int)(address)
    shape = (1, 1, 1, 32, 1, 1, 0)
    arguments = (
        ctypes.c_void_p(int(case.kernel.function)),
        *(ctypes.c_uint(number) for number in shape),
        ctypes.c_void_p(case.stream.handle),
        ctypes.c_void_p(packed.address),
        ctypes.c_void_p(None),
    )

    def launch(packed: object = packed) -> None:
        code = call(*arguments)
        if code:
            raise RuntimeError(code)

    return launch


def cuda_core(case: Case) -> Launch:
    from cuda import core

    device = core.Device(case.gpu.ordinal)
    device.set_current()
    stream = core.Stream.from_handle(case.stream.handle)
    kernel = core.ObjectCode.from_cubin(case.cubin).get_kernel(case.name)
    config = core.LaunchConfig(grid=1, block=32)
    values = tuple(
        value
        if is_pointer(value)
        else (ctypes.c_float if isinstance(value, float) else ctypes.c_int)(value)
        for value in case.raw
    )

    def launch() -> None:
        core.launch(stream, config, kernel, *values)

    return launch


def cupy_raw(case: Case) -> Launch:
    import cupy
    import numpy as np

    kernel = cupy.RawKernel(SOURCE, case.name)
    stream = cupy.cuda.ExternalStream(case.stream.handle)
    values = tuple(
        np.uint64(value)
        if is_pointer(value)
        else (np.float32 if isinstance(value, float) else np.int32)(value)
        for value in case.raw
    )
    stream.use()

    def launch() -> None:
        kernel((1,), (32,), values)

    return launch


WAYS: dict[str, Callable[[Case], Launch]] = {
    "lowgemm, prepared": ours_prepared,
    "lowgemm, plain": ours_plain,
    "cuda.bindings, packed": raw_bindings,
    "ctypes, packed": raw_ctypes,
    "cuda.core": cuda_core,
    "CuPy RawKernel": cupy_raw,
}


def open_ways(case: Case) -> Ways:
    """Each way's launch, or the reason why it is not measured."""
    ways: Ways = {}
    for name, make in WAYS.items():
        try:
            launch = make(case)
            launch()
            case.gpu.synchronize()
            ways[name] = launch
        except Exception as error:
            ways[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return ways


def measure(case: Case, rounds: int, launches: int) -> dict[str, dict[str, Any]]:
    """The host's microseconds per launch of each way, over interleaved rounds."""
    return interleaved(case.gpu, open_ways(case), rounds, launches)


def interleaved(gpu: Gpu, ways: Ways, rounds: int, calls: int) -> dict[str, dict[str, Any]]:
    """The host's microseconds per call of each way; the GPU is idle before each batch."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, call in ways.items():
            if isinstance(call, str):
                continue
            start = time.perf_counter_ns()
            for _ in range(calls):
                call()
            elapsed = time.perf_counter_ns() - start
            gpu.synchronize()
            if number >= 2:  # the first rounds warm up
                samples[name].append(elapsed / calls / 1e3)
    return {name: summary(ways[name], values) for name, values in samples.items()}


def summary(way: Launch | str, values: list[float]) -> dict[str, Any]:
    if isinstance(way, str):
        return {"skipped": way}
    low, median, high = statistics.quantiles(values, n=4)
    return {"median_us": median, "quartiles_us": [low, high], "rounds": len(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--launches", type=int, default=200, help="per batch; below 1024")
    options = parser.parse_args()
    gpu = Gpu()
    cubin = compile_source(SOURCE, arch=gpu.architecture).cubin
    arrays = [gpu.zeros(1024) for _ in range(3)]
    cases = {
        "no arguments": Case(gpu, cubin, "none", ()),
        "8 arguments": Case(gpu, cubin, "eight", (*arrays, 1, 2, 3, 1.0, 0.0)),
    }
    results = {
        name: measure(case, options.rounds, options.launches) for name, case in cases.items()
    }
    print(
        f"{gpu.name}, driver for CUDA {'.'.join(map(str, driver_version()))}, "
        f"Python {platform.python_version()}: host microseconds per launch"
    )
    print(f"{'':24}" + "".join(f"{name:>30}" for name in cases))
    for way in WAYS:
        print(f"{way:24}" + "".join(f"{cell(results[name][way]):>30}" for name in cases))
    if options.json:
        record = {
            "gpu": gpu.name,
            "driver": driver_version(),
            "python": platform.python_version(),
            "launches_per_batch": options.launches,
            "host_cost_per_launch": results,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def cell(result: dict[str, Any]) -> str:
    if "skipped" in result:
        return f"skipped: {result['skipped']}"[:29]
    low, high = result["quartiles_us"]
    return f"{result['median_us']:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
