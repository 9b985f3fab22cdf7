"""Loops around a compare-and-swap: they end, are right, and race with nobody."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lowgemm import compile_source
from lowgemm.emulator import Emulator
from lowgemm.errors import EmulatorFindingsError

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
THREADS = 64
_START = "if (threadIdx.x == 0) s = 0; __syncthreads();"
_LOOP = "do { as = old; old = atomicCAS(%s, as, as + 2); } while (old != as);"


def run(body: str, arch: str) -> NDArray[np.float32]:
    """What 64 threads leave in out."""
    source = 'extern "C" __global__ void k(int* g, float* out) { int t = threadIdx.x;' + body + "}"
    with Emulator(arch, instructions=20_000) as device:
        g, out = device.zeros(1, np.int32), device.zeros(THREADS)
        build = compile_source(source, arch=arch)
        device.load(build).kernel("k").launch(g, out, grid=1, block=THREADS)
        return out.download()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["float", "double", "unsigned long long"])
def test_additions_that_the_compiler_makes_a_loop(kind: str, arch: str) -> None:
    """Shared memory adds no such numbers: ATOMS.CAST.SPIN says whether the sum was stored."""
    body = f"__shared__ {kind} s; {_START} atomicAdd(&s, ({kind})2); __syncthreads(); out[t] = s;"
    assert (run(body, arch) == 2 * THREADS).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_of_ones_own(arch: str) -> None:
    """The first, plain read of the usual loop is no race: a stale value is compared and refused."""
    body = (
        f"__shared__ int s; {_START} int as, old = s; {_LOOP % '&s'} __syncthreads(); out[t] = s;"
    )
    assert (run(body, arch) == 2 * THREADS).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_plain_write_still_races(arch: str) -> None:
    """Without the barrier the first write and the loop's read are a race."""
    body = f"__shared__ int s; if (t == 0) s = 0; int as, old = s; {_LOOP % '&s'} out[t] = 1;"
    with pytest.raises(EmulatorFindingsError, match="race between warps"):
        run(body, arch)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("after", ["__syncwarp();", "atomicAdd(out, 1.5f); __syncthreads();"])
def test_lanes_that_left_a_long_loop_meet_the_others(after: str, arch: str) -> None:
    """Who has gone on before the others of its warp is not waited for; its warp adds 64 in all."""
    body = f"int as, old = *g; {_LOOP % 'g'} {after} if (t) out[t] = *g;"
    assert (run(body, arch)[1:] >= THREADS).all()
