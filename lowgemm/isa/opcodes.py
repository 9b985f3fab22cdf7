"""What an opcode is: its name, its pipe, the memory it accesses, where its registers stand.

The low nine bits of an instruction name the operation; bits 9-11 say what operand slots B and C
hold (:class:`Form`). The table was read off cubins of NVRTC 13.5 for sm_80 to sm_120, opcode by
opcode, by setting nvdisasm's text beside the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

__all__ = ["Access", "Form", "Opcode", "Pipe", "Space", "lookup"]


class Pipe(StrEnum):
    """The unit that executes an instruction."""

    FMA = "FMA"
    ALU = "ALU"
    FP64 = "FP64"
    HALF = "FMA, packed halves"
    XU = "XU"  # transcendental functions and conversions
    TENSOR = "tensor"
    LSU = "LSU"  # loads, stores, atomics, shuffles, constants by address
    UNIFORM = "uniform"
    CONTROL = "control"  # branches, barriers, synchronisation


class Space(StrEnum):
    """The memory that an instruction accesses."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    CONSTANT = "constant"
    GENERIC = "generic"


class Access(StrEnum):
    """What an instruction does there."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"  # gives the old value back
    REDUCE = "reduce"  # does not
    COPY = "copy"  # from global to shared memory


class Form(Enum):
    """Bits 9-11: what operand slots B and C hold. Slot A is always a register (bits 24-31).

    The first letter is B's, the second C's. ``r``: a register in the slot's own bits (B 32-39, C
    64-71); ``R``: register B in C's bits; ``i`` an immediate, ``c`` a constant-bank address, ``u``
    a uniform register: each in bits 32-63.
    """

    rr = 1
    Ri = 2
    Rc = 3
    ir = 4
    cr = 5
    ur = 6
    Ru = 7


@dataclass(frozen=True, slots=True)
class Opcode:
    """One operation.

    ``name`` is the mnemonic without modifiers. ``operands`` names the slots that hold registers:
    ``d`` the destination, ``a``, ``b``, ``c`` the sources; capitals stand for uniform registers.
    ``pairs`` names those that are 64-bit whatever the modifiers say. ``space`` and ``access`` are
    None where no memory is accessed.
    """

    name: str
    pipe: Pipe
    operands: str = ""
    pairs: str = ""
    space: Space | None = None
    access: Access | None = None


def _alu(pipe: Pipe, operands: str, pairs: str = "", **codes: int) -> dict[int, Opcode]:
    return {code: Opcode(name, pipe, operands, pairs) for name, code in codes.items()}


def _memory(space: Space, access: Access, operands: str, **codes: int) -> dict[int, Opcode]:
    return {
        code: Opcode(name, Pipe.LSU, operands, "", space, access) for name, code in codes.items()
    }


_GENERAL: dict[int, Opcode] = {
    **_alu(Pipe.ALU, "db", MOV=0x002),
    **_alu(Pipe.ALU, "da", P2R=0x003),
    **_alu(Pipe.ALU, "a", R2P=0x004),
    **_alu(Pipe.ALU, "d", CS2R=0x005, VOTE=0x006, LEPC=0x14E),
    **_alu(Pipe.ALU, "dab", SEL=0x007, FSEL=0x008, FMNMX=0x009, IMNMX=0x017, VIADD=0x036),
    **_alu(Pipe.ALU, "dab", FSET=0x00A, ISET=0x00D, BMSK=0x01B, SGXT=0x01A, VIMNMX=0x048),
    **_alu(Pipe.ALU, "db", IABS=0x013, I2FP=0x045),
    **_alu(Pipe.ALU, "ab", FSETP=0x00B, ISETP=0x00C),
    **_alu(Pipe.ALU, "dabc", IADD3=0x010, LEA=0x011, LOP3=0x012, PRMT=0x016, SHF=0x019),
    **_alu(Pipe.ALU, "dabc", VABSDIFF=0x014, VABSDIFF4=0x015, VIMNMX3=0x00F, FMNMX3=0x076),
    **_alu(Pipe.ALU, "dabc", VIADDMNMX=0x046),
    **_alu(Pipe.ALU, "dab", F2FP=0x03E),
    **_alu(Pipe.ALU, "", PLOP3=0x01C),
    **_alu(Pipe.FMA, "dab", FMUL=0x020, FADD=0x021),
    **_alu(Pipe.FMA, "dabc", FFMA=0x023, IMAD=0x024, IDP=0x026),
    0x025: Opcode("IMAD", Pipe.FMA, "dabc", "dc"),  # IMAD.WIDE
    0x027: Opcode("IMAD", Pipe.FMA, "dabc"),  # IMAD.HI
    **_alu(Pipe.FMA, "dabc", "dabc", FFMA2=0x049),
    **_alu(Pipe.FMA, "dab", "dab", FADD2=0x04B),
    **_alu(Pipe.FP64, "dab", "dab", DMUL=0x028),
    **_alu(Pipe.FP64, "dac", "dac", DADD=0x029),
    **_alu(Pipe.FP64, "ab", "ab", DSETP=0x02A),
    **_alu(Pipe.FP64, "dabc", "dabc", DFMA=0x02B),
    **_alu(Pipe.HALF, "dab", HADD2=0x030, HMUL2=0x032, HMNMX2=0x040, HSET2=0x033),
    **_alu(Pipe.HALF, "dabc", HFMA2=0x031),
    **_alu(Pipe.HALF, "ab", HSETP2=0x034),
    **_alu(Pipe.TENSOR, "dabc", HMMA=0x03C, IMMA=0x037, BMMA=0x03D),
    **_alu(Pipe.TENSOR, "dabc", "dabc", DMMA=0x03F),
    **_alu(Pipe.XU, "db", FLO=0x100, BREV=0x101, F2I=0x105, I2F=0x106, FRND=0x107, MUFU=0x108),
    **_alu(Pipe.XU, "db", POPC=0x109, F2F=0x110),
    0x111: Opcode("F2I", Pipe.XU, "db"),  # 64-bit on either side
    0x112: Opcode("I2F", Pipe.XU, "db"),
    0x113: Opcode("FRND", Pipe.XU, "db"),
    **_alu(Pipe.XU, "ab", FCHK=0x102),
}

_UNIFORM: dict[int, Opcode] = {
    **_alu(Pipe.UNIFORM, "DABC", UFFMA=0x055, UIADD3=0x090, ULEA=0x091, ULOP3=0x092, USHF=0x099),
    **_alu(Pipe.UNIFORM, "DABC", UIMAD=0x0A4, UPRMT=0x096),
    0x0A5: Opcode("UIMAD", Pipe.UNIFORM, "DABC", "DC"),  # UIMAD.WIDE
    0x0A6: Opcode("UIMAD", Pipe.UNIFORM, "DABC"),  # UIMAD.HI
    0x097: Opcode("UIADD3", Pipe.UNIFORM, "DABC", "DABC"),  # UIADD3.64
    **_alu(Pipe.UNIFORM, "DAB", UFSEL=0x051, UFADD=0x054, UFMUL=0x056, USEL=0x087),
    **_alu(Pipe.UNIFORM, "AB", UFSETP=0x053, UISETP=0x08C),
    **_alu(Pipe.UNIFORM, "DB", UI2F=0x05A, UF2I=0x05C, UMOV=0x082, UFLO=0x0BD, UPOPC=0x0BF),
    **_alu(Pipe.UNIFORM, "DA", UP2UR=0x083),
    **_alu(Pipe.UNIFORM, "D", VOTEU=0x086, S2UR=0x1C3),
    **_alu(Pipe.UNIFORM, "Da", CREDUX=0x0CC),
    **_alu(Pipe.UNIFORM, "Da", REDUX=0x1C4),
    0x0CA: Opcode("R2UR", Pipe.UNIFORM, "Da"),
    0x1C2: Opcode("R2UR", Pipe.UNIFORM, "Da"),
    **_alu(Pipe.UNIFORM, "", UPLOP3=0x09C),
}

_CONTROL: dict[int, Opcode] = {
    **_alu(Pipe.CONTROL, "", NOP=0x118, DEPBAR=0x11A, BAR=0x11D, BSYNC=0x141, BREAK=0x142),
    **_alu(Pipe.CONTROL, "", BSSY=0x145, YIELD=0x146, EXIT=0x14D, ENDCOLLECTIVE=0x11B),
    **_alu(Pipe.CONTROL, "A", BRA=0x147),  # BRA.DIV takes a uniform register
    **_alu(Pipe.CONTROL, "ab", WARPSYNC=0x148),  # a: WARPSYNC.COLLECTIVE
    **_alu(Pipe.CONTROL, "d", B2R=0x11C),
    **_alu(Pipe.CONTROL, "", BPT=0x15C, KILL=0x15B, NANOSLEEP=0x15D),
    **_alu(Pipe.CONTROL, "a", "a", BRX=0x149, RET=0x150, JMX=0x14C),
    0x143: Opcode("CALL", Pipe.CONTROL, "a", "a"),  # CALL.ABS
    0x144: Opcode("CALL", Pipe.CONTROL, "a", "a"),  # CALL.REL
    **_alu(Pipe.CONTROL, "A", "A", BRXU=0x158),
    0x155: Opcode("BMOV", Pipe.CONTROL, "d"),
    0x156: Opcode("BMOV", Pipe.CONTROL, "b"),
    **_alu(Pipe.CONTROL, "d", S2R=0x119),
    **_alu(Pipe.CONTROL, "", MEMBAR=0x192, CCTL=0x18F, LDGDEPBAR=0x1AF),
}

_MEMORY: dict[int, Opcode] = {
    **_memory(Space.GLOBAL, Access.LOAD, "da", LDG=0x181),
    **_memory(Space.GLOBAL, Access.STORE, "ab", STG=0x186),
    0x17E: Opcode("LDG", Pipe.LSU, "dca", "", Space.GLOBAL, Access.LOAD),  # 256 bits, sm_100
    0x17F: Opcode("STG", Pipe.LSU, "abd", "", Space.GLOBAL, Access.STORE),  # 256 bits, sm_100
    **_memory(Space.GENERIC, Access.LOAD, "da", LD=0x180),
    **_memory(Space.GENERIC, Access.STORE, "ab", ST=0x185),
    **_memory(Space.LOCAL, Access.LOAD, "da", LDL=0x183),
    **_memory(Space.LOCAL, Access.STORE, "ab", STL=0x187),
    **_memory(Space.SHARED, Access.LOAD, "da", LDS=0x184, LDSM=0x03B),
    **_memory(Space.SHARED, Access.STORE, "ab", STS=0x188),
    **_memory(Space.CONSTANT, Access.LOAD, "da", LDC=0x182),
    **_memory(Space.SHARED, Access.COPY, "da", LDGSTS=0x1AE),
    **_memory(Space.SHARED, Access.ATOMIC, "dab", ATOMS=0x18C),
    0x18D: Opcode("ATOMS", Pipe.LSU, "dabc", "", Space.SHARED, Access.ATOMIC),  # ATOMS.CAS
    0x1A8: Opcode("ATOMG", Pipe.LSU, "dab", "", Space.GLOBAL, Access.ATOMIC),
    0x1A3: Opcode("ATOMG", Pipe.LSU, "dab", "", Space.GLOBAL, Access.ATOMIC),  # floating point
    0x1A9: Opcode("ATOMG", Pipe.LSU, "dabc", "", Space.GLOBAL, Access.ATOMIC),  # ATOMG.CAS
    0x18A: Opcode("ATOM", Pipe.LSU, "dab", "", Space.GENERIC, Access.ATOMIC),
    0x18B: Opcode("ATOM", Pipe.LSU, "dabc", "", Space.GENERIC, Access.ATOMIC),  # ATOM.CAS
    0x1A6: Opcode("REDG", Pipe.LSU, "ab", "", Space.GLOBAL, Access.REDUCE),  # floating point
    **_alu(Pipe.LSU, "dabc", SHFL=0x189),
    **_alu(Pipe.LSU, "da", MATCH=0x1A1),
    0x0B9: Opcode("ULDC", Pipe.UNIFORM, "D", "", Space.CONSTANT, Access.LOAD),
    0x1AC: Opcode("LDCU", Pipe.UNIFORM, "DA", "", Space.CONSTANT, Access.LOAD),
}

_OPCODES = {**_GENERAL, **_UNIFORM, **_CONTROL, **_MEMORY}

# Numbers whose meaning depends on the architecture or on the form.
_IADD = Opcode("IADD", Pipe.ALU, "dab")
_UVIMNMX = Opcode("UVIMNMX", Pipe.UNIFORM, "DAB")
_FMUL2 = Opcode("FMUL2", Pipe.FMA, "dab", "dab")
_HFMA2_MMA = Opcode("HFMA2", Pipe.HALF, "dabc")  # HFMA2.MMA: on the FMA pipe's other half
_RED = Opcode("RED", Pipe.LSU, "ab", "", Space.GLOBAL, Access.REDUCE)
_REDG = Opcode("REDG", Pipe.LSU, "ab", "", Space.GLOBAL, Access.REDUCE)
_ERRBAR = Opcode("ERRBAR", Pipe.CONTROL)
_CGAERRBAR = Opcode("CGAERRBAR", Pipe.CONTROL)


def lookup(low: int, major: int) -> Opcode | None:
    """The operation of an instruction.

    Parameters
    ----------
    low
        The lower 64 bits of the instruction.
    major
        The architecture's major version: two numbers changed their meaning over time.

    Returns
    -------
    Opcode or None
        None for an operation that the table does not have.
    """
    operation = low & 0x1FF
    match operation:
        case 0x035:
            # HFMA2.MMA up to sm_90; the number came free and is IADD from sm_100 on.
            return _IADD if major >= 10 else _HFMA2_MMA
        case 0x04A:
            return _FMUL2 if low >> 9 & 7 == Form.rr.value else _UVIMNMX
        case 0x18E:
            return _REDG if major >= 9 else _RED
        case 0x1AB:
            return _CGAERRBAR if low >> 9 & 7 == Form.Ri.value else _ERRBAR
        case _:
            return _OPCODES.get(operation)
