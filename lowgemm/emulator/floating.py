"""Floating-point operations: what their bits say; :mod:`.arithmetic` does the sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lowgemm.emulator import arithmetic as fp
from lowgemm.emulator.front import Front, Mask
from lowgemm.emulator.integer import BOOLEANS, boolean, put32, put64, put_predicate
from lowgemm.emulator.operation import Run, maker
from lowgemm.emulator.word import RZ, Word, read32, with_signs
from lowgemm.isa import Form

__all__: list[str] = []

U16 = np.uint16
U32 = np.uint32
U64 = np.uint64
_HALF = U32(16)
_LOW_HALF = U32(0xFFFF)

ROUNDINGS: tuple[fp.Rounding, ...] = ("RN", "RM", "RP", "RZ")
#: Those of conversions to integers.
INTEGER_ROUNDINGS: tuple[fp.IntegerRounding, ...] = ("RN", "FLOOR", "CEIL", "TRUNC")
FLOAT_COMPARISONS: tuple[fp.Comparison, ...] = (
    "F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM",
    "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T",
)  # fmt: skip
#: What bits 84-86 of FMUL hold where the product is not scaled.
_UNSCALED = 4
_MUFU: tuple[fp.MufuOperation, ...] = (
    "COS",
    "SIN",
    "EX2",
    "LG2",
    "RCP",
    "RSQ",
    "RCP64H",
    "RSQ64H",
    "SQRT",
    "TANH",
)


def _flat(f: Front, value: Any) -> Any:
    """An operand as a flat array of all lanes, or of one element."""
    return value.reshape(-1) if value.size in (1, f.count * 32) else f.full(value).reshape(-1)


def _shaped(f: Front, value: Any) -> Any:
    """A flat result in the shape of lanes; of uniform operands, of warps."""
    if value.size == f.count * 32:
        return value.reshape(f.count, 32)
    return value.reshape(-1, 1)


def _on_lanes(function: Callable[..., Any], uniform: bool) -> Callable[..., Any]:
    """A function of flat arrays as one of (warps, 32) or (warps, 1) arrays."""

    def call(f: Front, *operands: Any) -> Any:
        if uniform:
            shaped = [np.broadcast_to(each, (f.count, 1)).reshape(-1) for each in operands]
            return function(*shaped).reshape(f.count, 1)
        flat = [_flat(f, each) for each in operands]
        if all(each.size == 1 for each in flat):
            return function(*flat).reshape(1, 1)
        return function(*flat).reshape(f.count, 32)

    return call


def _float_settings(w: Word) -> dict[str, Any]:
    """Rounding (78-79), saturation (77) and flushing (80) of an FP32 operation."""
    return {
        "rounding": ROUNDINGS[w.take(78, 2)],
        "saturate": w.flag(77),
        "ftz": w.flag(80),
    }


@maker("FFMA", "UFFMA")
def _ffma(w: Word) -> Run:
    settings = _float_settings(w)
    if w.flag(76):
        raise w.unknown("FFMA.FMZ")
    a, b, c = (w.float_operand(n, sources=3) for n in "abc")
    if not w.uniform:
        number = w.destination()
        return _ffma_of_lanes(number, a, b, c, settings)
    put = put32(w)
    call = _on_lanes(lambda x, y, z: fp.ffma(x, y, z, **settings), True)
    return lambda f, m: put(f, call(f, a(f), b(f), c(f)), m)


def _ffma_of_lanes(number: int, a: Any, b: Any, c: Any, settings: dict[str, Any]) -> Run:
    ffma = fp.ffma
    plain = settings == {"rounding": "RN", "saturate": False, "ftz": False}

    def run(f: Front, m: Mask) -> None:
        x, y, z = _flat(f, a(f)), _flat(f, b(f)), _flat(f, c(f))
        if plain and m is None and f.warps is None and number != 255:
            ffma(x, y, z, out=f.batch.registers[number].reshape(-1))
            return
        result = ffma(x, y, z, **settings)
        f.put(number, result.reshape(f.count, 32) if result.size > 1 else result[0], m)

    return run


#: By the selector of a packed operand, the word of its register pair for either half: both in their
#: order (F32x2.HI_LO), swapped (F32x2.LO_HI), or one register for both (F32).
_PACKED = ((0, 1), (1, 0), (0, 0))
#: Where register, selector, negation and absolute value of A, B and C stand.
_PACKED_OPERANDS = ((24, 81, 72, 73), (32, 87, 63, 62), (64, 84, 75, 74))


@maker("FFMA2")
def _ffma2(w: Word) -> Run:
    """Two FFMAs on pairs of registers: sm_100 and sm_103."""
    if w.form is not Form.rr:
        raise w.unknown("FFMA2 with an operand that is no register")
    if w.flag(76):
        raise w.unknown("FFMA2.FMZ")
    rounding, ftz = ROUNDINGS[w.take(78, 2)], w.flag(80)
    halves = list(zip(*(_packed_operand(w, *places) for places in _PACKED_OPERANDS), strict=True))
    number = w.destination(count=2)
    call = _on_lanes(lambda x, y, z: fp.ffma(x, y, z, rounding=rounding, ftz=ftz), False)

    def run(f: Front, m: Mask) -> None:
        results = [call(f, a(f), b(f), c(f)) for a, b, c in halves]
        if number != RZ:
            for word, result in enumerate(results):
                f.put(number + word, result, m)

    return run


def _packed_operand(w: Word, at: int, selector: int, negation: int, absolute: int) -> list[Any]:
    """What reads either half of an operand."""
    words = dict(enumerate(_PACKED)).get(w.take(selector, 2))
    if words is None:
        raise w.unknown("FFMA2 with an operand of another kind")
    number = w.register(at, count=1 + max(words))
    signs = w.flag(negation), w.flag(absolute)
    registers = [number if number == RZ else number + word for word in words]
    return [with_signs(read32(each, False), *signs, wide=False) for each in registers]


@maker("FADD", "UFADD", "FMUL", "UFMUL")
def _fadd(w: Word) -> Run:
    is_sum = w.instruction.name.endswith("FADD")
    settings = _float_settings(w)
    if not is_sum and (w.take(76) or w.take(84, 3) != _UNSCALED):
        raise w.unknown("a scaled product")
    w.ignore(81, 3)
    put = put32(w)
    if w.instruction.name == "UFADD":  # its second source stands in slot C
        a, b = w.float_operand("a", sources=3), w.float_operand("c", sources=3)
    else:
        a, b = w.float_operand("a", sources=2), w.float_operand("b", sources=2)
    function = fp.fadd if is_sum else fp.fmul
    call = _on_lanes(lambda x, y: function(x, y, **settings), w.uniform)
    return lambda f, m: put(f, call(f, a(f), b(f)), m)


@maker("FSEL", "UFSEL")
def _fsel(w: Word) -> Run:
    ftz = w.flag(80)
    put, predicate = put32(w), w.predicate(87)
    a, b = w.float_operand("a", sources=2), w.float_operand("b", sources=2)

    def run(f: Front, m: Mask) -> None:
        value = np.where(predicate(f), a(f), b(f))
        if ftz:
            value = np.where(value & U32(0x7F800000), value, value & U32(0x80000000))
        put(f, value, m)

    return run


@maker("FMNMX", "UFMNMX")
def _fmnmx(w: Word) -> Run:
    settings = {"ftz": w.flag(80), "propagate_nan": w.flag(81), "xorsign": w.flag(82)}
    if w.flag(65):
        raise w.unknown("FMNMX.IS_A")
    w.ignore(66, 6)
    put, minimum = put32(w), w.predicate(87)
    a, b = w.float_operand("a", sources=2), w.float_operand("b", sources=2)

    def function(x: Any, y: Any, less: Any) -> Any:
        return fp.fmin_max(x, y, less, **settings)

    call = _on_lanes(function, w.uniform)
    return lambda f, m: put(f, call(f, a(f), b(f), minimum(f)), m)


@maker("FMNMX3")
def _fmnmx3(w: Word) -> Run:
    settings = {"ftz": w.flag(80), "propagate_nan": w.flag(81), "xorsign": w.flag(82)}
    put, minimum = put32(w), w.predicate(87)
    a, b, c = (w.float_operand(n, sources=3) for n in "abc")

    def function(x: Any, y: Any, z: Any, less: Any) -> Any:
        return fp.fmin_max(fp.fmin_max(x, y, less, **settings), z, less, **settings)

    call = _on_lanes(function, w.uniform)
    return lambda f, m: put(f, call(f, a(f), b(f), c(f), minimum(f)), m)


def _comparing(w: Word, function: Callable[..., Any], a: Any, b: Any) -> Run:
    combine = boolean(w)
    first, second, other = put_predicate(w, 81), put_predicate(w, 84), w.predicate(87)
    call = _on_lanes(function, w.uniform)

    def run(f: Front, m: Mask) -> None:
        result, with_other = call(f, a(f), b(f)), other(f)
        if first is not None:
            first(f, combine(result, with_other), m)
        if second is not None:
            second(f, combine(~result, with_other), m)

    return run


@maker("FSETP", "UFSETP")
def _fsetp(w: Word) -> Run:
    operation, ftz = FLOAT_COMPARISONS[w.take(76, 4)], w.flag(80)
    a, b = w.float_operand("a", sources=2), w.float_operand("b", sources=2)
    return _comparing(w, lambda x, y: fp.fcompare(x, y, operation, ftz=ftz), a, b)


@maker("FSET", "UFSET")
def _fset(w: Word) -> Run:
    operation, ftz = FLOAT_COMPARISONS[w.take(76, 4)], w.flag(80)
    combine, other = boolean(w), w.predicate(87)
    put = put32(w)
    a, b = w.float_operand("a", sources=2), w.float_operand("b", sources=2)
    call = _on_lanes(lambda x, y: fp.fcompare(x, y, operation, ftz=ftz), w.uniform)
    true = U32(0x3F800000)  # FSET is always .BF: 1.0f
    return lambda f, m: put(f, np.where(combine(call(f, a(f), b(f)), other(f)), true, U32(0)), m)


@maker("FCHK")
def _fchk(w: Word) -> Run:
    """Whether a quotient needs the slow path: operands or result near the ends of the range.

    The hardware's exact rule is not published. This one sends at least the cases that the fast
    path of CUDA's division (Newton's method on MUFU.RCP) cannot do.
    """
    put = put_predicate(w, 81)
    a, b = w.float_operand("a", sources=2), w.float_operand("b", sources=2)

    def run(f: Front, m: Mask) -> None:
        x = (a(f) >> U32(23) & U32(0xFF)).astype(np.int32)
        y = (b(f) >> U32(23) & U32(0xFF)).astype(np.int32)
        extreme = (x == 0) | (x == 255) | (y <= 1) | (y >= 253)
        quotient = x - y
        slow = extreme | (quotient >= 126) | (quotient <= -125) | (x <= 24)
        if put is not None:
            put(f, slow, m)

    return run


@maker("MUFU")
def _mufu(w: Word) -> Run:
    kind, number = w.take(72, 2), w.take(74, 4)
    if number >= len(_MUFU):
        raise w.unknown("no such function")
    operation = _MUFU[number]
    w.ignore(78, 13)
    if w.arch.major < 9:  # bit 73 is .F16; from sm_90 on 1 is .F16 and 2 .BF16
        kind >>= 1
    if kind:
        return _mufu_of_halves(w, operation, bf16=kind == 2)
    put, b = put32(w), w.float_operand("b", sources=2)
    call = _on_lanes(lambda x: fp.mufu(operation, x), w.uniform)
    return lambda f, m: put(f, call(f, b(f)), m)


def _mufu_of_halves(w: Word, operation: fp.MufuOperation, *, bf16: bool) -> Run:
    if operation != "EX2" and operation != "TANH":
        raise w.unknown(f"{operation} of halves")
    put, b = put32(w), _half_source(w)
    call = _on_lanes(lambda x: fp.mufu_half(operation, x, bf16=bf16).astype(U32), False)
    return lambda f, m: put(f, call(f, b(f)), m)


# ---- doubles


def _double_operands(w: Word, *names: str) -> list[Any]:
    return [w.float_operand(n, sources=3, wide=True) for n in names]


@maker("DFMA")
def _dfma(w: Word) -> Run:
    rounding = ROUNDINGS[w.take(78, 2)]
    put = put64(w)
    a, b, c = _double_operands(w, "a", "b", "c")
    call = _on_lanes(lambda x, y, z: fp.dfma(x, y, z, rounding=rounding), False)
    return lambda f, m: put(f, call(f, a(f), b(f), c(f)), m)


@maker("DADD")
def _dadd(w: Word) -> Run:
    rounding = ROUNDINGS[w.take(78, 2)]
    put = put64(w)
    a, c = _double_operands(w, "a", "c")
    call = _on_lanes(lambda x, y: fp.dadd(x, y, rounding=rounding), False)
    return lambda f, m: put(f, call(f, a(f), c(f)), m)


@maker("DMUL")
def _dmul(w: Word) -> Run:
    rounding = ROUNDINGS[w.take(78, 2)]
    put = put64(w)
    a, b = (w.float_operand(n, sources=2, wide=True) for n in "ab")
    call = _on_lanes(lambda x, y: fp.dmul(x, y, rounding=rounding), False)
    return lambda f, m: put(f, call(f, a(f), b(f)), m)


#: DSETP.MIN and .MAX stand where FSETP has F and T.
_DOUBLE_CHOICES: dict[int, fp.Comparison] = {0: "LT", 15: "GT"}


def _choosing(w: Word, operation: fp.Comparison, a: Any, b: Any) -> Run:
    """DSETP.MIN and .MAX: whether to take A, and whether both are NaN.

    -0 counts as below +0, and a NaN gives way: so the code that ptxas puts around it needs.
    """
    if w.take(74, 2) or not w.predicate_is_true(87):
        raise w.unknown("a choice combined with a predicate")
    first, second = put_predicate(w, 81), put_predicate(w, 84)

    def choice(x: Any, y: Any) -> Any:
        negative = (x >> U64(63) != 0) if operation == "LT" else (y >> U64(63) != 0)
        equal = fp.dcompare(x, y, "EQ") & negative
        return fp.dcompare(x, y, operation) | equal | fp.dcompare(y, y, "NAN")

    chosen = _on_lanes(choice, False)
    both = _on_lanes(lambda x, y: fp.dcompare(x, x, "NAN") & fp.dcompare(y, y, "NAN"), False)

    def run(f: Front, m: Mask) -> None:
        x, y = a(f), b(f)
        if first is not None:
            first(f, chosen(f, x, y), m)
        if second is not None:
            second(f, both(f, x, y), m)

    return run


@maker("DSETP")
def _dsetp(w: Word) -> Run:
    number = w.take(76, 4)
    a, b = (w.float_operand(n, sources=2, wide=True) for n in "ab")
    if number in _DOUBLE_CHOICES:
        return _choosing(w, _DOUBLE_CHOICES[number], a, b)
    operation = FLOAT_COMPARISONS[number]
    return _comparing(w, lambda x, y: fp.dcompare(x, y, operation), a, b)


# ---- conversions

#: What a field of three bits says of a float: its width, and whether it is a bfloat16.
_FLOAT_FORMATS = {1: (16, False), 2: (32, False), 3: (64, False), 4: (16, True)}


def _float_format(w: Word, at: int) -> tuple[int, bool]:
    """A float's width, and whether it is a bfloat16; before sm_90 bit 86 says nothing."""
    number = w.take(at, 3)
    if at == _SOURCE and w.arch.major < 9:
        number &= 3
    if number not in _FLOAT_FORMATS:
        raise w.unknown("no such float")
    return _FLOAT_FORMATS[number]


_TARGET, _SOURCE = 75, 84


def _which_half(w: Word) -> Callable[[Any], Any]:
    """The half of an operand B that a conversion reads: bits 60-61, 1 being .H1."""
    if w.is_immediate("b", sources=2):
        return lambda x: x & _LOW_HALF
    which = w.take(60, 2)
    if which > 1:
        raise w.unknown("no such half")
    return (lambda x: x >> _HALF) if which else (lambda x: x & _LOW_HALF)


def _half_source(w: Word) -> Any:
    """Operand B of 16 bits, with its signs."""
    read, half = w.operand("b", sources=2), _which_half(w)
    signs = w.sign_bits("b", sources=2)
    negate, absolute = (w.flag(at) for at in signs) if signs else (False, False)
    keep, flip = U16(0x7FFF if absolute else 0xFFFF), U16(0x8000 if negate else 0)
    return lambda f: half(read(f)).astype(U16) & keep ^ flip


def _float_source(w: Word) -> tuple[int, Any, bool]:
    """The width of operand B, what reads it, and whether it is a bfloat16: read as a float32."""
    bits, is_bf16 = _float_format(w, _SOURCE)
    if bits != 16:
        return bits, w.float_operand("b", sources=2, wide=bits == 64), False
    half = _half_source(w)
    return (32, lambda f: half(f).astype(U32) << _HALF, True) if is_bf16 else (16, half, False)


@maker("F2I", "UF2I")
def _f2i(w: Word) -> Run:
    signed, target = w.flag(72), 8 << w.take(75, 2)
    rounding, ftz = INTEGER_ROUNDINGS[w.take(78, 2)], w.flag(80)
    w.ignore(77)  # .NTZ: NaN gives zero
    source, b, _ = _float_source(w)
    put = put64(w) if target == 64 else put32(w)
    settings: dict[str, Any] = {
        "source_bits": source, "signed": signed, "target_bits": target,
        "rounding": rounding, "ftz": ftz,
    }  # fmt: skip

    def function(x: Any) -> Any:
        result = fp.f2i(x, **settings)
        return result if target == 64 else _in_register(result, target, signed)

    call = _on_lanes(function, w.uniform)
    return lambda f, m: put(f, call(f, b(f)), m)


def _in_register(result: Any, bits: int, signed: bool) -> Any:
    """An integer as a register holds it: a signed one of fewer bits extended."""
    if signed and bits < 32:
        shift = np.int64(64 - bits)
        result = (result.view(np.int64) << shift >> shift).view(U64)
    return result.astype(U32)


@maker("I2F", "UI2F", "I2FP", "UI2FP")
def _i2f(w: Word) -> Run:
    packed = w.instruction.name.endswith("FP")
    signed, source = w.flag(74), 8 << w.take(84, 2)
    rounding = ROUNDINGS[w.take(78, 2)]
    w.ignore(86)
    target, is_bf16 = _float_format(w, _TARGET)
    if packed and (source, target) != (32, 32):
        raise w.unknown("a packed conversion of other than 32 bits")
    at = _part(w, source)
    b: Any = w.operand64("b", sources=2) if source == 64 else w.operand("b", sources=2)
    put = put64(w) if target == 64 else put32(w)

    def function(x: Any) -> Any:
        result = fp.i2f(
            x.astype(U64) >> at, source_bits=source, signed=signed, target_bits=target,
            bf16=is_bf16, rounding=rounding,
        )  # fmt: skip
        return result if target == 64 else result.astype(U32)

    call = _on_lanes(function, w.uniform)
    return lambda f, m: put(f, call(f, b(f)), m)


def _part(w: Word, bits: int) -> np.uint64:
    """Where an integer begins in its register: bits 60-61 say which byte or half it is."""
    if w.is_immediate("b", sources=2):
        return U64(0)
    number = w.take(60, 2)
    if bits > 16 or (bits == 16 and number < 2):
        return U64(0 if bits > 16 else 16 * number)
    if number:
        raise w.unknown("an integer out of the middle of a register")
    return U64(0)


@maker("F2F", "UF2F")
def _f2f(w: Word) -> Run:
    target, to_bf16 = _float_format(w, _TARGET)
    rounding, ftz = ROUNDINGS[w.take(78, 2)], w.flag(80)
    source, b, _ = _float_source(w)
    put = put64(w) if target == 64 else put32(w)
    settings: dict[str, Any] = {"source_bits": source, "rounding": rounding, "ftz": ftz}

    def function(x: Any) -> Any:
        result = (
            fp.f2f_bf16(x, **settings) if to_bf16 else fp.f2f(x, target_bits=target, **settings)
        )
        return result if target == 64 else result.astype(U32)

    call = _on_lanes(function, w.uniform)
    return lambda f, m: put(f, call(f, b(f)), m)


@maker("FRND", "UFRND")
def _frnd(w: Word) -> Run:
    target, source = _float_format(w, _TARGET), _float_format(w, _SOURCE)
    if target != source:
        raise w.unknown("rounding into another format")
    rounding, ftz = INTEGER_ROUNDINGS[w.take(78, 2)], w.flag(80)
    bits, b, is_bf16 = _float_source(w)
    put = put64(w) if bits == 64 else put32(w)

    def function(x: Any) -> Any:
        result = fp.frnd(x, source_bits=bits, rounding=rounding, ftz=ftz)
        if is_bf16:  # an integral number near a bfloat16 is one
            return result >> _HALF
        return result if bits == 64 else result.astype(U32)

    call = _on_lanes(function, w.uniform)
    return lambda f, m: put(f, call(f, b(f)), m)


@maker("F2FP")
def _f2fp(w: Word) -> Run:
    relu, is_half, merges = w.flag(75), not w.flag(76), w.flag(78)
    rounding = ROUNDINGS[w.take(79, 2)]
    if rounding not in ("RN", "RZ"):
        raise w.unknown("no such rounding of F2FP")
    if w.take(81) or w.take(86, 5) or w.take(72, 3):
        raise w.unknown("a conversion to small floats, or a random rounding")
    if w.flag(77):
        raise w.unknown("F2FP.SATFINITE")
    put = put32(w)
    a, b = w.float_operand("a", sources=3), w.float_operand("b", sources=3)
    if merges and (w.form is not Form.rr or w.take(64, 8) != RZ):
        raise w.unknown("F2FP.MERGE_C into a register")
    w.ignore(64, 8)

    def narrow(x: Any) -> Any:
        if is_half:
            half = fp.f2f(x, source_bits=32, target_bits=16, rounding=rounding, ftz=False)
            return np.where(relu & (half >> U16(15) != 0), U16(0), half)
        return fp.f2f_bf16(x, rounding=rounding, relu=relu)

    def function(x: Any, y: Any) -> Any:
        low = narrow(y).astype(U32)
        return low if merges else narrow(x).astype(U32) << _HALF | low

    call = _on_lanes(function, False)
    return lambda f, m: put(f, call(f, a(f), b(f)), m)


@maker("F2IP")
def _f2ip(w: Word) -> Run:
    """One float as a byte: how A and C are packed above it is not known."""
    if w.take(76, 2) or not w.flag(74) or w.take(75):
        raise w.unknown("F2IP that is no F2IP.U8.NTZ")
    if w.take(24, 8) != RZ or w.form is not Form.rr or w.take(64, 9) != RZ:
        raise w.unknown("F2IP of more than one float")
    rounding = INTEGER_ROUNDINGS[w.take(78, 2)]
    if rounding not in ("RN", "TRUNC"):
        raise w.unknown("no such rounding of F2IP")
    put, b = put32(w), w.float_operand("b", sources=3)

    def function(x: Any) -> Any:
        result = fp.f2i(x, source_bits=32, signed=False, target_bits=8, rounding=rounding)
        return result.astype(U32)

    call = _on_lanes(function, False)
    return lambda f, m: put(f, call(f, b(f)), m)


# ---- packed halves

Halves = Callable[[Front], tuple[Any, Any]]


def _split(value: Any, swizzle: int) -> tuple[Any, Any]:
    """The low and the high half that an operand stands for."""
    low, high = (value & _LOW_HALF).astype(U16), (value >> _HALF).astype(U16)
    if swizzle == 2:
        return low, low
    if swizzle == 3:
        return high, high
    return low, high


def _half_operand(w: Word, slot: str, sources: int, *, swizzled: bool = True) -> Halves:
    """An operand of packed halves: which half goes where, and its signs."""
    signs, swizzle_at = _half_signs(w, slot, sources)
    read = w.a() if slot == "a" else w.operand(slot, sources=sources)
    if slot != "a" and w.is_immediate(slot, sources=sources):
        return lambda f: _split(read(f), 0)
    swizzle = w.take(swizzle_at, 2) if swizzled else 0
    if swizzle == 1:
        raise w.unknown("a float among halves")
    negate, absolute = w.flag(signs[0]), w.flag(signs[1])

    def halves(f: Front) -> tuple[Any, Any]:
        pair = _split(read(f), swizzle)
        if absolute:
            pair = tuple(each & U16(0x7FFF) for each in pair)
        return tuple(each ^ U16(0x8000) for each in pair) if negate else pair

    return halves


def _half_signs(w: Word, slot: str, sources: int) -> tuple[tuple[int, int], int]:
    """Where an operand's signs and its swizzle stand."""
    if slot == "a":
        return (72, 73), 74
    if w.place_of(slot, sources=sources) == 64:
        return (84, 83), 81
    return (63, 62), 60


def _packed(f: Front, low: Any, high: Any) -> Any:
    packed = high.astype(U32) << _HALF | low
    return packed.reshape(f.count, 32) if packed.size > 1 else packed.reshape(1, 1)


def _half_settings(w: Word) -> dict[str, Any]:
    return {"bf16": w.flag(85), "ftz": w.flag(80), "saturate": w.flag(77)}


@maker("HFMA2")
def _hfma2(w: Word) -> Run:
    by_tensor = w.instruction.low & 0x1FF == 0x035
    settings = _half_settings(w)
    if w.take(76) or w.take(78):
        raise w.unknown("HFMA2.FMZ or .F32")
    settings["relu"] = w.flag(79)
    w.ignore(87, 4)
    put = put32(w)
    operands = [_half_operand(w, slot, 3, swizzled=not by_tensor) for slot in "abc"]
    if w.instruction.is_move and w.form is Form.Ri:
        value = w.operand("c", sources=3)
        return lambda f, m: put(f, value(f), m)
    return _half_run(put, operands, lambda x, y, z: fp.hfma(x, y, z, **settings))


def _half_run(put: Any, operands: list[Halves], function: Callable[..., Any]) -> Run:
    def run(f: Front, m: Mask) -> None:
        values = [operand(f) for operand in operands]
        low, high = (function(*(_flat(f, value[side]) for value in values)) for side in range(2))
        put(f, _packed(f, low, high), m)

    return run


@maker("HADD2", "HMUL2")
def _hadd2(w: Word) -> Run:
    is_sum = w.instruction.name == "HADD2"
    to_float = is_sum and w.flag(78)
    settings = _half_settings(w)
    put = put32(w)
    operands = [_half_operand(w, slot, 2) for slot in "ab"]
    if to_float:
        return _half_to_float(put, operands, settings)
    if not is_sum and w.take(76):
        raise w.unknown("HMUL2.FMZ")
    function = fp.hadd if is_sum else fp.hmul
    return _half_run(put, operands, lambda x, y: function(x, y, **settings))


def _half_to_float(put: Any, operands: list[Halves], settings: dict[str, Any]) -> Run:
    """HADD2.F32: the sum of two low halves as a float."""

    def wide(x: Any) -> Any:
        if settings["bf16"]:
            return x.astype(U32) << _HALF
        return fp.f2f(x, source_bits=16, target_bits=32, rounding="RN", ftz=False).astype(U32)

    def run(f: Front, m: Mask) -> None:
        x, y = (wide(_flat(f, operand(f)[0])) for operand in operands)
        total = fp.fadd(x, y, ftz=settings["ftz"], saturate=settings["saturate"], rounding="RN")
        put(f, total.reshape(f.count, 32) if total.size > 1 else total.reshape(1, 1), m)

    return run


@maker("HMNMX2")
def _hmnmx2(w: Word) -> Run:
    bf16, ftz, nan, xorsign = w.flag(85), w.flag(80), w.flag(81), w.flag(82)
    if w.take(65) or w.take(78):
        raise w.unknown("HMNMX2.IS_A")
    w.ignore(66, 6)
    put, minimum = put32(w), w.predicate(87)
    operands = [_half_operand(w, slot, 2) for slot in "ab"]

    def run(f: Front, m: Mask) -> None:
        less = _flat(f, minimum(f))
        values = [operand(f) for operand in operands]
        low, high = (
            fp.hmin_max(
                _flat(f, values[0][side]), _flat(f, values[1][side]), less,
                bf16=bf16, ftz=ftz, propagate_nan=nan, xorsign=xorsign,
            )
            for side in range(2)
        )  # fmt: skip
        put(f, _packed(f, low, high), m)

    return run


def _half_comparison(w: Word) -> Callable[[Front], tuple[Any, Any]]:
    """What a comparison of packed halves says of the low and of the high ones."""
    operation, ftz, bf16 = FLOAT_COMPARISONS[w.take(76, 4)], w.flag(80), w.flag(65)
    operands = [_half_operand(w, slot, 2) for slot in "ab"]

    def compared(f: Front) -> tuple[Any, Any]:
        one, two = (operand(f) for operand in operands)
        low, high = (
            fp.hcompare(_flat(f, one[side]), _flat(f, two[side]), operation, bf16=bf16, ftz=ftz)
            for side in range(2)
        )
        return _shaped(f, low), _shaped(f, high)

    return compared


def _half_combination(w: Word) -> Callable[[Any, Any], Any]:
    kind = w.take(69, 2)
    if kind == 3:
        raise w.unknown("no such way to combine predicates")
    return BOOLEANS[kind]


@maker("HSETP2")
def _hsetp2(w: Word) -> Run:
    compared, combine = _half_comparison(w), _half_combination(w)
    first, second, other = put_predicate(w, 81), put_predicate(w, 84), w.predicate(87)
    combine_both = w.flag(71)  # .H_AND: both halves decide together

    def run(f: Front, m: Mask) -> None:
        low, high = compared(f)
        with_other = other(f)
        if combine_both:
            low, high = low & high, ~(low & high)
        for put, value in ((first, low), (second, high)):
            if put is not None:
                put(f, combine(value, with_other), m)

    return run


@maker("HSET2")
def _hset2(w: Word) -> Run:
    compared, combine, other = _half_comparison(w), _half_combination(w), w.predicate(87)
    one = 0x3F80 if w.flag(65) else 0x3C00
    true = U32(one if w.flag(71) else 0xFFFF)  # .BF: 1.0, else all bits
    put = put32(w)

    def run(f: Front, m: Mask) -> None:
        with_other = other(f)
        low, high = (np.where(combine(each, with_other), true, U32(0)) for each in compared(f))
        put(f, high << _HALF | low, m)

    return run
