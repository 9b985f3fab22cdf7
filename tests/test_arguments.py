"""Arguments: what fits a parameter, how it is packed, and what is refused with which remedy."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.binary.signature import KernelSignature, Parameter, ParameterKind
from lowgemm.errors import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    ArrayLayoutError,
    DtypeError,
)
from lowgemm.runtime.arguments import describe, pack
from lowgemm.runtime.shapes import (
    array_layout,
    checked_byte,
    element_dtype,
    element_of,
    host_array,
    shown,
)

K = ParameterKind


def parameter(kind: ParameterKind, size: int, **more: Any) -> Parameter:
    return Parameter(0, 0, size, kind, **more)


def signature(*parameters: Parameter) -> KernelSignature:
    return KernelSignature("k", parameters, 32, 0, 0)


def packed(value: object, kind: ParameterKind, size: int, **more: Any) -> bytes:
    return pack(signature(parameter(kind, size, **more)), [value]).buffer.raw[:size]


class CudaArray:
    """What another library's array shows."""

    def __init__(self, **changes: Any) -> None:
        self.interface = {
            "shape": (4, 4),
            "typestr": "<f4",
            "data": (0x1000, False),
            "version": 3,
            "strides": None,
            "stream": None,
        } | changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


# ---- count


@pytest.mark.parametrize("count", [0, 1, 3])
def test_count(count: int) -> None:
    """Too few or too many arguments are refused, and the parameters are listed."""
    two = signature(
        Parameter(0, 0, 4, K.SIGNED, "int"), Parameter(1, 8, 8, K.POINTER, "float const*")
    )
    with pytest.raises(ArgumentCountError, match=rf"takes 2 arguments and got {count}") as error:
        pack(two, [1] * count)
    assert "k(0: int, 4 bytes, 1: float const*, 8 bytes)" in error.value.remedy


def test_kernel_without_parameters() -> None:
    """A kernel without parameters takes no argument and has an address to pass all the same."""
    assert pack(signature(), []).address != 0


def test_describe_without_types() -> None:
    """Without a type's name its kind is shown."""
    assert describe(signature(Parameter(0, 0, 8))) == "k(0: unknown, 8 bytes)"


# ---- layout


def test_layout() -> None:
    """Each argument lies at its offset, and the pointers point at them."""
    mixed = signature(
        Parameter(0, 0, 1, K.UNSIGNED),
        Parameter(1, 8, 8, K.POINTER),
        Parameter(2, 16, 4, K.FLOAT),
    )
    result = pack(mixed, [0xAB, 0x1122, 1.5])
    base = ctypes.addressof(result.buffer)
    assert [(pointer or 0) - base for pointer in result.pointers] == [0, 8, 16]
    assert result.buffer.raw == struct.pack("<B7xQf", 0xAB, 0x1122, 1.5)
    assert result.address == ctypes.addressof(result.pointers)


# ---- Python ints


@given(st.data())
def test_integers_round_trip(data: st.DataObject) -> None:
    """Every int in range is packed as C would hold it."""
    width = data.draw(st.sampled_from([1, 2, 4, 8]))
    signed = data.draw(st.booleans())
    low = -(1 << 8 * width - 1) if signed else 0
    high = (1 << 8 * width - signed) - 1
    value = data.draw(st.integers(low, high))
    raw = packed(value, K.SIGNED if signed else K.UNSIGNED, width)
    assert int.from_bytes(raw, "little", signed=signed) == value


@pytest.mark.parametrize(
    ("kind", "size", "good", "bad"),
    [
        (K.SIGNED, 4, [-(2**31), 2**31 - 1], [-(2**31) - 1, 2**31]),
        (K.UNSIGNED, 4, [0, 2**32 - 1], [-1, 2**32]),
        (K.INTEGER, 4, [-(2**31), 2**32 - 1], [-(2**31) - 1, 2**32]),
        (K.UNKNOWN, 2, [-(2**15), 2**16 - 1], [-(2**15) - 1, 2**16]),
        (K.POINTER, 8, [0, 2**64 - 1], [-1, 2**64]),
        (K.UNKNOWN, 8, [-(2**63), 2**64 - 1], [2**64]),
    ],
)
def test_integer_bounds(kind: ParameterKind, size: int, good: list[int], bad: list[int]) -> None:
    """The range of an int follows from the parameter's width and sign, to the last value."""
    for value in good:
        assert packed(value, kind, size) == (value % (1 << 8 * size)).to_bytes(size, "little")
    for value in bad:
        with pytest.raises(ArgumentValueError, match="cannot hold"):
            packed(value, kind, size)


def test_integer_of_odd_width() -> None:
    """An int for a 16-byte parameter is refused: nobody knows its layout."""
    with pytest.raises(ArgumentTypeError, match="16 bytes"):
        packed(1, K.UNKNOWN, 16)
    with pytest.raises(ArgumentTypeError):
        packed(1, K.STRUCT, 8)


def test_bool() -> None:
    """A bool goes into one byte and nowhere else."""
    assert packed(True, K.UNSIGNED, 1) == b"\1"
    assert packed(np.bool_(False), K.UNKNOWN, 1) == b"\0"
    for value in (True, np.bool_(True)):
        with pytest.raises(ArgumentTypeError, match=r"int\(x\)"):
            packed(value, K.SIGNED, 4)
    with pytest.raises(ArgumentValueError):
        packed(2, K.UNSIGNED, 1, type_name="bool")


# ---- floats


@given(st.floats(width=32, allow_nan=False))
def test_float_arrives_as_a_float(value: float) -> None:
    """A Python float for a float parameter is packed in four bytes, not as half a double."""
    raw = packed(value, K.FLOAT, 4)
    assert raw == np.float32(value).tobytes()
    assert raw == packed(value, K.UNKNOWN, 4)


def test_float_widths() -> None:
    """A float takes the parameter's width."""
    assert packed(1.5, K.FLOAT, 2) == np.float16(1.5).tobytes()
    assert packed(0.1, K.FLOAT, 8) == struct.pack("<d", 0.1)
    assert packed(0.1, K.UNKNOWN, 8) == struct.pack("<d", 0.1)
    assert math.isnan(struct.unpack("<f", packed(math.nan, K.FLOAT, 4))[0])
    assert packed(math.inf, K.FLOAT, 2) == np.float16(np.inf).tobytes()


@pytest.mark.parametrize(("value", "size"), [(1e39, 4), (-1e39, 4), (70000.0, 2)])
def test_float_overflow(value: float, size: int) -> None:
    """A finite float that would become infinity is refused."""
    with pytest.raises(ArgumentValueError, match="overflows"):
        packed(value, K.FLOAT, size)


@pytest.mark.parametrize("kind", [K.SIGNED, K.UNSIGNED, K.INTEGER, K.POINTER, K.STRUCT])
def test_float_for_something_else(kind: ParameterKind) -> None:
    """A float for an integer, a pointer or a struct is refused."""
    with pytest.raises(ArgumentTypeError, match="cannot be a float"):
        packed(1.0, kind, 8)


def test_float_for_an_unknown_half() -> None:
    """Two bytes of unknown kind take no Python float: half and bfloat16 differ."""
    with pytest.raises(ArgumentTypeError, match="float16"):
        packed(1.0, K.UNKNOWN, 2)


def test_int_for_a_float() -> None:
    """An int is taken for a float parameter exactly where the float represents it."""
    assert packed(2**24, K.FLOAT, 4) == struct.pack("<f", 2.0**24)
    for value, size in ((2**24 + 1, 4), (10**400, 8), (10**39, 4)):
        with pytest.raises(ArgumentValueError, match="exactly"):
            packed(value, K.FLOAT, size)


def test_bfloat16() -> None:
    """A bfloat16 parameter gets the rounded upper half of a float32."""
    name = "__nv_bfloat16"
    assert packed(1.0, K.FLOAT, 2, type_name=name) == b"\x80\x3f"
    assert packed(1.0 + 2**-8, K.FLOAT, 2, type_name=name) == b"\x80\x3f"  # a tie goes to even
    assert packed(1.0 + 2**-8 + 2**-20, K.FLOAT, 2, type_name=name) == b"\x81\x3f"
    assert packed(math.nan, K.FLOAT, 2, type_name=name) == b"\xc0\x7f"
    with pytest.raises(ArgumentTypeError):
        packed(np.float16(1), K.FLOAT, 2, type_name=name)


# ---- numpy and ctypes scalars


@pytest.mark.parametrize(
    ("value", "kind", "size"),
    [
        (np.int32(-5), K.SIGNED, 4),
        (np.uint8(200), K.INTEGER, 1),
        (np.uint64(2**63), K.POINTER, 8),
        (np.float32(0.1), K.FLOAT, 4),
        (np.float32(0.1), K.UNKNOWN, 4),
        (np.float64(0.1), K.FLOAT, 8),
        (np.float16(0.1), K.UNKNOWN, 2),
        (np.complex64(1 + 2j), K.STRUCT, 8),
        (ctypes.c_int(-5), K.SIGNED, 4),
        (ctypes.c_double(0.1), K.FLOAT, 8),
        (ctypes.c_float(0.1), K.UNKNOWN, 4),
        (ctypes.c_void_p(77), K.POINTER, 8),
        (ctypes.c_uint64(77), K.UNKNOWN, 8),
    ],
)
def test_scalar_of_the_right_width(value: Any, kind: ParameterKind, size: int) -> None:
    """A numpy or ctypes scalar of the parameter's width and class is packed as it is."""
    expected = value.tobytes() if isinstance(value, np.generic) else bytes(value)
    assert packed(value, kind, size) == expected


@pytest.mark.parametrize(
    ("value", "kind", "size", "remedy"),
    [
        (np.float64(0.1), K.FLOAT, 4, r"numpy\.float32"),
        (np.float64(0.1), K.UNKNOWN, 4, r"numpy\.float32"),
        (np.int64(1), K.SIGNED, 4, r"numpy\.int32"),
        (np.int64(1), K.UNSIGNED, 4, r"numpy\.uint32"),
        (np.int32(1), K.FLOAT, 4, r"numpy\.float32"),
        (np.float32(1), K.SIGNED, 4, r"numpy\.int32"),
        (np.int32(1), K.UNKNOWN, 8, r"numpy\.int64"),
        (np.float32(1), K.POINTER, 8, ""),
        (np.datetime64(1, "s"), K.UNKNOWN, 8, ""),
        (ctypes.c_int64(1), K.SIGNED, 4, ""),
        (ctypes.c_float(1), K.SIGNED, 4, ""),
        (ctypes.c_int(1), K.FLOAT, 4, ""),
        (ctypes.c_void_p(1), K.SIGNED, 8, ""),
        (ctypes.c_char_p(b"x"), K.POINTER, 8, "upload"),
        (ctypes.py_object(1), K.UNKNOWN, 8, "upload"),
    ],
)
def test_scalar_of_the_wrong_width_or_class(
    value: Any, kind: ParameterKind, size: int, remedy: str
) -> None:
    """A scalar of another width or class is refused, with the type to use instead."""
    with pytest.raises(ArgumentTypeError, match=remedy or "cannot be"):
        packed(value, kind, size)


def test_numpy_integer_of_the_other_sign() -> None:
    """A numpy integer of the other sign is taken where its value fits."""
    assert packed(np.uint32(7), K.SIGNED, 4) == b"\7\0\0\0"
    with pytest.raises(ArgumentValueError):
        packed(np.int32(-1), K.UNSIGNED, 4)


# ---- structs


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_float))


@pytest.mark.parametrize("kind", [K.STRUCT, K.UNKNOWN])
def test_struct(kind: ParameterKind) -> None:
    """A struct comes as bytes, a ctypes structure or a numpy record of its exact size."""
    expected = struct.pack("<if", 3, 0.5)
    record = np.zeros(1, dtype=[("a", "<i4"), ("b", "<f4")])
    record[0] = (3, 0.5)
    for value in (expected, bytearray(expected), Pair(3, 0.5), record[0]):
        assert packed(value, kind, 8) == expected
        with pytest.raises(ArgumentTypeError, match="8 bytes instead of 12"):
            packed(value, kind, 12)


def test_bytes_for_a_number() -> None:
    """Bytes are refused where the parameter is known to be a number or a pointer."""
    for kind in (K.SIGNED, K.FLOAT, K.POINTER):
        with pytest.raises(ArgumentTypeError, match="struct"):
            packed(bytes(8), kind, 8)


# ---- pointers and arrays


def test_none_is_a_null_pointer() -> None:
    """None is a null pointer, and nothing else."""
    assert packed(None, K.POINTER, 8) == bytes(8)
    assert packed(None, K.UNKNOWN, 8) == bytes(8)
    for kind, size in ((K.SIGNED, 8), (K.UNKNOWN, 4)):
        with pytest.raises(ArgumentTypeError, match="null pointer"):
            packed(None, kind, size)


def test_foreign_array() -> None:
    """An array of another library gives its pointer, stays alive and names its stream."""
    array = CudaArray(stream=7)
    result = pack(signature(parameter(K.POINTER, 8, pointee="float32")), [array])
    assert result.buffer.raw == (0x1000).to_bytes(8, "little")
    assert result.owners == (array,)
    assert result.streams == {7}
    assert packed(CudaArray(), K.UNKNOWN, 8) == (0x1000).to_bytes(8, "little")


def test_array_for_a_number() -> None:
    """An array is refused where the parameter is a number, also one of unknown kind."""
    for kind, size in ((K.SIGNED, 8), (K.UNKNOWN, 4), (K.STRUCT, 8)):
        with pytest.raises(ArgumentTypeError):
            packed(CudaArray(), kind, size)


def test_array_of_other_elements() -> None:
    """An array of doubles is refused where the kernel has a pointer to float."""
    with pytest.raises(DtypeError, match="points to float32, and the array holds float64"):
        packed(CudaArray(typestr="<f8"), K.POINTER, 8, pointee="float32")
    assert packed(CudaArray(typestr="<f8"), K.POINTER, 8)


def test_array_that_is_not_contiguous() -> None:
    """A transposed or sliced array is refused; strides that say C order are not."""
    with pytest.raises(ArrayLayoutError, match="contiguous"):
        packed(CudaArray(strides=(4, 16)), K.POINTER, 8)
    assert packed(CudaArray(strides=(16, 4)), K.POINTER, 8)


def test_read_only_array() -> None:
    """A read-only array is refused where the kernel may write, and taken for a const pointer."""
    array = CudaArray(data=(0x1000, True))
    with pytest.raises(ArrayLayoutError, match="read-only"):
        packed(array, K.POINTER, 8, pointee="float32")
    assert packed(array, K.POINTER, 8, pointee="float32", pointee_is_const=True)
    assert packed(array, K.UNKNOWN, 8)


def test_host_array() -> None:
    """A numpy array is refused with the call that brings it to the device."""
    with pytest.raises(ArgumentTypeError, match=r"device\.upload\(x\)"):
        packed(np.zeros(4, np.float32), K.POINTER, 8)


@pytest.mark.parametrize("value", ["text", [1, 2], 1j, object()])
def test_what_is_no_argument(value: object) -> None:
    """Anything else is refused with its type's name."""
    with pytest.raises(ArgumentTypeError, match=type(value).__name__):
        packed(value, K.UNKNOWN, 8)


def test_message_names_kernel_and_position() -> None:
    """The message says which argument of which kernel, what it should be and what it was."""
    with pytest.raises(ArgumentTypeError) as error:
        pack(
            signature(
                Parameter(0, 0, 4, K.SIGNED, "int"), Parameter(1, 4, 4, K.UNSIGNED, "unsigned")
            ),
            [1, 2.5],
        )
    assert "argument 1 of kernel k (unsigned, 4 bytes) cannot be a float: 2.5" in str(error.value)


# ---- ctypes, byte order and CUDA's number classes


@pytest.mark.parametrize(
    ("value", "kind", "size", "type_name"),
    [
        (ctypes.c_uint32(2**32 - 1), K.SIGNED, 4, "int"),
        (ctypes.c_int32(-1), K.UNSIGNED, 4, "unsigned int"),
        (ctypes.c_int64(-1), K.POINTER, 8, "float*"),
        (ctypes.c_uint8(2), K.UNSIGNED, 1, "bool"),
        (ctypes.c_char(b"a"), K.UNSIGNED, 1, "bool"),
    ],
)
def test_ctypes_integers_have_their_range_checked(
    value: Any, kind: ParameterKind, size: int, type_name: str
) -> None:
    """A ctypes integer is taken only where its value fits, as a numpy one is."""
    with pytest.raises(ArgumentValueError):
        packed(value, kind, size, type_name=type_name)


def test_ctypes_integers_arrive() -> None:
    """A ctypes integer, bool, character or address that fits is packed by its value."""
    assert packed(ctypes.c_uint32(7), K.SIGNED, 4) == b"\7\0\0\0"
    assert packed(ctypes.c_bool(True), K.UNSIGNED, 1, type_name="bool") == b"\1"
    assert packed(ctypes.c_char(b"\xff"), K.SIGNED, 1, type_name="char") == b"\xff"
    assert packed(ctypes.c_wchar("a"), K.SIGNED, 4, type_name="wchar_t") == b"a\0\0\0"
    assert packed(ctypes.c_void_p(None), K.POINTER, 8) == bytes(8)


class Swapped(ctypes.BigEndianStructure):
    _fields_ = (("a", ctypes.c_int),)


class Nested(ctypes.Structure):
    _fields_ = (("inner", Swapped * 2), ("b", ctypes.c_int))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (ctypes.c_int32.__ctype_be__(1), K.SIGNED),
        (ctypes.c_float.__ctype_be__(1), K.SIGNED),
        (ctypes.c_float.__ctype_be__(1), K.FLOAT),
        (ctypes.c_int32.__ctype_be__(1), K.UNKNOWN),
        (Swapped(1), K.STRUCT),
        ((ctypes.c_int32.__ctype_be__ * 1)(1), K.STRUCT),
        (Nested(), K.STRUCT),
        (np.zeros(1, [("a", ">i4")])[0], K.STRUCT),
        (np.ones(1, ">i4").data, K.STRUCT),
    ],
)
def test_the_other_byte_order_is_refused(value: Any, kind: ParameterKind) -> None:
    """Nothing in the other byte order reaches a kernel."""
    size = ctypes.sizeof(value) if isinstance(value, ctypes.Structure) else 4
    with pytest.raises(ArgumentTypeError, match="cannot be"):
        packed(value, kind, size)


def test_int128() -> None:
    """An __int128 parameter takes an int in its range, and bytes are refused with that remedy."""
    name = {"type_name": "__int128"}
    assert packed(-2, K.SIGNED, 16, **name) == (-2).to_bytes(16, "little", signed=True)
    with pytest.raises(ArgumentValueError):
        packed(2**127, K.SIGNED, 16, **name)
    with pytest.raises(ArgumentTypeError, match="pass an int"):
        packed(bytes(16), K.SIGNED, 16, **name)


@pytest.mark.parametrize("kind", [K.STRUCT, K.UNKNOWN])
def test_cuda_number_classes_by_value(kind: ParameterKind) -> None:
    """A bfloat16 by value takes a float or its bytes, an 8-bit float its byte; errors say so."""
    bfloat = {"type_name": "__nv_bfloat16"}
    assert packed(1.0, kind, 2, **bfloat) == packed(1, kind, 2, **bfloat) == b"\x80\x3f"
    assert packed(b"\x80\x3f", kind, 2, **bfloat) == b"\x80\x3f"
    with pytest.raises(ArgumentTypeError, match="pass a Python float"):
        packed(np.float32(1), kind, 2, **bfloat)
    fp8 = {"type_name": "__nv_fp8_e4m3"}
    assert packed(b"\x38", kind, 1, **fp8) == b"\x38"
    for value in (1.0, 1, True, np.int8(1), np.float16(1)):
        with pytest.raises(ArgumentTypeError, match=r"pass (the 1 byte of the value, or|int)"):
            packed(value, kind, 1, **fp8)


def test_bfloat16_of_a_real_kernel() -> None:
    """A kernel with a __nv_bfloat16 parameter takes a Python float for it."""
    from lowgemm.compiler import compile_source

    text = "#include <cuda_bf16.h>\n__global__ void k(__nv_bfloat16 x) {}"
    kernel = compile_source(text, arch=90).kernel()
    assert pack(kernel.signature, [1.0]).buffer.raw[:2] == b"\x80\x3f"


# ---- arrays: shapes, dtypes and contents

_ENORMOUS = 10**5000  # more digits than Python writes


@pytest.mark.parametrize(
    "shape",
    [
        *(
            -1,
            (2, -1),
            2.5,
            "",
            "ab",
            b"ab",
            {2, 3},
            {2: 3},
            memoryview(b"ab"),
            None,
            True,
            (True,),
            np.array(2.5),
        ),
        *(((1,) * 100), (1 << 40, 1 << 40), (1 << 70, 0)),
        pytest.param(_ENORMOUS, id="enormous"),
    ],
)
def test_what_is_no_shape(shape: Any) -> None:
    """A shape that is none, or that numpy itself cannot have, raises ArrayLayoutError."""
    with pytest.raises(ArrayLayoutError):
        array_layout(shape, np.float32)


def test_shapes_are_integers_of_any_kind() -> None:
    """A Python or numpy integer, a sequence or an array of them is a shape of Python ints."""
    for shape in (6, np.int64(6), [6], (np.uint8(6),), np.array([6]), range(6, 7)):
        extents, _ = array_layout(shape, np.float32)  # type: ignore[arg-type]
        assert extents == (6,) and type(extents[0]) is int
    assert array_layout((), np.float32)[0] == ()


@pytest.mark.parametrize(
    "dtype",
    [
        *(object, None, 3, "zz", ",", "U4", "S4", "M8[s]", "m8[s]", "longdouble", ">f4", "V0"),
        *("(2,)f4", {"names": 1}, [("a", "U3")], [("a", ">f4")], [("a", "f4"), ("a", "f4")]),
    ],
)
def test_what_is_no_element(dtype: Any) -> None:
    """Elements that are no numbers, of whatever depth in a record, raise DtypeError."""
    with pytest.raises(DtypeError):
        element_dtype(dtype)


def test_numbers_and_records_are_elements() -> None:
    """Booleans, numbers, raw bytes and records of them may lie in a device's memory."""
    for dtype in ("bool", "int8", "uint64", "float16", "float64", "complex128", "V3"):
        assert element_dtype(dtype) == np.dtype(dtype)
    record = np.dtype([("a", "f4", (2,)), ("b", [("c", "i8")])])
    assert element_dtype(record) == record


class Unconvertible:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("it lies on a GPU")


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ([[1], [1, 2]], "rows of the same length"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "masked"),
        (Unconvertible(), "it lies on a GPU"),
    ],
)
def test_what_is_no_host_array(host: object, text: str) -> None:
    """Ragged rows, a mask and what does not convert itself raise ArrayLayoutError in words."""
    with pytest.raises(ArrayLayoutError, match=text):
        host_array(host)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", "q"),
        ("float32", "1.5"),
        ("float32", None),
        ("float32", [1, 2]),
        ("float32", np.ma.masked),
        ("int32", np.array([1])),
        ("int64", np.datetime64(1, "s")),
        ("i4,f4", "q"),
        ("i4,f4", [(1, 2), (3, 4)]),
    ],
)
def test_what_is_no_value(dtype: str, value: object) -> None:
    """An array is filled with one number: all else raises ArgumentTypeError."""
    with pytest.raises(ArgumentTypeError):
        element_of(value, np.dtype(dtype))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1j),
        ("float32", 1e39),
        ("float64", 10**400),
        pytest.param("float64", _ENORMOUS, id="enormous"),
        ("complex64", 1e39j),
        ("int32", 1.5),
        ("int32", math.nan),
        ("int32", math.inf),
        ("int8", 300),
        ("uint32", -1),
        ("int64", 2.0**63),
        ("bool", 2),
    ],
)
def test_values_that_an_element_cannot_hold(dtype: str, value: object) -> None:
    """A value out of range, and one that would lose its fraction or imaginary part, is refused."""
    with pytest.raises(ArgumentValueError, match="cannot hold"):
        element_of(value, np.dtype(dtype))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 0.1),
        ("float32", 2**24 + 1),
        ("float16", math.inf),
        ("float64", np.float32(0.1)),
        ("int32", 3.0),
        ("uint64", 2**64 - 1),
        ("uint8", np.int64(255)),
        ("bool", True),
        ("complex64", 1 + 0.1j),
        ("i4,f4", (1, 2.5)),
    ],
)
def test_values_that_fill(dtype: str, value: object) -> None:
    """A float is rounded, and every value that the dtype holds arrives as numpy converts it."""
    expected = np.asarray(value, np.dtype(dtype))
    assert element_of(value, np.dtype(dtype)).tobytes() == expected.tobytes()
    if dtype == "float32":
        assert np.isnan(element_of(math.nan, np.dtype(dtype)))


def test_bytes_that_fill() -> None:
    """A byte is an integer from 0 to 255, and nothing that only becomes one."""
    assert [checked_byte(each) for each in (0, np.uint8(255))] == [0, 255]
    for bad in (1.5, "1", True, None):
        with pytest.raises(ArgumentTypeError):
            checked_byte(bad)
    for number in (-1, 256, _ENORMOUS):
        with pytest.raises(ArgumentValueError, match="0 to 255"):
            checked_byte(number)


def test_what_cannot_be_written_out() -> None:
    """An error's text names a value's type where Python does not write the value, or fails to."""

    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown(_ENORMOUS) == "an object of type int"
    assert shown(Silent()) == "an object of type Silent"
    assert len(shown(list(range(1000)))) == 60
    with pytest.raises(ArgumentValueError, match="an object of type int"):
        packed(_ENORMOUS, K.SIGNED, 4)
