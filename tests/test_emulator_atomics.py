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


def run(body: str, arch: str, headers: tuple[str, ...] = ()) -> NDArray[np.float32]:
    """What 64 threads leave in out."""
    source = "".join(f"#include <{header}>\n" for header in headers)
    source += 'extern "C" __global__ void k(int* g, float* out) { int t = threadIdx.x;' + body + "}"
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


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16"])
def test_additions_of_sixteen_bits(kind: str, arch: str) -> None:
    """A loop around a compare-and-swap of the word that holds the 16 bits races with nobody."""
    body = (
        f"__shared__ {kind} s[4]; if (t < 4) s[t] = {kind}(0.f); __syncthreads();"
        f"atomicAdd(&s[t % 4], {kind}(1.f)); __syncthreads(); out[t] = float(s[t % 4]);"
    )
    assert (run(body, arch, headers=("cuda_fp16.h", "cuda_bf16.h")) == THREADS // 4).all()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("where", ["&s[t % 2]", "t < 999 ? &s[t % 2] : (unsigned short*)g"])
def test_a_swap_of_sixteen_bits(where: str, arch: str) -> None:
    """Its load of the word around is no race, also where only the address says which memory."""
    body = (
        "__shared__ unsigned short s[2]; if (t < 2) s[t] = 7; __syncthreads();"
        f"atomicCAS({where}, (unsigned short)7, (unsigned short)9); __syncthreads();"
        "out[t] = s[t % 2];"
    )
    assert (run(body, arch) == 9).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_load_of_another_place_still_races(arch: str) -> None:
    """What is compared may be loaded from elsewhere: this load notices no stale value."""
    body = (
        "__shared__ unsigned s[2]; if (t < 2) s[t] = 7; __syncthreads(); if (t == 40) s[1] = 8;"
        "unsigned v = s[1]; atomicCAS(&s[0], __byte_perm(v, 5, 0x3214), 9u); out[t] = 1;"
    )
    with pytest.raises(EmulatorFindingsError, match="race between warps"):
        run(body, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_barrier_in_two_halves_orders_who_waits(arch: str) -> None:
    """Who has arrived and reads before the phase has ended races; who waits for it does not."""
    body = (
        "__shared__ float s[64]; __shared__ __mbarrier_t b; if (t == 0) __mbarrier_init(&b, 64);"
        "__syncthreads(); s[t] = t; auto token = __mbarrier_arrive(&b); %s out[t] = s[63 - t];"
        "if (*g) *g = token;"
    )
    headers = ("cuda_awbarrier_primitives.h",)
    wait = "while (!__mbarrier_test_wait(&b, token)) {}"
    assert run(body % wait, arch, headers).tolist() == list(range(63, -1, -1))
    with pytest.raises(EmulatorFindingsError, match="race between warps"):
        run(body % "", arch, headers)
