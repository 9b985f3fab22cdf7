"""Reading parameters from PTX, and joining them with cubin and mangled name."""

from __future__ import annotations

from lowgemm.binary import (
    KernelSignature,
    Parameter,
    ParameterKind,
    PtxParameter,
    entry_parameters,
    refine_signature,
)

PTX = """
.version 9.5
.target sm_120
// .entry commented(.param .u32 x)
/* .entry also_commented(.param .u32 x) */
.global .align 1 .b8 text[30] = {1};
.file 1 "/tmp/.entry quoted(.param .u32 x) // no comment"
.visible .entry declared(.param .u64 p);
.visible .entry declared(
    .param .u64 .ptr .global .align 16 declared_param_0, // a comment, with a comma
    .param .align 4 .b8 declared_param_1[16],
    .param .f32 declared_param_2,
    .param .u8 declared_param_3
)
.maxntid 256, 1, 1
.minnctapersm 2
{ ret; }
.entry $odd$name (.param .u64 .ptr .align 1 a, .param .align 64 .b8 tensor_map[128])
{ ret; }
.entry none
{ ret; }
.entry empty()
{ ret; }
.func (.param .b32 r) helper(.param .b32 x) { ret; }
.entry unknown_form(.param .what x) { ret; }
"""


def test_entries_and_their_parameters() -> None:
    """Each entry's parameters come with type, width and whether they are marked as pointers."""
    entries = entry_parameters(PTX)
    assert set(entries) == {"declared", "$odd$name", "none", "empty"}
    assert entries["declared"] == (
        PtxParameter("declared_param_0", "u64", 8, is_pointer=True),
        PtxParameter("declared_param_1", "b8", 16, is_array=True),
        PtxParameter("declared_param_2", "f32", 4),
        PtxParameter("declared_param_3", "u8", 1),
    )
    assert entries["$odd$name"][1].size_bytes == 128
    assert entries["none"] == entries["empty"] == ()


def test_kinds_follow_from_the_ptx_type() -> None:
    """PTX tells floats, small integers, structs and marked pointers; not what a plain u64 is."""
    kinds = [p.kind for p in entry_parameters(PTX)["declared"]]
    assert kinds == [
        ParameterKind.POINTER,
        ParameterKind.STRUCT,
        ParameterKind.FLOAT,
        ParameterKind.INTEGER,
    ]
    assert PtxParameter("x", "u64", 8).kind is ParameterKind.UNKNOWN


def test_any_text_is_read() -> None:
    """Text that is no PTX has no entries and raises nothing."""
    assert entry_parameters("") == {}
    assert entry_parameters(".entry") == {}
    assert entry_parameters('.entry a(.param .u32 b /* "') == {"a": ()}


def _signature(name: str, *sizes: int) -> KernelSignature:
    parameters = tuple(Parameter(i, 8 * i, size) for i, size in enumerate(sizes))
    return KernelSignature(name, parameters, 32, 0, 0)


def test_the_mangled_name_gives_types() -> None:
    """Types and element types come from the mangled name; offsets and sizes stay the cubin's."""
    refined = refine_signature(_signature("_Z1kPKfPfi", 8, 8, 4))
    assert [p.pointee for p in refined.parameters] == ["float32", "float32", None]
    assert [p.pointee_is_const for p in refined.parameters] == [True, False, False]
    assert refined.parameters[2].kind is ParameterKind.SIGNED
    assert [p.size_bytes for p in refined.parameters] == [8, 8, 4]


def test_a_source_that_disagrees_is_ignored() -> None:
    """A name or PTX that contradicts the cubin's count or widths tells nothing."""
    for name, sizes in (("_Z1kPf", (8, 4)), ("_Z1kPfi", (8, 8)), ("_Z1kv", (8,))):
        refined = refine_signature(_signature(name, *sizes), [PtxParameter("x", "f32", 4)])
        assert all(p.kind is ParameterKind.UNKNOWN for p in refined.parameters)
        assert all(p.type_name is None for p in refined.parameters)


def test_ptx_tells_a_struct_from_an_enumeration() -> None:
    """A class by value is a struct and an enumeration an integer, by PTX's word."""
    ptx = [PtxParameter("a", "b8", 4, is_array=True), PtxParameter("b", "u32", 4)]
    refined = refine_signature(_signature("_Z1k6Struct4Enum", 4, 4), ptx)
    assert [p.kind for p in refined.parameters] == [ParameterKind.STRUCT, ParameterKind.INTEGER]
    assert [p.type_name for p in refined.parameters] == ["Struct", "Enum"]


def test_extern_c_kernels_have_kinds_from_ptx_alone() -> None:
    """Without a mangled name the kinds are those that PTX tells."""
    ptx = [PtxParameter("a", "u64", 8, is_pointer=True), PtxParameter("b", "f32", 4)]
    refined = refine_signature(_signature("k", 8, 4), ptx)
    assert [p.kind for p in refined.parameters] == [ParameterKind.POINTER, ParameterKind.FLOAT]
