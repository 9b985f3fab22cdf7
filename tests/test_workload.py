"""A launch and its inputs as text."""

from __future__ import annotations

import numpy as np
import pytest

from lowgemm.compiler import compile_source
from lowgemm.emulator import Emulator
from lowgemm.errors import ArgumentValueError, GridSizeError
from lowgemm.runtime.workload import ArrayInput, Workload


def test_a_workload_is_read_from_text() -> None:
    """Shape, arrays with their content and numbers, in any order of the fields."""
    workload = Workload.parse(
        "args=f32[8],u8[3]:count,i64[2]:empty,7,-0.5 block=32,2 grid=4 shared=64"
    )
    assert workload.shape.grid == (4, 1, 1) and workload.shape.block == (32, 2, 1)
    assert workload.shape.shared_bytes == 64
    assert workload.arguments == (
        ArrayInput("float32", 8, "random"),
        ArrayInput("uint8", 3, "count"),
        ArrayInput("int64", 2, "empty"),
        7,
        -0.5,
    )


def test_a_workload_is_read_as_people_write_it() -> None:
    """Blanks beside commas do not matter, an array may have a shape, ``shared_bytes`` counts."""
    workload = Workload.parse("grid=2, 2 block=8 shared_bytes=32 args=f32[4, 8]:zeros, u8[3] , 64")
    assert workload == Workload.parse("grid=2,2 block=8 shared=32 args=f32[32]:zeros,u8[3],64")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid=1", "names no grid or no block"),
        ("grid=1 block=1 blocks=2", "'blocks=2' is no part of a launch"),
        ("grid=1 grid=2 block=1", "'grid=2' is no part"),
        ("grid=a block=1", "no list of whole numbers"),
        ("grid=1 block=1 args=f32[x]", "neither a number nor an array"),
        ("grid=1 block=1 args=q4[8]", "no type is 'q4'"),
        ("grid=1 block=1 args=f32[8]:ones", "no content is 'ones'"),
        ("grid=1 block=1 shared=8 shared_bytes=8", "'shared_bytes=8' is no part"),
    ],
)
def test_what_is_no_launch_is_refused(text: str, said: str) -> None:
    """The error names the word and shows how a launch is written."""
    with pytest.raises(ArgumentValueError, match="grid=8 block=256") as caught:
        Workload.parse(text)
    assert said in caught.value.what
    with pytest.raises(GridSizeError):
        Workload.parse("grid=0 block=32")


def test_a_workload_is_launched_with_seeded_inputs() -> None:
    """Arrays are made on the device, the same for the same seed; the kernel gets all arguments."""
    source = """__global__ void add(const float* a, const int* b, float* out, int n, float s) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = a[i] + b[i] + s;
    }"""
    workload = Workload.parse("grid=2 block=32 args=f32[50],i32[50]:count,f32[50]:zeros,50,2")
    with Emulator() as device:
        kernel = device.load(compile_source(source, arch="sm_90")).kernel()
        results = []
        for seed in (1, 1, 2):
            a, b, out = workload.launch(kernel, device, seed=seed)
            expected = a.download() + b.download().astype(np.float32) + np.float32(2)
            assert (out.download() == expected).all()
            results.append(out.download())
        assert (results[0] == results[1]).all() and (results[0] != results[2]).any()
