"""Other libraries' arrays and streams: read and given without a GPU and without these libraries."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from lowgemm.errors import ArrayLayoutError, DtypeError, StreamDeviceError
from lowgemm.runtime import interchange
from lowgemm.runtime.interchange import (
    DLPACK_CPU,
    DLPACK_CUDA,
    ArrayView,
    ElementType,
    as_view,
    byte_range,
    cuda_array_interface,
    export_dlpack,
    foreign_stream_handle,
    overlaps,
)

F4 = np.dtype(np.float32)


class Memory:
    """Owner of some memory, to be seen dying."""

    def __init__(self, pointer: int = 0x7000) -> None:
        self.pointer = pointer


class Exporter:
    """A DLPack producer over memory that nobody touches, as torch or CuPy would be."""

    def __init__(
        self,
        shape: tuple[int, ...] = (2, 3),
        dtype: Any = F4,
        device: tuple[int, int] = (DLPACK_CUDA, 1),
        old: bool = False,
        pointer: int = 0x7000,
    ) -> None:
        self.memory = Memory(pointer)
        self.shape, self.dtype, self.device, self.old = shape, np.dtype(dtype), device, old
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None, **more: Any) -> Any:
        if self.old and more:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return export_dlpack(
            self.memory.pointer,
            self.shape,
            self.dtype,
            self.memory,
            device=self.device,
            max_version=more.get("max_version"),
        )


class Torch:
    """Shows what a torch tensor shows of itself."""

    def __init__(self, error: Exception | None, **interface: Any) -> None:
        self.error, self.interface = error, interface

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (0x4000, False),
            "version": 2,
            "strides": None,
        } | self.interface


# ---- __cuda_array_interface__


def test_interface_version_2() -> None:
    """A torch tensor's interface is read; it names no stream."""
    owner = Torch(None)
    view = as_view(owner)
    assert view == ArrayView(
        0x4000, (2, 3), None, ElementType("float32", 4), False, None, None, owner
    )
    assert view.owner is owner


def test_interface_version_3_names_its_stream() -> None:
    """CuPy's interface names the stream in which the data becomes valid; version 2's does not."""
    assert as_view(Torch(None, version=3, stream=1)).stream == 1
    assert as_view(Torch(None, version=2, stream=1)).stream is None
    with pytest.raises(StreamDeviceError, match="stream 0"):
        as_view(Torch(None, version=3, stream=0))


def test_interface_that_means_nothing() -> None:
    """Masked arrays, foreign byte order and broken interfaces are refused."""
    with pytest.raises(ArrayLayoutError, match="masked"):
        as_view(Torch(None, mask=object()))
    with pytest.raises(DtypeError, match="byte order"):
        as_view(Torch(None, typestr=">f4"))
    for broken in ({"typestr": "what"}, {"data": None}, {"shape": 3}):
        with pytest.raises(ArrayLayoutError, match="not valid"):
            as_view(Torch(None, **broken))


def test_empty_array_has_a_null_pointer() -> None:
    """An array without elements may have no pointer."""
    view = as_view(Torch(None, shape=(0,), data=(None, False)))
    assert (view.pointer, view.size, view.contiguous) == (0, 0, True)


def test_owner_that_refuses() -> None:
    """A tensor that needs gradients is refused with torch's own words and a remedy."""
    with pytest.raises(ArrayLayoutError, match="requires grad") as error:
        as_view(Torch(RuntimeError("requires grad")))
    assert "detach" in error.value.remedy


def test_dlpack_where_the_interface_cannot() -> None:
    """torch gives bfloat16 by DLPack only; the refusal of the other protocol does not matter."""

    class Both(Torch, Exporter):
        def __init__(self) -> None:
            Torch.__init__(self, TypeError("no typestr for bfloat16"))
            Exporter.__init__(self)

    assert as_view(Both()).pointer == 0x7000


def test_raw_bytes_are_named_by_dlpack() -> None:
    """Where the interface gives elements as raw bytes (torch's bfloat16), DLPack's name counts."""

    class Both(Torch, Exporter):
        def __init__(self) -> None:
            Torch.__init__(self, None, typestr="<V2")
            Exporter.__init__(self)

    assert as_view(Both()).dtype.name == "float32"
    assert as_view(Torch(None, typestr="<V2")).dtype.name == "void16"


@pytest.mark.parametrize("obj", [3, "text", object(), None])
def test_what_is_no_array(obj: object) -> None:
    """An object of neither protocol is refused with its type's name."""
    with pytest.raises(ArrayLayoutError, match=type(obj).__name__):
        as_view(obj)


def test_interface_given_is_the_interface_read() -> None:
    """What lowgemm gives it can read."""

    class Ours:
        __cuda_array_interface__ = cuda_array_interface(64, (3,), F4, readonly=True, stream=1)

    view = as_view(Ours())
    assert (view.pointer, view.shape, view.dtype.name, view.readonly, view.stream) == (
        64,
        (3,),
        "float32",
        True,
        1,
    )


# ---- DLPack


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint16", "int32", "int64", "bool"]
)
def test_dlpack_round_trip(dtype: str, old: bool) -> None:
    """Pointer, shape, dtype and device survive DLPack, old and new, and the owner lives."""
    exporter = Exporter((2, 0, 3) if dtype == "int8" else (5, 4), dtype, (DLPACK_CUDA, 1), old)
    memory = weakref.ref(exporter.memory)
    view = as_view(exporter)
    assert view.shape == exporter.shape
    assert view.dtype == ElementType.of(np.dtype(dtype))
    assert view.device_ordinal == 1
    assert view.contiguous
    assert view.pointer == 0x7000
    del exporter
    gc.collect()
    assert memory() is not None, "the view must keep the memory alive"
    del view
    gc.collect()
    assert memory() is None, "the deleter must free it"


def test_unread_capsule_frees_its_owner() -> None:
    """A capsule that nobody reads frees what it holds."""
    owner = Memory()
    alive = weakref.ref(owner)
    capsule = export_dlpack(0x7000, (2,), F4, owner, device=(DLPACK_CUDA, 0))
    del owner
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_views_of_one_capsule_share_it() -> None:
    """The memory is freed once, with the last view."""
    exporter = Exporter()
    memory = weakref.ref(exporter.memory)
    view = as_view(exporter)
    second = ArrayView(view.pointer, (1,), None, view.dtype, False, None, None, owner=view.owner)
    del exporter, view
    gc.collect()
    assert memory() is not None
    del second
    gc.collect()
    assert memory() is None


def test_capsule_is_read_once() -> None:
    """A capsule read twice is refused: its tensor has an owner already."""
    capsule = export_dlpack(0x7000, (2,), F4, None, device=(DLPACK_CUDA, 0))
    view = interchange._consume_capsule(capsule, None)
    assert "used_dltensor" in repr(capsule)
    with pytest.raises(ArrayLayoutError, match="consumed"):
        interchange._consume_capsule(capsule, None)
    assert view.shape == (2,)


def test_versioned_capsule_is_asked_for() -> None:
    """A new producer is asked for a versioned capsule, an old one for what it has."""
    new = export_dlpack(1, (2,), F4, None, device=(DLPACK_CUDA, 0), max_version=(1, 0))
    old = export_dlpack(1, (2,), F4, None, device=(DLPACK_CUDA, 0))
    assert '"dltensor"' in repr(old)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert '"dltensor_versioned"' in repr(new)


def test_numpy_capsules_are_read() -> None:
    """Real capsules of numpy are read right: strides, offset and pointer, read-only too."""
    array = np.arange(24, dtype=np.int16).reshape(4, 6)[1::2, ::3]
    view = interchange._consume_capsule(array.__dlpack__(), None)
    assert view.pointer == array.ctypes.data
    assert (view.shape, view.strides_bytes, view.dtype.name) == ((2, 2), array.strides, "int16")
    assert not view.contiguous
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        array.flags.writeable = False
        frozen = interchange._consume_capsule(array.__dlpack__(max_version=(1, 0)), None)
        assert frozen.readonly


def test_numpy_reads_our_capsules() -> None:
    """numpy, an independent reader, sees the right values through an exported capsule."""
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    exporter = Exporter((2, 3), F4, (DLPACK_CPU, 0), pointer=host.ctypes.data)
    memory = weakref.ref(exporter.memory)
    read = np.from_dlpack(exporter)
    np.testing.assert_array_equal(read, host)
    del exporter
    gc.collect()
    assert memory() is not None
    del read
    gc.collect()
    assert memory() is None


def test_consumer_that_fails_keeps_its_error() -> None:
    """A consumer's error about the device comes through, and nothing leaks."""
    exporter = Exporter(device=(DLPACK_CUDA, 0))
    memory = weakref.ref(exporter.memory)
    with pytest.raises((BufferError, RuntimeError), match=r"[Dd]evice"):
        np.from_dlpack(exporter)
    del exporter
    gc.collect()
    assert memory() is None


def test_stream_for_the_producer() -> None:
    """A producer is told the stream of use; the default stream is 1, since 0 is not allowed."""
    exporter = Exporter()
    for stream in (None, 0, 1, 2, 0xABC):
        as_view(exporter, stream=stream)
    assert exporter.streams == [1, 1, 1, 2, 0xABC]


@pytest.mark.parametrize(
    ("device", "place"), [(1, "the CPU"), (3, "pinned host"), (10, "ROCm"), (99, "type 99")]
)
def test_arrays_elsewhere(device: int, place: str) -> None:
    """An array that is not in a CUDA device's memory is refused, naming where it is."""
    with pytest.raises(ArrayLayoutError, match=place):
        as_view(Exporter(device=(device, 0)))


def test_managed_memory() -> None:
    """CUDA's managed memory counts as a CUDA device's."""
    assert as_view(Exporter(device=(13, 0))).pointer == 0x7000


def test_numpy_array_is_on_the_cpu() -> None:
    """A numpy array is refused as a CPU's."""
    with pytest.raises(ArrayLayoutError, match="the CPU"):
        as_view(np.zeros(3))


def test_producer_that_refuses() -> None:
    """A producer's own error is passed on in words."""

    class Refuses(Exporter):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("conjugate bit is set")

    with pytest.raises(ArrayLayoutError, match="conjugate bit is set"):
        as_view(Refuses())


def test_elements_without_numpy_dtype() -> None:
    """bfloat16 and the 8-bit floats have names although numpy has no dtype for them."""
    dtype = interchange._DlDataType(4, 16, 1)
    element = interchange._dlpack_element_type(dtype)
    assert (element.name, element.size_bytes, element.numpy) == ("bfloat16", 2, None)
    fp8 = interchange._dlpack_element_type(interchange._DlDataType(10, 8, 1))
    assert (fp8.name, fp8.numpy) == ("float8_e4m3fn", None)
    for code, bits, lanes in ((2, 32, 4), (17, 4, 1), (3, 64, 1)):
        with pytest.raises(DtypeError, match=f"code {code}"):
            interchange._dlpack_element_type(interchange._DlDataType(code, bits, lanes))


def test_dtype_that_dlpack_lacks() -> None:
    """A record cannot be exported, and the error says so."""
    with pytest.raises(DtypeError, match="DLPack cannot carry"):
        export_dlpack(64, (1,), np.dtype("i4,f4"), None, device=(DLPACK_CUDA, 0))


def test_future_dlpack() -> None:
    """A capsule of an unknown major version is refused, and still belongs to its producer."""
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("numpy before 2.1 makes no versioned capsules")
    owner = Memory()
    capsule = export_dlpack(1, (2,), F4, owner, device=(DLPACK_CUDA, 0), max_version=(1, 0))
    address = interchange._capsule_pointer(capsule, b"dltensor_versioned")
    interchange._DlManagedTensorVersioned.from_address(address).major = 2
    with pytest.raises(ArrayLayoutError, match=r"DLPack 2\."):
        interchange._consume_capsule(capsule, None)
    alive = weakref.ref(owner)
    del owner, capsule
    gc.collect()
    assert alive() is None


# ---- streams


class Protocol:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


class PropertyProtocol(Protocol):
    @property
    def __cuda_stream__(self) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (0xABC, 0xABC),
        (Protocol((0, 0xABC)), 0xABC),
        (Protocol((0, 0)), 0),
        (PropertyProtocol((0, 7)), 7),
    ],
)
def test_stream_handles(stream: object, handle: int) -> None:
    """A stream is an object with __cuda_stream__ (method or property), a handle, or None."""
    assert foreign_stream_handle(stream) == handle


@pytest.mark.parametrize(
    "stream",
    [
        "text",
        True,
        1.0,
        -1,
        2**64,
        object(),
        Protocol((1, 5)),
        Protocol(5),
        Protocol((0, None)),
        Protocol((0, -1)),
    ],
)
def test_what_is_no_stream(stream: object) -> None:
    """Anything else, another version of the protocol and an impossible handle are refused."""
    with pytest.raises(StreamDeviceError):
        foreign_stream_handle(stream)


def test_a_stream_that_fails_when_asked_is_a_typed_error() -> None:
    """An error of the other library's own, or a class in place of its object, is put in words."""

    class Gone:
        @property
        def __cuda_stream__(self) -> Any:
            raise RuntimeError("the library is shut down")

    for stream, text in ((Gone(), "shut down"), (Protocol, "missing")):
        with pytest.raises(StreamDeviceError, match=f"does not tell its stream.*{text}"):
            foreign_stream_handle(stream)


def test_streams_without_the_protocol() -> None:
    """Streams of older torch and CuPy releases are known by their attributes."""
    torch = type("Stream", (), {"__module__": "torch.cuda.streams", "cuda_stream": 5})
    cupy = type("Stream", (), {"__module__": "cupy.cuda.stream", "ptr": 6})
    other = type("Stream", (), {"__module__": "other", "ptr": 6, "cuda_stream": 5})
    assert foreign_stream_handle(torch()) == 5
    assert foreign_stream_handle(cupy()) == 6
    with pytest.raises(StreamDeviceError):
        foreign_stream_handle(other())


# ---- overlap


def view(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> ArrayView:
    return ArrayView(pointer, shape, strides, ElementType("float32", 4), False, None, None)


def test_byte_range() -> None:
    """An array's bytes reach from its first to behind its last element, whatever its strides."""
    assert byte_range(view(100, (2, 3))) == (100, 124)
    assert byte_range(view(100, (2, 3), (100, 4))) == (100, 212)
    assert byte_range(view(100, (3,), (-4,))) == (92, 104)
    assert byte_range(view(100, (0, 3))) == (100, 100)
    assert byte_range(view(100, ())) == (100, 104)


def test_overlap() -> None:
    """Neighbours do not overlap, and one shared byte is an overlap; an empty array never does."""
    assert not overlaps(view(0, (4,)), view(16, (4,)))
    assert overlaps(view(0, (4,)), view(15, (4,)))
    assert overlaps(view(8, (1,)), view(0, (4,)))
    assert not overlaps(view(8, (0,)), view(0, (4,)))


def test_contiguity() -> None:
    """Extents of one may have any stride; a column order and a step may not."""
    assert view(0, (1, 4), (999, 4)).contiguous
    assert view(0, (3, 1), (4, 4)).contiguous
    assert not view(0, (2, 2), (4, 8)).contiguous
    assert not view(0, (4,), (8,)).contiguous


@pytest.mark.parametrize(
    "change",
    [
        {"strides": (4,)},
        {"strides": (4, 4, 4)},
        {"strides": 5},
        {"data": (-5, False)},
        {"data": (2**64, False)},
        {"data": None},
        {"version": None},
        {"shape": (-1, 3)},
        {"shape": None},
        {"typestr": None, "shape": 5},
        {"typestr": ","},
        {"stream": "one"},
        {"stream": -2},
    ],
)
def test_a_damaged_interface_is_a_typed_error(change: dict[str, Any]) -> None:
    """A __cuda_array_interface__ that makes no sense raises ArrayLayoutError and says so."""

    class Odd:
        __cuda_array_interface__ = cuda_array_interface(64, (2, 3), F4) | change

    with pytest.raises(ArrayLayoutError, match="not valid"):
        as_view(Odd())


@pytest.mark.parametrize("base", [object, Exporter])
@pytest.mark.parametrize("interface", [[], 5, "text"])
def test_an_interface_of_another_type_is_a_typed_error(interface: object, base: type) -> None:
    """A __cuda_array_interface__ that is no dict raises ArrayLayoutError, beside DLPack too."""
    odd = type("Odd", (base,), {"__cuda_array_interface__": interface})
    with pytest.raises(ArrayLayoutError):
        as_view(odd())


def test_a_producer_that_does_not_tell_its_device() -> None:
    """A DLPack producer that fails when asked for its device raises ArrayLayoutError."""

    class Odd(Exporter):
        def __dlpack_device__(self) -> Any:
            raise RuntimeError("gone")

    with pytest.raises(ArrayLayoutError, match="device"):
        as_view(Odd())
