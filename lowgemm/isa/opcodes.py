"""The table of operations: name, pipe, operands, memory.

The low nine bits of an instruction name the operation; bits 9-11 say what operand slots B and C
hold (:class:`~lowgemm.isa.opcode.Form`), and bit 91 that one of them is a uniform register. The
table was made by experiment with nvdisasm 13.5 on sm_75 to sm_121: fields were changed one at a
time, and its text was set beside the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

from lowgemm.isa.opcode import Access, Form, Opcode, Pipe, Space

__all__ = ["known_opcodes", "lookup"]


def _alu(
    pipe: Pipe,
    operands: str,
    pairs: str = "",
    only_if: Mapping[str, tuple[int, ...]] | None = None,
    **codes: int,
) -> dict[int, Opcode]:
    return {
        code: Opcode(name, pipe, operands, pairs, only_if=only_if or {})
        for name, code in codes.items()
    }


def _fixed(pipe: Pipe, operands: str, uniform: str = "=", **codes: int) -> dict[int, Opcode]:
    """Operations whose slots do not move; ``uniform`` are the operands where bit 91 is set."""
    return {code: Opcode(name, pipe, operands, uniform=uniform) for name, code in codes.items()}


def _memory(
    space: Space, access: Access, operands: str, uniform: str, **codes: int
) -> dict[int, Opcode]:
    return {
        code: Opcode(name, Pipe.LSU, operands, "", space, access, uniform)
        for name, code in codes.items()
    }


_WITH_CARRY = {"r": (74,), "s": (74,)}  # .X
_RELU = {"r": (79,)}
_MINIMUM_TELLS = {"u": (65,), "v": (65,)}  # .IS_A: predicates say which source it was
_SPARSE = {"e": (73,)}  # .SP
_HINTED = {"e": (76,)}  # a cache policy, printed as a descriptor

_GENERAL: dict[int, Opcode] = {
    **_alu(Pipe.ALU, "d=b", MOV=0x002),
    **_alu(Pipe.ALU, "d=abz", P2R=0x003),
    **_alu(Pipe.ALU, "z=ab", R2P=0x004),
    **_alu(Pipe.ALU, "d=", CS2R=0x005, LEPC=0x14E),
    **_alu(Pipe.ALU, "dp=r", VOTE=0x006),
    0x007: Opcode("SEL", Pipe.ALU, "d=abr", forms={Form.Rc: "d=abr"}),  # SEL.64 of registers
    **_alu(Pipe.ALU, "d=abr", FSEL=0x008, FSET=0x00A),
    **_alu(Pipe.ALU, "du=abr", "", _MINIMUM_TELLS, FMNMX=0x009),
    **_alu(Pipe.ALU, "pq=abr", FSETP=0x00B),
    **_alu(Pipe.ALU, "pq=abrt", "", {"t": (72,)}, ISETP=0x00C),  # t: ISETP.EX
    **_alu(Pipe.ALU, "dpq=abcrs", "", _WITH_CARRY, IADD3=0x010),
    **_alu(
        Pipe.ALU, "dp=abcr", "", {"c": (80, ~73), "r": (74,)}, LEA=0x011
    ),  # c: LEA.HI, not .SX32
    **_alu(Pipe.ALU, "dp=abcr", LOP3=0x012),
    **_alu(Pipe.ALU, "d=b", IABS=0x013),
    **_alu(Pipe.ALU, "dp=abc", VABSDIFF=0x014, VABSDIFF4=0x015),
    **_alu(Pipe.ALU, "d=abc", PRMT=0x016, SHF=0x019, I2IP=0x039, F2IP=0x043),
    **_alu(Pipe.ALU, "d=ab", SGXT=0x01A, BMSK=0x01B),
    0x01C: Opcode("PLOP3", Pipe.ALU, "pq=rstO", only_if={"t": (~67,), "o": (67,)}),
    0x01D: Opcode("PLOP3", Pipe.ALU, "pq=rbt"),  # the signs of one, two and three registers
    0x01E: Opcode("PLOP3", Pipe.ALU, "pq=rbc"),
    0x01F: Opcode("PLOP3", Pipe.ALU, "pq=abc"),
    **_alu(Pipe.ALU, "d=abc", F2FP=0x03E),
    0x045: Opcode("I2FP", Pipe.ALU, "d=b", forms={Form.Ri: "d=b"}),  # Ri, Ru: I2FP.F16x2
    **_alu(Pipe.ALU, "d=abcr", VIMNMX3=0x00F, VIADDMNMX=0x046, VHMNMX=0x047, FMNMX3=0x076),
    **_alu(Pipe.ALU, "dpq=abr", VIMNMX=0x048),
    **_fixed(Pipe.ALU, "d=a", MOVM=0x03A),
    **_alu(Pipe.FMA, "d=ab", FMUL=0x020, FADD=0x021),
    **_alu(Pipe.FMA, "d=ac", FSWZADD=0x022),
    **_alu(Pipe.FMA, "d=abc", FFMA=0x023, IDP=0x026),
    **_alu(Pipe.FMA, "d=abcr", "", _WITH_CARRY, IMAD=0x024),
    0x025: Opcode("IMAD", Pipe.FMA, "dp=abcr", "dc", only_if=_WITH_CARRY),  # IMAD.WIDE
    0x027: Opcode("IMAD", Pipe.FMA, "dp=abcr", only_if=_WITH_CARRY),  # IMAD.HI
    **_alu(Pipe.FMA, "d=abc", "dabc", CLMAD=0x02C),
    **_alu(Pipe.FMA, "d=ab", "dab", FADD2=0x04B),
    **_alu(Pipe.FP64, "d=ab", "dab", DMUL=0x028),
    **_alu(Pipe.FP64, "d=ac", "dac", DADD=0x029),
    **_alu(Pipe.FP64, "pq=abr", "ab", DSETP=0x02A),
    **_alu(Pipe.FP64, "d=abc", "dabc", DFMA=0x02B),
    **_alu(Pipe.HALF, "d=ab", HADD2=0x030, HMUL2=0x032),
    **_alu(Pipe.HALF, "d=abcr", "", _RELU, HFMA2=0x031),
    **_alu(Pipe.HALF, "d=abr", HSET2=0x033),
    **_alu(Pipe.HALF, "pq=abr", HSETP2=0x034),
    **_alu(Pipe.HALF, "duv=abr", "", _MINIMUM_TELLS, HMNMX2=0x040),
    0x07B: Opcode("QFMA4", Pipe.HALF, "d=abc", forms={Form.Ru: "d=abC"}),
    **_alu(Pipe.HALF, "d=ab", QMUL4=0x07C),
    0x07D: Opcode("QADD4", Pipe.HALF, "d=ac", forms={Form.Ru: "d=aC"}),
    **_alu(Pipe.XU, "dp=b", FLO=0x100),
    **_alu(Pipe.XU, "d=b", BREV=0x101, F2F=0x104, F2I=0x105, I2F=0x106, FRND=0x107, MUFU=0x108),
    **_alu(Pipe.XU, "d=b", POPC=0x109, I2I=0x038),
    0x110: Opcode("F2F", Pipe.XU, "d=b"),  # 64-bit on either side, as the three that follow
    0x111: Opcode("F2I", Pipe.XU, "d=b"),
    0x112: Opcode("I2F", Pipe.XU, "d=b"),
    0x113: Opcode("FRND", Pipe.XU, "d=b"),
    **_alu(Pipe.XU, "p=ab", FCHK=0x102),
}

# The predicate x negates the product; before sm_90 its bits are zero, which means none.
_TENSOR: dict[int, Opcode] = {
    **_alu(Pipe.TENSOR, "d=abceX", "", _SPARSE, HMMA=0x03C),
    **_alu(Pipe.TENSOR, "d=abceX", "", {"e": (72,)}, IMMA=0x037),
    **_alu(Pipe.TENSOR, "d=abcX", BMMA=0x03D),
    **_alu(Pipe.TENSOR, "d=abcX", "dabc", DMMA=0x03F),
    # Form Ri: with scales in m and g, and a uniform register that selects their bytes.
    0x07A: Opcode(
        "QMMA", Pipe.TENSOR, "d=abceX", forms={Form.Ri: "d=abcmgLX"}, only_if={"e": (80,)}
    ),
    0x07F: Opcode("OMMA", Pipe.TENSOR, "d=abcmgLX", forms={Form.Ri: "d=abcmgLX"}),
    # A from shared memory or from registers, B from shared memory, by uniform descriptors.
    **{
        code: Opcode(
            name,
            Pipe.TENSOR,
            forms={Form.ir: "d=AceX", Form.ur: "d=aBceX"},
            only_if=_SPARSE,
        )
        for name, code in {"HGMMA": 0x1F0, "IGMMA": 0x1F1, "QGMMA": 0x1F3}.items()
    },
    0x1F2: Opcode("BGMMA", Pipe.TENSOR, forms={Form.ir: "d=AcX", Form.ur: "d=aBcX"}),
    **_fixed(Pipe.TENSOR, "=", "=", WARPGROUP=0x1C5),
    **_fixed(Pipe.TENSOR, "=", "=B", WARPGROUPSET=0x15E),
    # Tensor memory (sm_100): a and c are addresses in it or descriptors, j is behind e.
    0x1EA: Opcode("UTCHMMA", Pipe.TENSOR, "=", uniform="=ABCEJFR"),
    **_fixed(Pipe.TENSOR, "=", "=AB", UTCCP=0x1E7),
    **_fixed(Pipe.TENSOR, "=", "=A", UTCSHIFT=0x1E6),
    0x1E9: Opcode("UTCBAR", Pipe.TENSOR, "=", uniform="=ABC"),
    0x1E3: Opcode(
        "UTCATOMSWS",
        Pipe.TENSOR,
        forms={Form.rr: "PD=BC", Form.Ri: "PD=B", Form.ir: "D=B"},
    ),
    0x1ED: Opcode("STTM", Pipe.TENSOR, "=", "", Space.TENSOR, Access.STORE, "=bC"),
    0x1EE: Opcode(  # Ri: LDTM.STAT gives a minimum or maximum as well, in a
        "LDTM", Pipe.TENSOR, "=", "", Space.TENSOR, Access.LOAD, "d=B", {Form.Ri: "ad=B"}
    ),
}

_UNIFORM: dict[int, Opcode] = {
    **_alu(Pipe.UNIFORM, "DPQ=ABCRS", "", _WITH_CARRY, UIADD3=0x090),
    0x097: Opcode("UIADD3", Pipe.UNIFORM, "DPQ=ABCRS", "DABC", only_if=_WITH_CARRY),  # UIADD3.64
    **_alu(Pipe.UNIFORM, "DP=ABCR", "", {"c": (80, ~73), "r": (74,)}, ULEA=0x091),
    **_alu(Pipe.UNIFORM, "DP=ABCR", ULOP3=0x092),
    **_alu(Pipe.UNIFORM, "D=ABC", UPRMT=0x096, USHF=0x099, UFFMA=0x055, UI2IP=0x04F, UF2IP=0x059),
    **_alu(Pipe.UNIFORM, "D=ABC", UF2FP=0x0BA),
    **_alu(Pipe.UNIFORM, "D=ABCR", "", _WITH_CARRY, UIMAD=0x0A4),
    0x0A5: Opcode("UIMAD", Pipe.UNIFORM, "DP=ABCR", "DC", only_if=_WITH_CARRY),  # UIMAD.WIDE
    0x0A6: Opcode("UIMAD", Pipe.UNIFORM, "DP=ABCR", only_if=_WITH_CARRY),  # UIMAD.HI
    **_alu(Pipe.UNIFORM, "D=AB", USGXT=0x09A, UBMSK=0x09B, UFMUL=0x056),
    **_alu(Pipe.UNIFORM, "D=AC", UFADD=0x054),
    **_alu(Pipe.UNIFORM, "DP=AB", UCLEA=0x0BC),
    **_alu(Pipe.UNIFORM, "DU=ABR", "", _MINIMUM_TELLS, UFMNMX=0x050),
    **_alu(Pipe.UNIFORM, "DPQ=ABRS", UIMNMX=0x085),
    **_alu(Pipe.UNIFORM, "D=ABR", USEL=0x087, UFSEL=0x051, UFSET=0x052),
    **_alu(Pipe.UNIFORM, "PQ=ABR", UFSETP=0x053),
    **_alu(Pipe.UNIFORM, "PQ=ABRT", "", {"t": (72,)}, UISETP=0x08C),
    **_alu(Pipe.UNIFORM, "D=B", UMOV=0x082, UBREV=0x0BE, UPOPC=0x0BF, UIABS=0x04D, UI2I=0x04E),
    **_alu(Pipe.UNIFORM, "D=B", UI2F=0x05A, UF2F=0x05B, UF2I=0x05C, UFRND=0x05D, UI2FP=0x05E),
    **_alu(Pipe.UNIFORM, "DP=B", UFLO=0x0BD),
    **_alu(Pipe.UNIFORM, "D=ABZ", UP2UR=0x083),
    **_alu(Pipe.UNIFORM, "Z=AB", UR2UP=0x084),
    0x09C: Opcode("UPLOP3", Pipe.UNIFORM, "PQ=RST"),
    0x09D: Opcode("UPLOP3", Pipe.UNIFORM, "PQ=RBT"),
    0x09E: Opcode("UPLOP3", Pipe.UNIFORM, "PQ=RBC"),
    0x09F: Opcode("UPLOP3", Pipe.UNIFORM, "PQ=ABC"),
    **_alu(Pipe.UNIFORM, "D=", S2UR=0x1C3, CS2UR=0x0CB, ULEPC=0x1CE),
    **_alu(Pipe.UNIFORM, "DP=r", VOTEU=0x086),
    **_alu(Pipe.UNIFORM, "D=a", CREDUX=0x0CC, REDUX=0x1C4),
    0x0CA: Opcode("R2UR", Pipe.UNIFORM, "pD=a"),
    0x1C2: Opcode("R2UR", Pipe.UNIFORM, "pD=a"),
    0x02F: Opcode("ELECT", Pipe.UNIFORM, "pD=r", uniform="pD=A"),
    **_fixed(Pipe.UNIFORM, "=", "=A", UVIRTCOUNT=0x04C),
    0x0B8: Opcode("ULDC", Pipe.UNIFORM, "D=AR", "", Space.CONSTANT, Access.LOAD, "D=AR"),
    0x0B9: Opcode("ULDC", Pipe.UNIFORM, "D=", "", Space.CONSTANT, Access.LOAD, "D=A"),
    0x0BB: Opcode("ULDC", Pipe.UNIFORM, "D=", "", Space.CONSTANT, Access.LOAD, "D=A"),
    0x1AC: Opcode(
        "LDCU",
        Pipe.UNIFORM,
        "D=A",
        "",
        Space.CONSTANT,
        Access.LOAD,
        forms={
            Form.rr: "HD=AR",  # 256 bits
            Form.Ri: "HD=AC",
            Form.Rc: "D=A",
            Form.ir: "D=AR",
            Form.cr: "D=AC",
            Form.ur: "HD=A",
        },
    ),
}

_CONTROL: dict[int, Opcode] = {
    **_fixed(Pipe.CONTROL, "=", "=", NOP=0x118, ERRBAR=0x1AB, LDGDEPBAR=0x1AF),
    **_fixed(Pipe.CONTROL, "=r", "=r", BSYNC=0x141, BREAK=0x142, BSSY=0x145, EXIT=0x14D),
    **_fixed(Pipe.CONTROL, "=r", "=r", ENDCOLLECTIVE=0x11B, PMTRIG=0x001, KILL=0x15B, YIELD=0x146),
    **_fixed(Pipe.CONTROL, "=", "=", BPT=0x15C, RTT=0x14F, PREEXIT=0x02D, ACQBULK=0x02E),
    **_fixed(Pipe.CONTROL, "=", "=", FENCE=0x1C6, ACQSHMINIT=0x077),
    **_fixed(Pipe.CONTROL, "=", "=B", DEPBAR=0x11A),
    0x11D: Opcode(
        "BAR",
        Pipe.CONTROL,
        "=br",
        forms={Form.Ri: "=br", Form.ir: "=br", Form.cr: "=r"},
        only_if={"r": (78,)},  # a reduction over the threads that wait
    ),
    0x147: Opcode("BRA", Pipe.CONTROL, "=r", uniform="=Ar", forms={Form.Ri: "=Yr"}),
    0x14A: Opcode("JMP", Pipe.CONTROL, "=r", uniform="=Ar", forms={Form.Ri: "=Yr", Form.Rc: "=Yr"}),
    **_alu(Pipe.CONTROL, "=br", NANOSLEEP=0x15D),
    0x11C: Opcode("B2R", Pipe.CONTROL, "dp=", only_if={"p": (78,)}),
    **_fixed(Pipe.CONTROL, "d=", "d=", S2R=0x119),
    0x149: Opcode("BRX", Pipe.CONTROL, "=ar", "a", uniform="=Ar"),
    0x14C: Opcode("JMX", Pipe.CONTROL, "=ar", "a", uniform="=Ar"),
    0x150: Opcode("RET", Pipe.CONTROL, "=ar", "a", uniform="=Ar"),
    0x158: Opcode("BRXU", Pipe.CONTROL, "=Ar", "A", uniform="=Ar"),
    0x159: Opcode("JMXU", Pipe.CONTROL, "=Ar", "A", uniform="=Ar"),
    0x143: Opcode("CALL", Pipe.CONTROL, "=r", "a", uniform="=Ar", forms={Form.rr: "=ar"}),  # .ABS
    0x144: Opcode("CALL", Pipe.CONTROL, "=r", "a", uniform="=Ar", forms={Form.rr: "=ar"}),  # .REL
    0x155: Opcode("BMOV", Pipe.CONTROL, "d=", uniform="d=", forms={Form.Ru: "="}),
    **_fixed(Pipe.CONTROL, "d=", "d=", GETLMEMBASE=0x1C0),
    **_alu(Pipe.CONTROL, "=b", RPCMOV=0x152),
    0x153: Opcode("RPCMOV", Pipe.CONTROL, "d="),
    0x154: Opcode("RPCMOV", Pipe.CONTROL, "=b", "b"),
    0x156: Opcode("BMOV", Pipe.CONTROL, "=b"),
    0x157: Opcode("BMOV", Pipe.CONTROL, "=b", "b"),
    **_fixed(Pipe.CONTROL, "=a", "=a", SETLMEMBASE=0x1C1, SETCTAID=0x11F),
    **_fixed(Pipe.CONTROL, "=", "=", MEMBAR=0x192),
    **_fixed(Pipe.CONTROL, "=a", "=aB", CCTL=0x18F, CCTLL=0x190),
    **_alu(Pipe.CONTROL, "=b", CCTLT=0x191),
    0x13F: Opcode(  # of the constant cache, as the next
        "CCTL",
        Pipe.CONTROL,
        forms={Form.Ri: "=A", Form.Rc: "=Ac", Form.cr: "=a"},
    ),
    0x140: Opcode("CCTL", Pipe.CONTROL, forms={Form.Ri: "=A", Form.Rc: "=AC", Form.cr: "=A"}),
    0x1C8: Opcode(
        "USETMAXREG", Pipe.CONTROL, uniform="P=", forms={Form.rr: "P=B"}, only_if={"p": (73,)}
    ),
    0x1C9: Opcode("USETSHMSZ", Pipe.CONTROL, uniform="=", forms={Form.rr: "=B"}),
    **_fixed(Pipe.CONTROL, "=", "=AK", UGETNEXTWORKID=0x1CA),
}

# A load's last predicate, w, and the one it gives, p, are printed where they are not PT.
_MEMORY: dict[int, Opcode] = {
    **_memory(Space.GLOBAL, Access.LOAD, "dp=aw", "dp=aBw", LDG=0x181),
    **_memory(Space.GLOBAL, Access.STORE, "=ab", "=abC", STG=0x186),
    0x17E: Opcode(  # 256 bits, sm_100
        "LDG", Pipe.LSU, "dc=ax", "", Space.GLOBAL, Access.LOAD, "cd=aBx"
    ),
    0x17F: Opcode("STG", Pipe.LSU, "=abd", "", Space.GLOBAL, Access.STORE, "=abdC"),
    **_memory(Space.GENERIC, Access.LOAD, "d=aw", "d=aBw", LD=0x180),
    **_memory(Space.GENERIC, Access.STORE, "=ac", "=abC", ST=0x185),
    **_memory(Space.LOCAL, Access.LOAD, "d=a", "d=aB", LDL=0x183),
    **_memory(Space.LOCAL, Access.STORE, "=ab", "=abC", STL=0x187),
    **_memory(Space.SHARED, Access.LOAD, "d=a", "d=aB", LDS=0x184, LDSM=0x03B),
    **_memory(Space.SHARED, Access.STORE, "=ab", "=abC", STS=0x188, STSM=0x044, STAS=0x1BD),
    **_memory(Space.SHARED, Access.REDUCE, "=ab", "=abC", REDAS=0x1BE),  # of another block
    **_memory(Space.CONSTANT, Access.LOAD, "d=a", "d=Ac", LDC=0x182),
    0x1AE: Opcode(
        "LDGSTS",
        Pipe.LSU,
        "=dar",
        "",
        Space.SHARED,
        Access.COPY,
        forms={Form.ur: "=daCIr", Form.Ru: "=daCr"},
        only_if={"i": (76,)},  # a descriptor behind the address in shared memory
    ),
    0x18C: Opcode(  # Ru: ATOMS.POPC.INC
        "ATOMS",
        Pipe.LSU,
        "d=ab",
        "",
        Space.SHARED,
        Access.ATOMIC,
        "d=abC",
        {Form.Ru: "d=aC"},
    ),
    0x18D: Opcode(  # ATOMS.CAS; Ri: ATOMS.CAST.SPIN
        "ATOMS",
        Pipe.LSU,
        "d=abc",
        "",
        Space.SHARED,
        Access.ATOMIC,
        "d=abc",
        {Form.Ri: "p=abc"},
    ),
    **_memory(Space.GLOBAL, Access.ATOMIC, "dp=ab", "dp=abC", ATOMG=0x1A8),
    0x1A3: Opcode(  # floating point
        "ATOMG", Pipe.LSU, "dp=ab", "", Space.GLOBAL, Access.ATOMIC, "dp=abC"
    ),
    0x18A: Opcode(  # Ru: ATOM.ARRIVE
        "ATOM",
        Pipe.LSU,
        "dp=ab",
        "",
        Space.GENERIC,
        Access.ATOMIC,
        "dp=abC",
        {Form.Ru: "dp=aC"},
    ),
    0x1A2: Opcode(  # floating point
        "ATOM", Pipe.LSU, "dp=ab", "", Space.GENERIC, Access.ATOMIC, "dp=abC"
    ),
    0x1A9: Opcode("ATOMG", Pipe.LSU, "dp=abc", "", Space.GLOBAL, Access.ATOMIC, "dp=abc"),  # .CAS
    0x18B: Opcode("ATOM", Pipe.LSU, "dp=abc", "", Space.GENERIC, Access.ATOMIC, "dp=abc"),  # .CAS
    **_memory(Space.GLOBAL, Access.LOAD, "d=a", "d=aC", LDGMC=0x1A4),  # a sum over GPUs
    0x1A5: Opcode(  # floating point
        "LDGMC", Pipe.LSU, "d=a", "", Space.GLOBAL, Access.LOAD, "d=aC"
    ),
    0x189: Opcode(
        "SHFL",
        Pipe.LSU,
        "dp=abc",
        forms={Form.rr: "dp=abc", Form.Ri: "dp=ab", Form.ir: "dp=ac", Form.Ru: "dp=a"},
    ),
    0x1A1: Opcode("MATCH", Pipe.LSU, "dp=a", only_if={"p": (~79,)}),  # p: MATCH.ALL
    **_fixed(Pipe.LSU, "dp=a", "dp=aB", QSPC=0x1AA),
    # mbarriers
    0x1A7: Opcode(
        "SYNCS",
        Pipe.LSU,
        "=",
        "",
        Space.SHARED,
        Access.ATOMIC,
        forms={Form.Ri: "p=abC", Form.ir: "d=abC"},
    ),
    0x1B1: Opcode("SYNCS", Pipe.LSU, "=", uniform="=aC", forms={Form.Ri: "d=aC"}),
    0x1B2: Opcode(
        "SYNCS",
        Pipe.LSU,
        "=",
        "",
        Space.SHARED,
        Access.ATOMIC,
        forms={Form.rr: "D=AB", Form.Ri: "D=AB", Form.ir: "D=A"},
    ),
    **_memory(Space.SHARED, Access.REDUCE, "=a", "=aC", ARRIVES=0x1B0),
}


def _textures(
    name: str, operands: str, *codes: int, access: Access | None = Access.LOAD
) -> dict[int, Opcode]:
    """A texture operation; its numbers differ in where the handle is (e: a uniform register)."""
    record = Opcode(
        name,
        Pipe.TEXTURE,
        operands,
        space=Space.TEXTURE if access else None,
        access=access,
        uniform=operands,
        forms={Form.Ru: operands + "E"},
    )
    return dict.fromkeys(codes, record)


def _surfaces(name: str, access: Access, operands: str, bound: int) -> dict[int, Opcode]:
    """A surface operation: on one by its number or uniform handle, and by a handle in slot c."""
    by_number = Opcode(
        name,
        Pipe.TEXTURE,
        operands,
        space=Space.SURFACE,
        access=access,
        uniform=operands,
        forms={Form.Ru: operands + "E"},
    )
    with_handle = operands + "c"
    by_handle = replace(
        by_number,
        operands=with_handle,
        uniform=with_handle,
        forms={Form.Ru: with_handle + "E"},
    )
    return {bound: by_number, bound + 1: by_handle}


_TEXTURE: dict[int, Opcode] = {
    # d and c are two destinations.
    **_textures("TEX", "dcp=ab", 0x160, 0x161, 0x162),
    **_textures("TLD4", "dcp=ab", 0x163, 0x164, 0x165),
    **_textures("TLD", "dcp=ab", 0x166, 0x167, 0x168),
    **_textures("TXD", "dcp=ab", 0x16C, 0x16D, 0x16E),
    **_surfaces("SUATOM", Access.ATOMIC, "dp=ab", 0x193),
    **_surfaces("SUATOM", Access.ATOMIC, "dp=ab", 0x195),  # SUATOM.CAS
    **_surfaces("SULD", Access.LOAD, "dp=a", 0x197),  # SULD.P
    **_surfaces("SULD", Access.LOAD, "dp=a", 0x199),  # SULD.D
    **_surfaces("SUST", Access.STORE, "=ab", 0x19B),  # SUST.P
    **_surfaces("SUST", Access.STORE, "=ab", 0x19D),  # SUST.D
    **_surfaces("SURED", Access.REDUCE, "=ab", 0x19F),
}
_QUERIES: dict[int, Opcode] = {
    **_textures("TMML", "dc=ab", 0x169, 0x16A, 0x16B, access=None),
    **_textures("TXQ", "dc=a", 0x16F, 0x170, 0x171, access=None),
    **_textures("FOOTPRINT", "dcp=ab", 0x172, 0x173, 0x174, access=None),
    0x1B3: Opcode(
        "SUQUERY",
        Pipe.TEXTURE,
        "dp=a",
        uniform="dp=a",
        forms={Form.ir: "dp=ac", Form.ur: "dp=acE", Form.Ru: "dp=aE"},
    ),
}


def _bulk(
    space: Space | None, access: Access | None, operands: str, **codes: int
) -> dict[int, Opcode]:
    return {
        code: Opcode(
            name,
            Pipe.TMA,
            space=space,
            access=access,
            uniform=operands,
            forms={Form.Ri: operands.replace("C", "")},
            only_if=_HINTED,
        )
        for name, code in codes.items()
    }


# Addresses stand in uniform registers: b is where a copy goes to, c its size or multicast mask.
_BULK: dict[int, Opcode] = {
    **_bulk(Space.SHARED, Access.COPY, "=BACE", UTMALDG=0x1B4, UBLKCP=0x1BA),
    **_bulk(Space.GLOBAL, Access.STORE, "=BAE", UTMASTG=0x1B5),
    **_bulk(Space.GLOBAL, Access.REDUCE, "=BAE", UTMAREDG=0x1B6),
    **_bulk(Space.GLOBAL, Access.REDUCE, "=BACE", UBLKRED=0x1BB),
    **_bulk(Space.SHARED, Access.STORE, "=AC", UMEMSETS=0x1CB),
    **_bulk(None, None, "=BACE", UTMAPF=0x1B8),
    **_bulk(None, None, "=ACE", UBLKPF=0x1BC),
    **_bulk(None, None, "=A", UTMACCTL=0x1B9),
    **_bulk(None, None, "=", UTMACMDFLUSH=0x1B7),
}

_OPCODES = {
    **_GENERAL, **_TENSOR, **_UNIFORM, **_CONTROL, **_MEMORY, **_TEXTURE, **_QUERIES, **_BULK
}  # fmt: skip


def _with_offset(record: Opcode) -> Opcode:
    """A texture operation of sm_120: one uniform register more."""
    return replace(
        record,
        operands=f"{record.operands}F",
        uniform=f"{record.uniform}F",
        forms={form: f"{operands}F" for form, operands in record.forms.items()},
    )


# Numbers whose meaning changed, by the first major version that has the new one.
_SINCE: dict[int, dict[int, Opcode]] = {
    7: {
        0x017: Opcode("IMNMX", Pipe.ALU, "d=abr"),
        0x036: Opcode("HMMA", Pipe.TENSOR, "d=abc"),
        0x148: Opcode("WARPSYNC", Pipe.CONTROL, "=br"),
        0x18E: Opcode("RED", Pipe.LSU, "=ab", "", Space.GLOBAL, Access.REDUCE, "=abC"),
        0x1A6: Opcode("RED", Pipe.LSU, "=ab", "", Space.GLOBAL, Access.REDUCE, "=abC"),
    },
    8: {
        0x035: Opcode("HFMA2", Pipe.HALF, "d=abcr", only_if=_RELU),  # HFMA2.MMA
    },
    9: {
        0x036: Opcode("VIADD", Pipe.ALU, "d=ab"),
        0x148: Opcode("WARPSYNC", Pipe.CONTROL, "=r", forms={Form.rr: "=ar"}),
        0x18E: Opcode("REDG", Pipe.LSU, "=ab", "", Space.GLOBAL, Access.REDUCE, "=abC"),
        0x1A6: Opcode("REDG", Pipe.LSU, "=ab", "", Space.GLOBAL, Access.REDUCE, "=abC"),
    },
    10: {
        0x035: Opcode("IADD", Pipe.ALU, "dp=abr", only_if=_WITH_CARRY),
        0x049: Opcode("FFMA2", Pipe.FMA, "d=abc", "dabc"),
        0x04A: Opcode("FMUL2", Pipe.FMA, "d=ab", "dab"),
        0x03E: Opcode("F2FP", Pipe.ALU, "d=abc", forms={Form.Rc: "d=abc"}),
    },
    12: {
        0x017: Opcode("IMNMX", Pipe.ALU, "dpq=abrs"),
        0x048: Opcode("VIMNMX", Pipe.ALU, "d=abr"),
        0x049: Opcode("UVIADD", Pipe.UNIFORM, "D=AB"),
        0x04A: Opcode("UVIMNMX", Pipe.UNIFORM, "D=ABR"),
        0x1B3: _with_offset(_QUERIES[0x1B3]),
        **{code: _with_offset(record) for code, record in _TEXTURE.items()},
        0x161: _with_offset(replace(_TEXTURE[0x161], forms={Form.rr: "dcp=abE"})),
    },
}


@cache
def _table(major: int) -> Mapping[int, Opcode]:
    table = dict(_OPCODES)
    for first, changed in _SINCE.items():
        if major >= first:
            table |= changed
    return table


# Operations that share a number with another and are told from it by other bits.
_CGAERRBAR = Opcode("CGAERRBAR", Pipe.CONTROL, uniform="=")
_MOV64IUR = Opcode("MOV64IUR", Pipe.ALU, "d=b", "db")
_CLUSTER_ARRIVE = Opcode("UCGABAR_ARV", Pipe.CONTROL, uniform="=")
_CLUSTER_WAIT = Opcode("UCGABAR_WAIT", Pipe.CONTROL, uniform="=")
_HALF_SOURCES = {
    record.name: replace(record, name=record.name.replace("F", "FH", 1))
    for record in (_GENERAL[0x021], _GENERAL[0x023])
} | {
    record.name: replace(record, name=record.name.replace("UF", "UFH", 1))
    for record in (_UNIFORM[0x054], _UNIFORM[0x055])
}
_TENSOR_KINDS = {
    name: replace(_TENSOR[0x1EA], name=name) for name in ("UTCIMMA", "UTCQMMA", "UTCOMMA")
}


def lookup(low: int, high: int, major: int) -> Opcode | None:
    """The operation of an instruction.

    Parameters
    ----------
    low, high
        The lower and the upper 64 bits of the instruction.
    major
        The architecture's major version: some numbers changed their meaning over time.

    Returns
    -------
    Opcode or None
        None for an operation that the table does not have.
    """
    found = _table(major).get(low & 0x1FF)
    form = low >> 9 & 7
    match low & 0x1FF:
        case 0x021 | 0x023 | 0x054 | 0x055 if major >= 10 and high >> 17 & 1:
            # FHADD and the like add a float to a half: register B is one.
            b_is_register = form in (Form.rr.value, Form.ur.value, Form.Ru.value)
            return _HALF_SOURCES[found.name] if found and b_is_register else found
        case 0x154 if major >= 12 and form in (Form.Ri.value, Form.Ru.value):
            return _MOV64IUR
        case 0x1AB if form == Form.Ri.value:
            return _CGAERRBAR
        case 0x1C7:
            return _CLUSTER_WAIT if form == Form.ur.value else _CLUSTER_ARRIVE
        case 0x1EA if high >> 9 & 1 or form not in (Form.Ri.value, Form.ir.value):
            return _TENSOR_KINDS["UTCQMMA"]
        case 0x1EA if high >> 8 & 1:
            return _TENSOR_KINDS["UTCIMMA"]
        case 0x1EA if low >> 63:
            return _TENSOR_KINDS["UTCOMMA"]
        case _:
            return found


def known_opcodes() -> Iterator[Opcode]:
    """Every record of the table, on any architecture; a name may come more than once."""
    for major in (7, *_SINCE):
        yield from _table(major).values()
    yield from (_MOV64IUR, _CGAERRBAR, _CLUSTER_ARRIVE, _CLUSTER_WAIT)
    yield from _HALF_SOURCES.values()
    yield from _TENSOR_KINDS.values()
