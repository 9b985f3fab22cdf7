"""Measure for how long loads of many patterns keep shared memory busy, on a GPU.

``python scripts/load_cycles.py --output FILE`` times 32 warps of one SM that do nothing but load,
for each pattern and each width, and writes the cycles per load of a warp into FILE. The rule that
they hold to is `lowgemm.hardware.shared_memory.load_cycles`. Counters do not answer this: the one
on Nsight Compute's source page is an estimate from addresses.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from lowgemm.compiler import compile_source
from lowgemm.device import Gpu
from lowgemm.report.provenance import run_facts
from lowgemm.studies.files import write_json

SCHEMA = 1
SEED = 20261201
LANES, WARPS, ROUNDS, LOADS = 32, 32, 40, 16
WIDTHS = (4, 8, 16)
_TYPES = {4: "u32", 8: "v2.u32", 16: "v4.u32"}
_INACTIVE = 1 << 30

# What is loaded is volatile, as ptxas would otherwise load it once. Places lie within 32 KiB.
_KERNEL = """
extern "C" __global__ void __launch_bounds__(1024)
load(const int* places, long long* cycles, int patterns, int rounds, int* sink)
{
    __shared__ __align__(1024) char memory[32768];
    for (int i = threadIdx.x; i < 8192; i += 1024) reinterpret_cast<int*>(memory)[i] = i;
    for (int pattern = 0; pattern < patterns; ++pattern) {
        const int entry = places[pattern * 32 + threadIdx.x %% 32], place = entry & 0xffff;
        const unsigned from =
            static_cast<unsigned>(__cvta_generic_to_shared(memory)) + place * %(width)d;
        int used = 0;
        __syncthreads();
        const long long begin = clock64();
        if (entry == place) {
            for (int round = 0; round < rounds; ++round) {
                #pragma unroll
                for (int i = 0; i < %(loads)d; ++i) {
                    int word[%(words)d];
                    asm volatile("ld.volatile.shared.%(type)s %(names)s, [%%%(words)d];"
                                 : %(outputs)s : "r"(from));
                    for (int w = 0; w < %(words)d; ++w) used ^= word[w];
                }
            }
        }
        __syncwarp();
        __syncthreads();
        if (threadIdx.x == 0) cycles[pattern] = clock64() - begin;
        if (used == 0x5eed) *sink = 1;
    }
}
"""


def source(width: int) -> str:
    """The CUDA C++ of the kernel for a width in bytes."""
    words = width // 4
    names = ", ".join(f"%{word}" for word in range(words))
    return _KERNEL % {
        "width": width,
        "words": words,
        "type": _TYPES[width],
        "names": names if words == 1 else "{" + names + "}",
        "outputs": ", ".join(f'"=r"(word[{word}])' for word in range(words)),
        "loads": LOADS,
    }


def patterns_module() -> ModuleType:
    """The script whose patterns these are."""
    path = Path(__file__).with_name("access_patterns.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def half_warps(module: ModuleType, count: int) -> list[Any]:
    """Half warps in which lanes share by bit 0, bit 1 or both, without conflicts of their own."""
    rng = np.random.default_rng(SEED)
    lane = np.arange(LANES // 2)
    shared = (lane // 2, lane // 4 * 2 + lane % 2, lane // 4)
    found = []
    for _ in range(count):
        halves = []
        for _ in range(2):
            rows = int(rng.choice([1, 2, 4, 16]))
            slots = rng.permutation(8) + 8 * rng.integers(0, rows, 8)
            halves.append(slots[shared[int(rng.integers(3))]])
        pattern = module.every_lane(np.concatenate(halves))
        if rng.random() < 0.5:
            size = int(rng.choice([1, 4, 8]))
            alive = (rng.random(LANES // size) < rng.choice([0.9, 0.6, 0.3])).repeat(size)
            pattern = pattern.masked(alive)
        found.append(pattern)
    return found


def measure(output: Path) -> None:
    """Time every pattern in every width and write the file."""
    module, gpu = patterns_module(), Gpu()
    patterns = [*module.access_patterns(), *half_warps(module, 400)]
    table = np.concatenate([np.where(p.active, 0, _INACTIVE) | p.places for p in patterns])
    places, sink = gpu.upload(table.astype(np.int32)), gpu.empty(1, np.int32)
    cycles: dict[str, list[float]] = {}
    for width in WIDTHS:
        kernel = gpu.load(compile_source(source(width), arch="sm_90")).kernel("load")
        clocks = gpu.empty(len(patterns), np.int64)
        for _ in range(2):  # the first one warms the instruction cache
            kernel.launch(places, clocks, len(patterns), ROUNDS, sink, grid=1, block=LANES * WARPS)
        each = clocks.download() / (ROUNDS * LOADS * WARPS)
        cycles[str(width)] = each.round(3).tolist()
    data = {
        "schema": SCHEMA,
        "provenance": {
            **run_facts(gpu, f"python scripts/load_cycles.py --output {output.name}"),
            "seed": SEED,
        },
        "patterns": [module.as_data(pattern) for pattern in patterns],
        "cycles": cycles,
    }
    write_json(data, output, list_a_line=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, metavar="FILE", required=True)
    measure(parser.parse_args().output)
