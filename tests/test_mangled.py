"""Reading types from mangled names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.binary import (
    ParameterKind,
    base_name,
    demangle,
    display_names,
    function_name,
    parameter_types,
    spellings,
)


def _spellings(name: str) -> list[str]:
    types = parameter_types(name)
    assert types is not None
    return [kind.type_name for kind in types]


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("_Z1kv", []),
        ("_Z1kPKdPfifj", ["double const*", "float*", "int", "float", "unsigned int"]),
        ("_Z1kIfEvPT_S0_", ["float*", "float"]),
        ("_Z2kkIfLi4EEvPKT_PS0_S2_m", ["float const*", "float*", "float const*", "unsigned long"]),
        ("_Z1k6ParamsS_RKS_", ["Params", "Params", "Params const&"]),
        ("_ZN2ns3fooIiEEvPT_y", ["int*", "unsigned long long"]),
        ("_Z1kIJfiEEvDpPT_", ["float*", "int*"]),
        ("_Z1kPFviE", ["void (*)(int)"]),
        ("_Z1kPA4_f", ["float(*)[4]"]),
    ],
)
def test_types_are_spelt_as_in_cpp(name: str, spellings: list[str]) -> None:
    """Substitutions, template parameters and packs are resolved to the types they stand for."""
    assert _spellings(name) == spellings


@pytest.mark.parametrize(
    ("code", "pointee"),
    [
        ("f", "float32"),
        ("d", "float64"),
        ("i", "int32"),
        ("j", "uint32"),
        ("l", "int64"),
        ("m", "uint64"),
        ("x", "int64"),
        ("y", "uint64"),
        ("h", "uint8"),
        ("a", "int8"),
        ("c", "int8"),
        ("s", "int16"),
        ("t", "uint16"),
        ("b", "bool"),
        ("6__half", "float16"),
        ("13__nv_bfloat16", "bfloat16"),
        ("6float4", None),
        ("v", None),
        ("Pf", None),
    ],
)
def test_pointee_is_a_numpy_name(code: str, pointee: str | None) -> None:
    """The element type behind a pointer is told by numpy's name, or not at all."""
    types = parameter_types(f"_Z1kP{code}PK{code}")
    assert types is not None
    assert [t.pointee for t in types] == [pointee, pointee]
    assert [t.pointee_is_const for t in types] == [False, True]
    assert all(t.kind is ParameterKind.POINTER and t.size_bytes == 8 for t in types)


def test_a_class_by_value_has_a_name_and_no_width() -> None:
    """A class or an enumeration by value is named, and its width is left to the cubin."""
    types = parameter_types("_Z1k6Params6__half")
    assert types is not None
    assert (types[0].kind, types[0].size_bytes) == (ParameterKind.UNKNOWN, None)
    assert (types[1].kind, types[1].size_bytes) == (ParameterKind.FLOAT, 2)


def test_unmangled_names_have_no_types() -> None:
    """An ``extern "C"`` kernel gives None, and its name stays as it is."""
    assert parameter_types("main") is None
    assert demangle("main") == base_name("main") == function_name("main") == "main"


def test_names_for_people() -> None:
    """A mangled name is shown as C++, with or without template arguments."""
    assert demangle("_Z3ex8ILb1ELi8ELin3EEvi") == "void ex8<true, 8, -3>(int)"
    assert function_name("_Z3ex8ILb1EEvi") == "ex8<true>"
    assert base_name("_Z3ex8ILb1EEvi") == "ex8"
    assert base_name("_ZN2ns3fooIiEEvPT_") == "ns::foo"
    assert demangle("_Z1kIJfiEEvDpPT_") == "void k<float, int>(float*, int*)"


def test_what_is_not_understood_gives_none() -> None:
    """Damaged, unsupported, deep and exponentially large names give None and no exception."""
    doubling = "_Z1k" + "P1AS_" * 3 + "".join(f"1BIS{i}_S{i}_E" for i in range(30))
    for name in ("_Z", "_Z1k", "_Z1kPDF16_", "_Z1k" + "P" * 5000 + "f", doubling, "_Z99k"):
        assert parameter_types(name) is None or isinstance(parameter_types(name), tuple)
        assert isinstance(demangle(name), str)
        assert isinstance(base_name(name), str)


@given(st.text(alphabet="_ZkPKfdijlmvhSTIELN0123456789JDp", max_size=40))
def test_no_name_raises(tail: str) -> None:
    """Whatever follows ``_Z``, the functions return."""
    name = "_Z1k" + tail
    parameter_types(name)
    assert demangle(name)
    assert base_name(name)
    assert function_name(name)


HIDDEN = "_ZN37_GLOBAL__N__00000000_7_anon_cu__Z1kPf4axpyEPf"


def test_an_anonymous_namespace_is_called_so() -> None:
    """Its number, which changes with the file, is not shown, and its kernels go by their names."""
    assert function_name(HIDDEN) == base_name(HIDDEN) == "(anonymous namespace)::axpy"
    assert demangle(HIDDEN) == "(anonymous namespace)::axpy(float*)"
    assert {"axpy", "axpy(float*)", HIDDEN} < set(spellings(HIDDEN))


def test_overloads_are_shown_with_their_parameters() -> None:
    """Names that are shown together differ; one that needs no parameters has none."""
    assert display_names(["_Z1kPf", "_Z1kPii", "_Z1tILi4EEvPf"], {"_Z1tILi4EEvPf": "t<2+2>"}) == {
        "_Z1kPf": "k(float*)",
        "_Z1kPii": "k(int*, int)",
        "_Z1tILi4EEvPf": "t<2+2>",
    }
