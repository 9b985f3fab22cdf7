"""Tensor maps: what TMA copies, on the emulator and on a GPU, and every limit refused in words."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fakes import CudaLike, FakeDevice
from tensor_boxes import BOXES, SOURCE, Boxes, copied, expected, stored

from lowgemm.binary.sass import read_sass
from lowgemm.compiler import compile_source
from lowgemm.emulator import ARCHITECTURES, Emulator, FindingKind
from lowgemm.errors import (
    ArchitectureMismatchError,
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    DtypeError,
    EmulationError,
    EmulatorFindingsError,
    LowgemmError,
)
from lowgemm.rewrite.hazards import find_hazards
from lowgemm.runtime import Device, Module

if TYPE_CHECKING:
    from lowgemm.device import Gpu
    from lowgemm.runtime import TensorMap

ARCHS = ("sm_90", "sm_120")
HERE = struct.pack("5i", 0, 0, 0, 0, 0)


def compiled_alone(source: str, arch: str) -> bytes:
    """A cubin made by a process of its own.

    Once NVRTC 13.5 has compiled anything with -G in a process, it makes other code for sm_120: it
    reads a parameter by the whole of its address instead of its place in constant memory.
    """
    program = (
        "import sys; from lowgemm.compiler import compile_source; "
        "sys.stdout.buffer.write(compile_source(sys.stdin.read(), arch=sys.argv[1]).cubin)"
    )
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", program, arch],
        input=source.encode(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, "LOWGEMM_CACHE": "0"},
        check=True,
    )
    return done.stdout


@cache
def build(arch: str) -> bytes:
    """The kernels, compiled once an architecture."""
    return compiled_alone(SOURCE.read_text(encoding="utf-8"), arch)


@pytest.fixture(params=ARCHS)
def device(request: pytest.FixtureRequest) -> Emulator:
    """An emulator that watches control words too."""
    return Emulator(request.param, strict=True)


@pytest.fixture
def module(device: Emulator) -> Module:
    """The kernels on it."""
    return device.load(build(str(device.architecture)))


# ---- copies


@pytest.mark.parametrize("boxes", BOXES, ids=str)
def test_boxes_are_copied(device: Emulator, module: Module, boxes: Boxes) -> None:
    """Each byte of a box is where it belongs, zeros are where the tensor is not."""
    for at, found in zip(boxes.at, copied(device, module, boxes), strict=True):
        assert np.array_equal(found, expected(boxes, at)), at


@pytest.mark.gpu
def test_a_gpu_copies_the_same(gpu: Gpu) -> None:
    """A GPU's bytes in shared memory are the emulator's, swizzled and out of bounds too."""
    if gpu.capability < (9, 0):
        pytest.skip(f"{gpu.architecture} has no tensor maps")
    theirs = gpu.load(build(str(gpu.architecture)))
    for boxes in BOXES:
        found = copied(gpu, theirs, boxes)
        for at, each in zip(boxes.at, found, strict=True):
            assert np.array_equal(each, expected(boxes, at)), (str(boxes), at)
        if str(gpu.architecture) in ARCHITECTURES:
            emulator = Emulator(gpu.architecture)
            ours = copied(emulator, emulator.load(build(str(gpu.architecture))), boxes)
            for mine, each in zip(ours, found, strict=True):
                assert np.array_equal(mine, each), str(boxes)


@pytest.mark.parametrize("boxes", [each for each in BOXES if not each.shift], ids=str)
def test_boxes_are_stored(device: Emulator, module: Module, boxes: Boxes) -> None:
    """What lies in the tensor is written, and nothing else."""
    for found, wanted in stored(device, module, boxes):
        assert np.array_equal(found, wanted)


@pytest.mark.gpu
def test_a_gpu_stores_the_same(gpu: Gpu) -> None:
    """The same on a GPU."""
    if gpu.capability < (9, 0):
        pytest.skip(f"{gpu.architecture} has no tensor maps")
    module = gpu.load(build(str(gpu.architecture)))
    for boxes in BOXES:
        if not boxes.shift:
            for found, wanted in stored(gpu, module, boxes):
                assert np.array_equal(found, wanted), str(boxes)


def multicast(device: Device, module: Module) -> None:
    """Two blocks that copy half of a tile each, both for both."""
    x = np.arange(2 * 2 * 8 * 32, dtype=np.float32).reshape(32, 32)
    rows, nbytes = 8, 8 * 32 * 4
    out = device.zeros((2, 16, 32))
    tensor_map = device.tensor_map(device.upload(x), (rows, 32))
    module.kernel("copy_to_cluster").launch(
        tensor_map, rows, nbytes, out.view(0, out.size), grid=2, block=64, cluster=2,
        shared_bytes=2 * nbytes,
    )  # fmt: skip
    assert (out.download() == x[:16]).all()


def test_a_box_goes_to_all_blocks_of_a_cluster() -> None:
    """Each block's mbarrier counts the bytes that others bring."""
    with Emulator("sm_90", strict=True) as device:
        multicast(device, device.load(build("sm_90")))


@pytest.mark.gpu
def test_a_gpu_multicasts_the_same(gpu: Gpu) -> None:
    """The same on a GPU."""
    if gpu.capability[0] not in (9, 10):
        pytest.skip(f"{gpu.architecture} does not multicast")
    multicast(gpu, gpu.load(build(str(gpu.architecture))))


def by_pointer(device: Device, module: Module) -> None:
    """A copy by the second of two maps in global memory."""
    x, y = (np.arange(64 * 32, dtype=np.float32).reshape(64, 32) * sign for sign in (1, -1))
    arrays = device.upload(x), device.upload(y)
    maps = [device.tensor_map(each, (8, 32)) for each in arrays]
    table = device.upload(np.frombuffer(b"".join(map(bytes, maps)), np.uint8))
    out = device.zeros((8, 32))
    module.kernel("copy_by_pointer").launch(
        table.pointer, 1, HERE, 1024, out.pointer, grid=1, block=32, shared_bytes=1024
    )
    assert (out.download() == y[:8]).all()


def test_a_map_may_lie_in_global_memory(device: Emulator, module: Module) -> None:
    """Its bytes are uploaded as others are, and the kernel takes their address."""
    by_pointer(device, module)


@pytest.mark.gpu
def test_a_map_may_lie_in_the_memory_of_a_gpu(gpu: Gpu) -> None:
    """The same on a GPU."""
    if gpu.capability < (9, 0):
        pytest.skip(f"{gpu.architecture} has no tensor maps")
    by_pointer(gpu, gpu.load(build(str(gpu.architecture))))


def test_addresses_of_parameters_name_their_bytes() -> None:
    """A kernel that reads its own parameter by its address finds what was passed."""
    source = """
    struct Two { int words[64]; };
    __global__ void k(int first, const __grid_constant__ Two two, int* out) {
        const int* p = two.words + out[0];
        out[threadIdx.x] = p[threadIdx.x] + first;
    }"""
    for arch in ARCHS:
        with Emulator(arch) as device:
            out = device.zeros(32, np.int32)
            kernel = device.load(compiled_alone(source, arch)).kernel()
            kernel.launch(7, np.arange(64, dtype=np.int32).tobytes(), out, grid=1, block=32)
            assert (out.download() == np.arange(32) + 7).all()


# ---- findings


def launch_copy(device: Emulator, tensor_map: TensorMap, **changes: Any) -> None:
    """One copy of two axes."""
    module = device.load(build(str(device.architecture)))
    out = device.zeros(tensor_map.box_bytes // 4, np.uint32)
    settings = {"at": HERE, "shift": 0, "shared_bytes": 8192, **changes}
    module.kernel("copy_2").launch(
        tensor_map, settings["at"], tensor_map.box_bytes, settings["shift"], out, grid=1,
        block=64, shared_bytes=settings["shared_bytes"],
    )  # fmt: skip


def kinds(error: pytest.ExceptionInfo[EmulatorFindingsError]) -> set[FindingKind]:
    """What kinds of findings an error tells of."""
    return {finding.kind for finding in error.value.findings}


def test_a_box_at_no_multiple_of_128_bytes_is_found() -> None:
    """A GPU would fault."""
    with Emulator() as device:
        tensor_map = device.tensor_map(device.zeros((16, 16)), (16, 16))
        with pytest.raises(EmulatorFindingsError, match="multiple of 128 bytes") as error:
            launch_copy(device, tensor_map, shift=64)
        assert kinds(error) == {FindingKind.MISALIGNED}


@pytest.mark.parametrize("at", [1, -2, 31])
def test_a_box_that_begins_within_a_chunk_is_found(at: int) -> None:
    """Of the innermost axis it must begin at a multiple of 16 bytes; elsewhere anywhere."""
    with Emulator() as device:
        tensor_map = device.tensor_map(device.zeros((16, 32)), (16, 16))
        launch_copy(device, tensor_map, at=struct.pack("5i", 4, at, 0, 0, 0))
        with pytest.raises(EmulatorFindingsError, match=f"stands for {4 * at} bytes") as error:
            launch_copy(device, tensor_map, at=struct.pack("5i", at, 0, 0, 0, 0))
        assert kinds(error) == {FindingKind.MISALIGNED}


def test_a_box_that_does_not_fit_is_found() -> None:
    """It reaches over the end of shared memory."""
    with Emulator() as device:
        tensor_map = device.tensor_map(device.zeros((64, 32)), (64, 32))
        with pytest.raises(EmulatorFindingsError) as error:
            launch_copy(device, tensor_map, shared_bytes=4096)
        assert FindingKind.SHARED_OUT_OF_BOUNDS in kinds(error)


def test_bytes_that_nobody_wrote_are_found() -> None:
    """A map knows the array, not what was written to it."""
    with Emulator() as device:
        array = device.empty((16, 16))
        with pytest.raises(EmulatorFindingsError) as error:
            launch_copy(device, device.tensor_map(array, (16, 16)))
        assert kinds(error) == {FindingKind.UNINITIALISED_GLOBAL}


def test_a_reader_that_does_not_wait_is_found() -> None:
    """Who reads the box before the mbarrier's phase has ended reads what is not there."""
    text = SOURCE.read_text(encoding="utf-8").replace("wait(shared_address(&full), 0);", "")
    with Emulator() as device:
        kernel = device.load(compile_source(text, arch="sm_90")).kernel("copy_2")
        tensor_map = device.tensor_map(device.zeros((16, 16)), (16, 16))
        out = device.zeros(256, np.uint32)
        with pytest.raises(EmulatorFindingsError) as error:
            kernel.launch(tensor_map, HERE, 1024, 0, out, grid=1, block=64, shared_bytes=1024)
        assert FindingKind.ASYNC_NOT_WAITED in kinds(error)


@pytest.mark.parametrize("line", ["wait_group.read 0;", "commit_group;"])
def test_a_writer_that_does_not_wait_is_found(line: str) -> None:
    """A store may still read shared memory until its group has been waited for."""
    text = SOURCE.read_text(encoding="utf-8")
    text = text.replace(f'asm volatile("cp.async.bulk.{line}" ::: "memory");', "")
    with Emulator() as device:
        kernel = device.load(compile_source(text, arch="sm_90")).kernel("put_1")
        tensor_map = device.tensor_map(device.zeros(64), 64)
        with pytest.raises(EmulatorFindingsError, match="a bulk copy may still read it") as error:
            kernel.launch(
                tensor_map, HERE, 256, device.zeros(64, np.uint32), grid=1, block=32,
                shared_bytes=256,
            )  # fmt: skip
        assert kinds(error) == {FindingKind.ASYNC_NOT_WAITED}


def test_a_store_of_what_another_warp_writes_is_found() -> None:
    """Its bytes must be written before, and a barrier lie between."""
    text = SOURCE.read_text(encoding="utf-8")
    before, put, after = text.partition("__device__ void put(")
    text = before + put + after.replace("__syncthreads();", "", 1)
    with Emulator() as device:
        kernel = device.load(compile_source(text, arch="sm_90")).kernel("put_1")
        tensor_map = device.tensor_map(device.zeros(256), 256)
        with pytest.raises(EmulatorFindingsError) as error:
            kernel.launch(
                tensor_map, HERE, 1024, device.zeros(256, np.uint32), grid=1, block=64,
                shared_bytes=1024,
            )  # fmt: skip
        assert kinds(error) & {FindingKind.RACE, FindingKind.UNINITIALISED_SHARED}


@pytest.mark.parametrize("at", [(-4, 0), (0, -1), (-300, -300)])
def test_a_store_before_the_tensor_is_found(at: tuple[int, int]) -> None:
    """A GPU faults, though a load from there brings zeros."""
    with Emulator() as device:
        kernel = device.load(build("sm_90")).kernel("put_2")
        tensor_map = device.tensor_map(device.zeros((16, 16)), (16, 16))
        with pytest.raises(EmulatorFindingsError, match="over the end alone") as error:
            kernel.launch(
                tensor_map, struct.pack("5i", *at, 0, 0, 0), 1024, device.zeros(256, np.uint32),
                grid=1, block=32, shared_bytes=1024,
            )  # fmt: skip
        assert kinds(error) == {FindingKind.GLOBAL_OUT_OF_BOUNDS}


def test_bytes_that_are_no_map_are_refused() -> None:
    """The emulator's maps are its own: a GPU's, zeros or one of another rank end the launch."""
    with Emulator() as device:
        kernel = device.load(build("sm_90")).kernel("copy_2")
        out = device.zeros(256, np.uint32)
        with pytest.raises(EmulationError, match="for a tensor map, which they are not"):
            kernel.launch(bytes(128), HERE, 1024, 0, out, grid=1, block=32, shared_bytes=1024)
        line = device.tensor_map(device.zeros(64), 32)
        with pytest.raises(EmulationError, match="a box of 2 axes by a tensor map that has 1"):
            kernel.launch(line, HERE, 128, 0, out, grid=1, block=32, shared_bytes=1024)


# ---- machine code


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_code_of_the_compiler_has_no_hazards(arch: str) -> None:
    """ptxas protects the uniform registers that a copy reads, and the checker sees how."""
    for kernel in read_sass(build(arch)):
        assert find_hazards(kernel) == (), kernel.name


# ---- life


def test_a_map_keeps_its_array_and_a_launch_keeps_the_map() -> None:
    """The array is freed when the last of them is gone."""
    with Emulator() as device:
        array = device.zeros((16, 16))
        gone = weakref.ref(array)
        kernel = device.load(build("sm_90")).kernel("copy_2")
        out = device.zeros(256, np.uint32)
        prepared = kernel.prepare(
            device.tensor_map(array, (16, 16)), HERE, 1024, 0, out, grid=1, block=32,
            shared_bytes=1024,
        )  # fmt: skip
        del array
        gc.collect()
        assert gone() is not None
        prepared()
        del prepared
        gc.collect()
        assert gone() is None


def test_maps_of_closed_arrays_are_refused() -> None:
    """As the array itself would be."""
    with Emulator() as device:
        array = device.zeros((16, 16))
        tensor_map = device.tensor_map(array, (16, 16))
        array.close()
        with pytest.raises(EmulationError, match="has been closed"):
            launch_copy(device, tensor_map)


def test_a_map_goes_to_its_own_device_and_to_128_bytes() -> None:
    """Not to another emulator, nor to a parameter that is none."""
    with Emulator() as device, Emulator() as other:
        tensor_map = device.tensor_map(device.zeros((16, 16)), (16, 16))
        assert str(tensor_map.layout.dtype) == "float32" and len(bytes(tensor_map)) == 128
        with pytest.raises(ArrayLayoutError, match="a tensor map of another device"):
            launch_copy(other, tensor_map)
        source = "__global__ void k(float* p) {}"
        kernel = device.load(compile_source(source, arch="sm_90")).kernel()
        with pytest.raises(ArgumentTypeError, match="128 bytes"):
            kernel.launch(tensor_map, grid=1, block=1)


# ---- limits


def refused(error: type[LowgemmError], text: str, *args: Any, **settings: Any) -> None:
    """A map that cannot be is refused with the value."""
    with Emulator() as device:
        array = device.zeros((16, 16))
        with pytest.raises(error, match=text):
            device.tensor_map(args[0] if args else array, **{"box": (8, 8), **settings})


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"box": (0, 8)}, ArgumentValueError, "an extent of 0"),
        ({"box": (257, 8)}, ArgumentValueError, "an extent of 257"),
        ({"box": (8, 6)}, ArgumentValueError, "rows of 24 bytes"),
        ({"box": (8,)}, ArgumentValueError, "for 2 axes"),
        ({"box": "large"}, ArgumentValueError, "'large'"),
        ({"box": (8, 16), "swizzle": "32B"}, ArgumentValueError, "rows of 64 bytes"),
        ({"box": (8, 64), "swizzle": "128B"}, ArgumentValueError, "goes over 128"),
        ({"swizzle": "256B"}, ArgumentValueError, "swizzle='256B'"),
        ({"swizzle": 128}, ArgumentValueError, "swizzle=128"),
        ({"l2_promotion": "all"}, ArgumentValueError, "l2_promotion='all'"),
        ({"shape": (1,) * 6}, ArrayLayoutError, "cannot have 6 axes"),
        ({"shape": ()}, ArrayLayoutError, "cannot have 0 axes"),
        ({"shape": (0, 16)}, ArrayLayoutError, "an extent of 0"),
        ({"shape": (1, (1 << 32) + 1)}, ArrayLayoutError, "an extent of 4294967297"),
        ({"shape": (17, 16)}, ArrayLayoutError, "needs the bytes 0 to 1088"),
        ({"strides_bytes": (68, 4)}, ArrayLayoutError, "needs the bytes"),
        ({"shape": (8, 10)}, ArrayLayoutError, "a stride of 40 bytes"),
        ({"shape": (8, 8), "strides_bytes": (64, 8)}, ArrayLayoutError, "innermost axis"),
        ({"shape": (2, 8), "strides_bytes": (-64, 4)}, ArrayLayoutError, "needs the bytes -64"),
        ({"strides_bytes": (64,)}, ArgumentValueError, "for 2 axes"),
        ({"box": (8, 8), "swizzle": "64B"}, EmulationError, "rows of 32 bytes"),
    ],
)
def test_limits_of_the_hardware_are_checked(
    settings: dict[str, Any], error: type[LowgemmError], text: str
) -> None:
    """Each is refused with the offending value before anything is encoded."""
    refused(error, text, **settings)


def test_strides_up_to_2_to_the_40_are_taken() -> None:
    """A leading dimension may be large; 2^40 bytes are too much."""
    device = FakeDevice()
    far = CudaLike((2, 8), strides=((1 << 40) - 16, 4))
    assert device.tensor_map(far, (1, 8)).layout.strides_bytes == ((1 << 40) - 16, 4)
    with pytest.raises(ArrayLayoutError, match="a stride of 1099511627776 bytes"):
        device.tensor_map(CudaLike((2, 8), strides=(1 << 40, 4)), (1, 8))


def test_arrays_that_tma_cannot_read_are_refused() -> None:
    """Host arrays, elements without a name, addresses between multiples of 16 bytes."""
    refused(ArgumentTypeError, "cannot describe", np.zeros((16, 16), np.float32))
    refused(ArgumentTypeError, "has no GPU memory", CudaLike((16, 16)))
    refused(ArgumentTypeError, "cannot describe 5", 5)
    with Emulator() as device, Emulator() as other:
        array = device.zeros((16, 16))
        refused(ArrayLayoutError, "memory of another device", array)
        with pytest.raises(ArrayLayoutError, match="no multiple of 16 bytes"):
            device.tensor_map(array.view(1, (8, 16)), (8, 8))
        with pytest.raises(DtypeError, match="complex64"):
            other.tensor_map(other.zeros((8, 8), np.complex64), (8, 8))
    with Emulator("sm_89") as old, pytest.raises(ArchitectureMismatchError, match=r"8\.9"):
        old.tensor_map(old.zeros((8, 8)), (8, 8))


def test_arrays_of_other_libraries_are_taken_as_they_are() -> None:
    """Their strides are the map's; axes of one element have none; a shape of their own may be."""
    device = FakeDevice()
    rows = device.tensor_map(CudaLike((5, 8), strides=(48, 4)), (5, 8)).layout
    assert (rows.shape, rows.strides_bytes, rows.pointer) == ((5, 8), (48, 4), 0x10000)
    one = device.tensor_map(CudaLike((1, 7), strides=(28, 4)), (1, 8)).layout
    assert one.strides_bytes == (32, 4)
    flat = CudaLike((1000,))
    matrix = device.tensor_map(flat, (4, 4), shape=(20, 37), strides_bytes=(160, 4)).layout
    assert (matrix.shape, matrix.strides_bytes) == ((20, 37), (160, 4))
    with pytest.raises(ArrayLayoutError, match="is not contiguous"):
        device.tensor_map(CudaLike((5, 8), strides=(48, 4)), (4, 4), shape=(4, 8))
    with pytest.raises(ArrayLayoutError, match="innermost axis has a stride of 20"):
        device.tensor_map(CudaLike((8, 5), strides=(4, 20)), (8, 4))
