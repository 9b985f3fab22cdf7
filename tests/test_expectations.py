"""Expectations: what can be written, what it means, and that nonsense is refused in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.analysis import LoopReport, SassReport
from lowgemm.analysis.expectations import (
    KERNEL_FIGURES,
    LOOP_FIGURES,
    Expectation,
    allows_unknown,
    figure,
    instances,
    judge,
    parse_expectation,
    parse_expectations,
    read_expectations,
    select,
)
from lowgemm.errors import ExpectationError, LowgemmError, SourceNotFoundError


def loop(index: int, mix: dict[str, int], depth: int = 1) -> LoopReport:
    """A loop of a made-up kernel."""
    total = sum(mix.values())
    return LoopReport(
        index=index,
        start=0x100 * index,
        end=0x100 * index + 16 * total,
        depth=depth,
        parent=None,
        blocks=1,
        instructions=total,
        mix=mix,
        ffma_share=mix.get("FFMA", 0) / total,
        moves=1,
        conflict_cycles=7,
        registers_live=40,
    )


def report(arch: str = "sm_90", kernel: str = "k<4>", spills: int | None = 0) -> SassReport:
    """A made-up kernel: a copying loop and a hot one."""
    return SassReport(
        kernel=kernel,
        arch=arch,
        registers=64,
        shared_bytes=1024,
        stack_bytes=0,
        spill_store_bytes=spills,
        spill_load_bytes=spills,
        instructions=60,
        mix={"FFMA": 32, "LDS.128": 4, "LDS.32": 2, "LDG.128": 1, "STG.32": 4},
        ffma_share=0.5,
        moves=3,
        registers_live=50,
        code_bytes=1600,
        loops=(loop(0, {"LDG.128": 1, "STS.128": 1}), loop(1, {"FFMA": 30, "LDS.128": 4})),
        hot_loop=1,
        irreducible=False,
        unknown_opcodes={"0x1ff": 2},
    )


def bare() -> SassReport:
    """A kernel without loops, from a cubin without a log."""
    return SassReport(
        kernel="bare", arch="sm_80", registers=8, shared_bytes=0, stack_bytes=0,
        spill_store_bytes=None, spill_load_bytes=None, instructions=2, mix={"EXIT": 1, "MOV": 1},
        ffma_share=0.0, moves=1, registers_live=None, code_bytes=32, loops=(), hot_loop=None,
        irreducible=False, unknown_opcodes={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("registers", 64),
        ("spill_store_bytes", 0),
        ("ffma_share", 0.5),
        ("loops", 2),
        ("unknown_opcodes", 2),
        ("mix.LDG.128", 1),
        ("mix.LDG.32", 0),
        ("mix.LDS", 6),
        ("LDS.32", 2),
        ("mix.STL", 0),
        ("hot_loop.FFMA", 30),
        ("hot_loop.LDS.128", 4),
        ("hot_loop.mix.LDS.128", 4),
        ("hot_loop.instructions", 34),
        ("loops[0].STS.128", 1),
        ("loops[1].conflict_cycles", 7),
        ("hot_loop.depth", 1),
    ],
)
def test_a_path_names_a_number(path: str, value: float) -> None:
    """Figures of the kernel and of loops, instructions of a width or of all; absent ones are 0."""
    assert figure(report(), path) == value


def test_every_listed_figure_exists() -> None:
    """What an error lists as a figure can be asked for."""
    for name in KERNEL_FIGURES:
        figure(report(), name)
    for name in LOOP_FIGURES:
        figure(report(), f"hot_loop.{name}")


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("registers == 64", True),
        ("registers != 64", False),
        ("registers<=64", True),
        ("registers < 64", False),
        ("registers >= 65", False),
        ("ffma_share > 0.49", True),
        ("hot_loop.ffma_share >= 9e-1", False),
        ("  mix.LDG.128 >= 1  ", True),
    ],
)
def test_comparisons_mean_what_they_say(text: str, passed: bool) -> None:
    """Six comparisons, integers and decimals, with or without spaces."""
    verdict = judge(parse_expectation(text), report())
    assert verdict.passed is passed
    assert verdict.reason == "" if passed else verdict.expectation.path in verdict.reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("registers", "is no expectation"),
        ("registers = 3", "is no expectation"),
        ("registers <= many", "is no number"),
        ("registers <= 1e999", "is no number"),
        ("registers <= nan", "is no number"),
        ("regs <= 3", "registers"),
        ("hot_loop.registers <= 3", "conflict_cycles"),
        ("hot_loop.LSD.128 == 4", "LDS"),
        ("hot_loop.LDS.96 == 4", "8, 16, 32, 64, 128"),
        ("hot_loop.FFMA.32 == 4", "write FFMA alone"),
        ("loops[x].FFMA == 4", "is no path"),
        ("hot_loop.LDG.E.128 == 4", "is no path"),
        ("[sm_90 registers <= 3", "is no expectation"),
        ("[compute_90] registers <= 3", "compute_90"),
        ("__import__('os').system('x') == 0", "is no path"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_there_is(text: str, said: str) -> None:
    """A misspelt figure or instruction is an error at once, not a count of zero."""
    with pytest.raises(ExpectationError) as caught:
        parse_expectation(text)
    assert said in str(caught.value)


def test_a_loop_that_is_gone_fails_and_says_what_loops_there_are() -> None:
    """The compiler may remove a loop: that is a failed expectation, no mistake in the file."""
    verdict = judge(parse_expectation("loops[5].FFMA == 1"), report())
    assert not verdict.passed
    assert verdict.actual is None
    assert "loops[0], loops[1]" in verdict.reason
    assert "no loop" in judge(parse_expectation("hot_loop.FFMA == 1"), bare()).reason


def test_an_unknown_figure_does_not_pass() -> None:
    """Spills of a bare cubin are not known, and not known is not zero."""
    verdict = judge(parse_expectation("spill_store_bytes == 0"), bare())
    assert not verdict.passed
    assert "not known" in verdict.reason


def test_variants_replace_what_is_said_in_general() -> None:
    """A line for an architecture stands in for the general one of the same path, only there."""
    lines = [parse_expectation(t) for t in ("registers <= 60", "[sm_90, sm_100] registers <= 70")]
    assert [str(e) for e in select(lines, report("sm_90"))] == ["[sm_90, sm_100] registers <= 70"]
    assert [str(e) for e in select(lines, report("sm_90a"))] == ["[sm_90, sm_100] registers <= 70"]
    assert [str(e) for e in select(lines, report("sm_80"))] == ["registers <= 60"]


@pytest.mark.parametrize(
    ("general", "special", "replaced"),
    [
        ("registers <= 60", "registers < 70", True),
        ("registers <= 60", "registers >= 1", False),
        ("registers >= 60", "registers > 1", True),
        ("registers <= 60", "registers == 64", False),
        ("registers == 60", "registers == 64", True),
        ("registers != 60", "registers == 64", False),
        ("registers != 60", "registers != 61", True),
        ("mix.LDG == 77", "LDG == 9", True),
        ("hot_loop.LDS.128 == 4", "hot_loop.mix.LDS.128 == 9", True),
        ("LDG == 77", "LDG.128 == 9", False),
        ("RED == 77", "mix.REDG == 9", True),
    ],
)
def test_a_variant_replaces_only_its_own_bound(general: str, special: str, replaced: bool) -> None:
    """A variant stands in for the same path, however written, in the same direction."""
    lines = [parse_expectation(general), parse_expectation(f"[sm_90] {special}")]
    assert len(select(lines, report("sm_90"))) == (1 if replaced else 2)
    spaced = [
        parse_expectation(f"k<4>: {general}"), parse_expectation(f"k< 4 >: [sm_90] {special}")
    ]  # fmt: skip
    assert len(select(spaced, report("sm_90"))) == (1 if replaced else 2)


def test_a_file_does_not_replace_what_its_caller_expects() -> None:
    """A variant in a file leaves a bound standing that comes from elsewhere."""
    caller = parse_expectation("registers <= 60")
    lines = parse_expectations("// expect: registers <= 61; [sm_90] registers <= 70")
    assert select([*lines, caller], report("sm_90")) == (lines[1], caller)


@pytest.mark.parametrize(
    "text",
    [
        "// Expect: registers <= 1", "// EXPECT: registers <= 1", "/// expect: registers <= 1",
        "//! expect: registers <= 1", "//expect:registers<=1", "/* expect: registers <= 1 */",
        "/*\n * expect: registers <= 1\n */", "code(); // expect: registers <= 1",
        "code(); /* expect: registers <= 1; */ more();",
        'f("//", \'"\', 1\'000); // expect: registers <= 1',
        "// note\r\n// expect: registers <= 1\r\n", "// a note // expect: registers <= 1",
        "// expect: registers <= 1  // why; because",
    ],
)  # fmt: skip
def test_an_expectation_may_stand_in_any_comment(text: str) -> None:
    """Any kind of comment, behind code as well, in any case of letters."""
    assert [str(found) for found in parse_expectations(text)] == ["registers <= 1"]


@pytest.mark.parametrize(
    "text",
    [
        "// expects: registers <= 1", "// Expected: registers <= 1",
        "// expectation: registers <= 1", "// expectations k<4>: registers <= 1",
        "// expects registers <= 1", "// expect registers<1", "// expect registers = 1",
        "// expect: registers ≤ 1", "// note: expect: registers <= 1", "// expect:",
        "/* expect: */", "code(); // expects: [sm_90] registers <= 1",
        "// expect: FFMA == 16 // unrolled; registers <= 1",
        "// expect: FFMA == 16 // registers <= 1", "// expect: FFMA == 16;\n//   registers <= 1",
        "// exepct: registers <= 1", "// expct: registers <= 1", "// Expet k<4>: registers <= 1",
        "// except: registers <= 1", "// epxect registers <= 1", "// expect: k<4: registers <= 1",
        "// We expect that registers <= 128", "// it is expected to have hot_loop.FFMA == 512.",
        "// expect: FFMA == 16;\n//  and moves <= 2", "// expect: FFMA == 16\n//also: moves <= 2;",
        "// expect: FFMA == 16,\n// with, if all goes well, moves <= 2",
        "// expect: FFMA == 16\n//   ; moves <= -1", "// expect: FFMA == 16 \\\n   ; moves <= -1",
        "// expect: FFMA == 16; \\\n   moves <= -1",
        "// expect- moves <= -1", "// expect - k: moves <= 1", "// expect-moves <= -1",
    ],
)  # fmt: skip
def test_what_looks_like_an_expectation_is_read_or_refused(text: str) -> None:
    """A comment that means to expect something and does not is an error that names its line."""
    with pytest.raises(ExpectationError, match=r"k\.cu:[23]"):
        parse_expectations(f"\n{text}\n", "k.cu")


@pytest.mark.parametrize(
    "text",
    [
        'const char* s = "// expect: registers <= 1";', 'R"(\n// expect: registers <= 1\n)"',
        "// we expect: less", "// Expected  Bound by FFMA: i <= 3 is nothing.",
        "// unexpected: registers <= 1", "EXPECT_EQ(a == 1);  // EXPECT_EQ(a, b <= 1)",
        "// registers <= 1", "// except: where n <= 3", "// respect: registers <= 1",
        "// We expect that i <= 128", "// expected: about 128 registers and 2 blocks",
        "// An expert: registers matter", "// as expected, FFMA dominates; loops are unrolled",
        "// one may expect less, as n < 4 here", "// aspect: ratio >= 2, exact: a == 0",
        "// inspect: registers <= 128 is what lowgemm sass would show",
        "// The unexpected: when registers <= 128, two blocks fit.",
        "// Expected  the FFMA pipe: 128 per clock; 4 <= stages",
        "// what to expect -> see README, depth == 3",
    ],
)  # fmt: skip
def test_prose_and_strings_expect_nothing(text: str) -> None:
    """Sentences with the word, strings and other words are left alone."""
    assert parse_expectations(text) == ()


@pytest.mark.parametrize(
    "remark",
    [
        "// With registers <= 128 two blocks fit.", "// because of what follows:", "// moves", "//",
        "//\n// moves <= 2 is rare", "// moves\n// are rare", "// moves\n//\n// <= 2",
        "// Why: as registers <= 128 and moves <= 2, two blocks fit", "// i <= n holds here",
    ],
)  # fmt: skip
def test_prose_may_stand_below_an_expectation(remark: str) -> None:
    """Sentences under an expectation are left alone, with a bound among their words as well."""
    found = parse_expectations(f"// expect: FFMA == 16\n{remark}\n")
    assert [str(item) for item in found] == ["FFMA == 16"]


@pytest.mark.parametrize(
    "below",
    [
        "//\n//  moves <= -1", "//\n//\n// moves <= -1", "//  hot_loop.moves\n//  <= -1",
        "//\n// hot_loop.moves\n//  <= -1", "// hot_loop.moves <=\n// -1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("above", ["registers <= 200;", "registers <= 200; \\"])
def test_a_clause_below_an_unfinished_line_is_refused(above: str, below: str) -> None:
    """Empty lines and broken lines do not hide a clause."""
    with pytest.raises(ExpectationError, match=r"k\.cu:\d"):
        parse_expectations(f"// expect: {above}\n{below}\n", "k.cu")


@pytest.mark.parametrize("below", ["// hot_loop.moves\n// <= -1", "// ; moves\n//  == 2"])
def test_a_clause_broken_over_two_lines_is_refused(below: str) -> None:
    """Below a finished line as well."""
    with pytest.raises(ExpectationError, match=r"k\.cu:3"):
        parse_expectations(f"// expect: registers <= 200\n{below}\n", "k.cu")


@pytest.mark.parametrize(
    "arch", ["sm_900", "sm_09", "sm_99", "sm_80f", "sm_89a", "sm_90f", "sm_80, sm_99"]
)
def test_an_architecture_that_does_not_exist_is_refused(arch: str) -> None:
    """A misspelt architecture would turn a check off: it is an error that names its line."""
    with pytest.raises(ExpectationError, match=r"k\.cu:2: .*architecture"):
        parse_expectations(f"\n// expect: [{arch}] moves <= -1\n", "k.cu")


@pytest.mark.parametrize("arch", ["sm_75", "sm_87", "sm_90a", "sm_100f", "sm_107", "sm_121a"])
def test_every_architecture_of_nvrtc_may_be_named(arch: str) -> None:
    """Those with a suffix as well."""
    assert str(parse_expectation(f"[{arch}] moves <= 1").archs[0]) == arch


def test_one_line_may_speak_of_several_kernels() -> None:
    """A kernel's name holds for the clauses up to the next name."""
    text = "// expect k<1>: registers <= 100; moves <= 3; k<(2 > 1)>: registers <= 200; FFMA == 1"
    found = [(item.kernel, str(item)) for item in parse_expectations(text)]
    assert found == [
        ("k<1>", "registers <= 100"),
        ("k<1>", "moves <= 3"),
        ("k<(2 > 1)>", "registers <= 200"),
        ("k<(2 > 1)>", "FFMA == 1"),
    ]


@pytest.mark.parametrize(
    "name",
    ["k<a::b<int>, 4>", "ns::k", "k(float*, int)", "k<4>(ns::S<1> const&)", "k<sizeof(int)>",
     "(anonymous namespace)::k<'a'>", "ns::(anonymous namespace)::k(int)"],
)  # fmt: skip
def test_a_kernel_is_named_as_cpp_does(name: str) -> None:
    """Template arguments with brackets and colons in them, parameters, anonymous namespaces."""
    (found,) = parse_expectations(f"// expect {name}: registers <= 1")
    assert found.kernel == name
    assert parse_expectation(f"{name}: registers <= 1").kernel == name


def test_instances_are_asked_of_the_compiler_as_it_takes_them() -> None:
    """Without parameters and anonymous namespaces; what is no template is not asked for."""
    text = "// expect (anonymous namespace)::k<4>(int): FFMA == 1; k<f<1>>: FFMA == 1; t: FFMA == 1"
    assert instances(parse_expectations(text)) == ("k<4>", "k<f<1>>")


def test_a_kernel_has_many_names() -> None:
    """Any name expression, the C++ name, that with parameters, the mangled name."""
    made = replace(report(kernel="k<2+2>"), symbol="_Z1kILi4EEvPf", name_expressions=("k<2+2>",))
    for name in ("k<2+2>", "k<2 + 2>", "k<4>", "k<4>(float*)", "k", "_Z1kILi4EEvPf"):
        assert parse_expectation(f"{name}: moves <= 9").concerns(made), name
    assert not parse_expectation("k<5>: moves <= 9").concerns(made)


def test_a_family_target_is_an_architecture_of_its_own() -> None:
    """What is expected on sm_100f holds there alone, what on sm_100 there as well."""
    special, plain = (
        parse_expectation("[sm_100f] moves <= 1"),
        parse_expectation("[sm_100] FFMA > 0"),
    )
    assert special.concerns(report("sm_100f")) and plain.concerns(report("sm_100f"))
    assert plain.concerns(report("sm_100")) and not special.concerns(report("sm_100"))


def test_global_memory_has_accesses_of_256_bits() -> None:
    """LDG.256 and STG.256 of sm_100 can be expected; other operations have no such width."""
    wide = replace(report("sm_100"), mix={"LDG.256": 2, "STG.256": 1, "LDG.128": 4})
    assert figure(wide, "mix.LDG.256") == 2
    assert figure(wide, "STG.256") == 1
    assert figure(wide, "LDG") == 6
    with pytest.raises(ExpectationError, match="no width of 256"):
        parse_expectation("LDS.256 == 0")


def test_red_and_redg_are_one_operation() -> None:
    """An atomic reduction counts under either name, as its name depends on the architecture."""
    there = replace(report(), mix={"REDG": 3}, unknown_opcodes={})
    assert figure(there, "RED") == figure(there, "REDG") == 3
    assert not judge(parse_expectation("RED == 0"), there).passed
    assert figure(replace(there, mix={"RED": 2}), "mix.REDG") == 2


@pytest.mark.parametrize("text", ["STL == 0", "LDS.128 <= 9", "hot_loop.FFMA < 99", "moves <= 9"])
def test_a_ceiling_does_not_pass_beside_unknown_opcodes(text: str) -> None:
    """An opcode that nobody knows may be the one that must not be there, unless it is allowed."""
    expectation = parse_expectation(text)
    verdict = judge(expectation, report())
    assert not verdict.passed
    assert "2 x 0x1ff" in verdict.reason
    assert judge(expectation, replace(report(), unknown_opcodes={})).passed
    allowed = allows_unknown([expectation, parse_expectation("unknown_opcodes >= 0")])
    assert judge(expectation, report(), unknown_allowed=allowed).passed
    assert not allows_unknown([expectation])


@pytest.mark.parametrize(
    ("name", "concerned"),
    [("k", True), ("k<4>", True), ("k< 4 >", True), ("k<8>", False), ("other", False)],
)
def test_a_kernel_is_named_with_or_without_its_arguments(name: str, concerned: bool) -> None:
    """A template's name stands for all its instances, an instance for itself."""
    expectation = parse_expectation(f"{name}: registers <= 64")
    assert expectation.kernel == name
    assert expectation.concerns(report()) is concerned


def test_a_file_carries_its_expectations(tmp_path: Path) -> None:
    """Comments with and without a kernel, several in a line, remarks; prose is left alone."""
    path = tmp_path / "k.cu"
    path.write_text(
        "// Expected  Bound by the FFMA pipe: registers <= 3 is nothing.\n"
        "// expect: registers <= 128; spill_store_bytes == 0  // two blocks\n"
        "    // expect ns::k<4, true>: [sm_90] hot_loop.LDS.128 == 4\n"
        "// expect no miracles here\n"
        '__global__ void k() {}  // const char* s = "// expect: x";\n',
        encoding="utf-8",
    )
    first, second, third = read_expectations(path)
    assert (str(first), str(second)) == ("registers <= 128", "spill_store_bytes == 0")
    assert (third.kernel, str(third)) == ("ns::k<4, true>", "[sm_90] hot_loop.LDS.128 == 4")
    assert third.origin is not None
    assert (third.origin.file, third.origin.line) == (str(path), 3)


@pytest.mark.parametrize(
    "line",
    ["// expect registers <= 128", "// expect: registers <= 12x", "// expect two words: FFMA == 1"],
)
def test_a_broken_line_is_named(line: str) -> None:
    """A line that was meant as an expectation is never passed over in silence."""
    with pytest.raises(ExpectationError, match=r"k\.cu:2"):
        parse_expectations(f"\n{line}\n", "k.cu")


def test_a_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    """The path stands in the message."""
    with pytest.raises(SourceNotFoundError, match="gone"):
        read_expectations(tmp_path / "gone.cu")


_PIECES = st.sampled_from(
    ["hot_loop", "loops[", "0", "]", ".", "LDS", "FFMA", "128", "mix", "registers", " ", "==", "<=",
     "<", ">", "=", "[", "sm_90", ",", "1e9", "-", "²", "\n", ":", "::", "k<4>", "//", ";", "nan"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join)))
def test_garbage_gives_an_expectation_error_only(text: str) -> None:
    """Whatever is written is an expectation that can be judged, or is refused as none."""
    try:
        expectation = parse_expectation(text)
    except ExpectationError as error:
        assert error.remedy
        return
    judge(expectation, report())
    judge(expectation, bare())


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join)))
def test_garbage_in_a_comment_gives_an_expectation_error_only(text: str) -> None:
    """The same for the lines of a file."""
    try:
        for expectation in parse_expectations(f"// expect{text}"):
            assert isinstance(expectation, Expectation)
    except LowgemmError as error:
        assert isinstance(error, ExpectationError)


@given(
    st.sampled_from(["registers", "hot_loop.LDS.128", "loops[3].ffma_share", "mix.STG"]),
    st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]),
    st.integers(-(10**15), 10**15) | st.floats(0, 1e6, allow_nan=False),
    st.sampled_from(["", "[sm_90] ", "[sm_80, sm_90a] "]),
)
def test_an_expectation_prints_as_it_is_written(
    path: str, comparison: str, number: float, archs: str
) -> None:
    """Reading the text of an expectation gives it back."""
    expectation = parse_expectation(f"{archs}{path} {comparison} {number}")
    assert parse_expectation(str(expectation)) == expectation
