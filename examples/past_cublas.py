"""An FP32 GEMM past cuBLAS on CUDA cores: stream-K, its hot loop rewritten in the machine code."""

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np

import lowgemm
from lowgemm.gemm import Choice, GemmProblem, Sgemm, SgemmCall
from lowgemm.gemm.engine import compile_sgemm
from lowgemm.gemm.kernels import kernel_named
from lowgemm.measure import measure
from lowgemm.rewrite import rewrite_kernel
from lowgemm.studies.peers import CublasSgemm

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", choices=["gpu", "emulator"], help="default: the GPU if any")
parser.add_argument("sizes", nargs="*", help="4096 or MxNxK; default: 4096 8192, emulated 512")
options = parser.parse_args()
device = lowgemm.open_device(options.device)
gpu = device if isinstance(device, lowgemm.Gpu) else None
stream_k = Choice("stream_k")

engines = {"compiler's": Sgemm(device, rewritten=False), "rewritten": Sgemm(device)}
first = SgemmCall.of(GemmProblem.parse("512"))
plan = kernel_named("stream_k").plan(first, 1, engines["rewritten"].chip)
made = rewrite_kernel(compile_sgemm(plan, device.architecture))
for name, loop in (("compiler's", made.before), ("rewritten", made.after)):
    print(
        f"{name:10} loop: {loop.ffmas} FFMA, {loop.issue_slots} slots, {loop.bank_cycles} cycles "
        f"of register banks, modelled {loop.ffma_share:.1%} of the FFMA pipe"
    )

for size in options.sizes or (["4096", "8192"] if gpu else ["512"]):
    p = GemmProblem.parse(size)
    call = SgemmCall.of(p)
    rng = np.random.default_rng(1)
    a = device.upload(rng.standard_normal(p.a_elements, np.float32))
    b = device.upload(rng.standard_normal(p.b_elements, np.float32))
    c = {name: device.zeros(p.c_elements) for name in (*engines, "cuBLAS")}
    stream = gpu.stream() if gpu is not None else None
    launches: dict[str, Callable[[], object]] = {}
    for name, engine in engines.items():
        launch = engine.prepare(call, stream_k, stream=stream)
        launches[name] = partial(launch, c[name].pointer, a.pointer, b.pointer, 1.0, 0.0)
        launches[name]()
    device.synchronize()
    one, two = (c[name].download().view(np.uint32) for name in engines)
    print(f"{p}  {device.name}: bits of both {'equal' if np.array_equal(one, two) else 'DIFFER'}")
    if gpu is not None and stream is not None:
        launches["cuBLAS"] = CublasSgemm(gpu, stream).prepare(p, a, b, c["cuBLAS"])
        times = measure(launches, stream=stream, new_event=gpu.event)
        for name, timing in times.items():
            tflops = 2e-6 * p.m * p.n * p.k / timing.median_us
            ratio = times["cuBLAS"].median_us / timing.median_us
            print(f"{p}  {name:10} {tflops:6.2f} TFLOP/s  {ratio:.3f} of cuBLAS")
