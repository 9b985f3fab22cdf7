"""An FP32 GEMM past cuBLAS on CUDA cores: stream-K, its hot loop rewritten in the machine code."""

import argparse
from collections.abc import Callable

import numpy as np

import lowgemm
from lowgemm.gemm import GemmProblem, StreamK
from lowgemm.gemm.stream_k import compile_stream_k, rewrite_stream_k
from lowgemm.measure import measure
from lowgemm.studies.peers import CublasSgemm

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", choices=["gpu", "emulator"], help="default: the GPU if any")
parser.add_argument("sizes", nargs="*", help="4096 or MxNxK; default: 4096 8192, emulated 512")
options = parser.parse_args()
device = lowgemm.open_device(options.device)
gpu = device if isinstance(device, lowgemm.Gpu) else None

made = rewrite_stream_k(compile_stream_k(device.architecture).cubin)
for name, loop in (("compiler's", made.before), ("rewritten", made.after)):
    print(
        f"{name:10} loop: {loop.ffmas} FFMA, {loop.issue_slots} slots, {loop.bank_cycles} cycles "
        f"of register banks, modelled {loop.ffma_share:.1%} of the FFMA pipe"
    )
kernels = {"compiler's": StreamK(device, rewritten=False), "rewritten": StreamK(device)}

for size in options.sizes or (["4096", "8192"] if gpu else ["512"]):
    p = GemmProblem.parse(size)
    rng = np.random.default_rng(1)
    a = device.upload(rng.standard_normal(p.a_elements, np.float32))
    b = device.upload(rng.standard_normal(p.b_elements, np.float32))
    c = {name: device.zeros(p.c_elements) for name in (*kernels, "cuBLAS")}
    for name, kernel in kernels.items():
        kernel.prepare(p, a, b, c[name]).launch()
    device.synchronize()
    one, two = (c[name].download().view(np.uint32) for name in kernels)
    print(f"{p}  {device.name}: bits of both {'equal' if np.array_equal(one, two) else 'DIFFER'}")
    if gpu is not None:
        stream = gpu.stream()
        launches: dict[str, Callable[[], object]] = {
            name: kernel.prepare(p, a, b, c[name], stream=stream).launch
            for name, kernel in kernels.items()
        }
        launches["cuBLAS"] = CublasSgemm(gpu, stream).prepare(p, a, b, c["cuBLAS"])
        times = measure(launches, stream=stream, new_event=gpu.event)
        for name, timing in times.items():
            tflops = 2e-6 * p.m * p.n * p.k / timing.median_us
            ratio = times["cuBLAS"].median_us / timing.median_us
            print(f"{p}  {name:10} {tflops:6.2f} TFLOP/s  {ratio:.3f} of cuBLAS")
