"""PTX as code: instructions, control flow, counts per loop."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lowgemm.analysis.ptx import (
    PtxReport,
    analyse_ptx,
    analyse_ptx_build,
    ptx_mnemonic,
)
from lowgemm.binary.instruction import SourceLine
from lowgemm.binary.ptx_code import PtxFunction, PtxInstruction, ptx_flow, read_ptx
from lowgemm.compiler import Build, compile_many, compile_source
from lowgemm.errors import PtxError
from lowgemm.gemm import Rung, compile_rung, rung
from lowgemm.view.ptx import ptx_data, ptx_listing, ptx_markdown, ptx_view

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
RUNG_ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.cu"))


@pytest.fixture(scope="module")
def builds() -> dict[tuple[str, str], Build]:
    """The kernels that are no GEMM, on six architectures."""
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda path: compile_many(path, ARCHS), KERNELS))
    return {
        (path.stem, str(arch)): build
        for path, by_arch in zip(KERNELS, made, strict=True)
        for arch, build in by_arch.items()
    }


# K-steps in one pass of the hot loop, from the sources: ex6 unrolls 8 steps, ex7 four pieces of
# RK = 4; ex9's #pragma unroll 2 is done by NVVM, so that its PTX has two k-tiles already.
STEPS = {"ex6": 8, "ex7": 16, "ex8": 8, "ex9": 16, "ex10": 8, "two_ideas": 16}


def loads_expected(record: Rung, steps: int) -> dict[str, int]:
    """Shared-memory loads of a pass: rows of A and columns of B in float4, where they are."""
    tm, tn = record.tm, record.tn
    if record.name == "ex6":  # A transposed is read along k as float4, B element by element
        return {"ld.shared.128": tm * steps // 4, "ld.shared.32": tn * steps}
    return {"ld.shared.128": (tm + tn) * steps // 4}


@pytest.fixture(scope="module")
def rungs() -> dict[tuple[str, str], tuple[PtxReport, ...]]:
    """The reports on both instances of each rung from ex6 on."""
    keys = [(name, arch) for name in STEPS for arch in RUNG_ARCHS]
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda key: compile_rung(rung(*key), key[1]), keys)
        return {k: analyse_ptx_build(build) for k, build in zip(keys, made, strict=True)}


@pytest.mark.parametrize("name", STEPS)
def test_the_hot_loop_holds_the_multiply_adds_and_loads_of_its_tile(
    rungs: dict[tuple[str, str], tuple[PtxReport, ...]], name: str
) -> None:
    """A pass has TM x TN FMAs a k-step and the loads that feed them, on each architecture."""
    for arch in RUNG_ARCHS:
        record = rung(name, arch)
        reports = rungs[name, arch]
        assert [report.kernel for report in reports] == sorted(record.name_expressions)
        for report in reports:
            assert report.hot is not None
            mix = report.hot.mix
            assert mix["fma.f32"] == record.tm * record.tn * STEPS[name], (arch, report.kernel)
            assert group(mix, "ld.shared.") == loads_expected(record, STEPS[name]), arch


def group(mix: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name: count for name, count in mix.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", STEPS)
def test_architectures_compare_although_their_suffixes_differ(
    rungs: dict[tuple[str, str], tuple[PtxReport, ...]], name: str
) -> None:
    """ld.shared.v4.f32 of sm_90 and ld.shared.v4.b32 of sm_100 count alike, in every loop."""
    first, second = (compile_rung(rung(name, arch), arch) for arch in ("sm_90", "sm_100"))
    assert "ld.shared.v4.f32" in first.ptx
    assert "ld.shared.v4.b32" not in first.ptx
    assert "ld.shared.v4.b32" in second.ptx
    for a, b in zip(rungs[name, "sm_90"], rungs[name, "sm_100"], strict=True):
        assert a.hot is not None
        assert b.hot is not None
        for prefix in ("ld.shared.", "ld.global.", "st.shared.", "cp.async.", "bar.", "fma."):
            assert group(a.hot.mix, prefix) == group(b.hot.mix, prefix), prefix


def test_an_asynchronous_copy_counts_by_its_bits(
    rungs: dict[tuple[str, str], tuple[PtxReport, ...]],
) -> None:
    """ex10 copies 16 bytes at a time from aligned rows, 4 bytes otherwise."""
    for arch in RUNG_ARCHS:
        unaligned, aligned = rungs["ex10", arch]
        assert aligned.hot is not None
        assert unaligned.hot is not None
        assert aligned.hot.mix["cp.async.128"] == 2
        assert unaligned.hot.mix["cp.async.32"] == 8


def test_shared_memory_and_registers_are_those_declared(
    rungs: dict[tuple[str, str], tuple[PtxReport, ...]],
) -> None:
    """Static shared memory is counted in bytes, virtual registers by their type."""
    assert {report.shared_bytes for report in rungs["ex9", "sm_90"]} == {16 << 10}
    assert set(rungs["ex9", "sm_90"][0].registers) == {"b32", "b64", "f32", "pred"}
    assert set(rungs["ex9", "sm_100"][0].registers) == {"b32", "b64", "pred"}


def statements(text: str) -> int:
    """Instructions of a PTX text, counted without the reader."""
    bare = re.sub(r"//[^\n]*", "", text)
    bare = re.sub(r"^\s*\.(loc|file|section)\b[^\n]*", "", bare, flags=re.MULTILINE)
    bodies = bare[bare.index("{") :]
    pieces = [re.split(r"[;{}]|(?<!:):(?!:)", piece.strip())[-1] for piece in _pieces(bodies)]
    return sum(bool(re.match(r"\s*(@!?%?\w+\s+)?[a-z]", piece)) for piece in pieces)


def _pieces(text: str) -> list[str]:
    """What stands before each semicolon, with the braces of vectors taken out."""
    flat = re.sub(r"\{([^{};]*)\}", r"\1", text)
    return [piece for piece in flat.split(";")[:-1] if piece.strip()]


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_every_instruction_of_other_kernels_is_read(
    builds: dict[tuple[str, str], Build], path: Path
) -> None:
    """Reductions, printf, tensor cores and others: each statement is read, each branch arrives."""
    for arch in ARCHS:
        build = builds[path.stem, arch]
        module = read_ptx(build.ptx)
        functions = {function.name: function for function in module.functions}
        assert {kernel.name for kernel in build.kernels} <= functions.keys()
        assert module.target == arch
        assert sum(len(f.instructions) for f in functions.values()) == statements(build.ptx)
        for function in functions.values():
            check_function(function)


def check_function(function: PtxFunction) -> None:
    labels = {
        label: instruction.index
        for instruction in function.instructions
        for label in instruction.labels
    }
    for index, instruction in enumerate(function.instructions):
        assert instruction.index == index
        if instruction.name == "bra":
            assert instruction.targets == (labels[instruction.operands[-1]],)
    flow = ptx_flow(function.instructions)
    assert not flow.irreducible
    covered = [i for block in flow.blocks for i in range(block.first, block.last + 1)]
    assert covered == list(range(len(function.instructions)))


def test_shared_memory_of_other_kernels_is_the_compilers(
    builds: dict[tuple[str, str], Build],
) -> None:
    """The bytes declared in PTX are those that ptxas allocates, for every kernel."""
    for key, build in builds.items():
        reports = {r.symbol: r for r in analyse_ptx_build(build)}
        for kernel in build.kernels:
            assert reports[kernel.name].shared_bytes == kernel.resources.shared_bytes, key


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("__shared__ char a; __shared__ float4 b;", 32),
        ("__shared__ float4 a; __shared__ char b;", 17),
        ("__shared__ char a; extern __shared__ float4 b[];", 16),
        ("__shared__ char a; __shared__ double b;", 16),
    ],
)
def test_alignment_pads_shared_memory_as_the_compiler_does(declared: str, size: int) -> None:
    """Variables begin at multiples of their alignment, and what the launch adds pads the end."""
    uses = "((volatile char*)&a)[0] = 1; ((volatile char*)&b)[0] = 1; *o = *(char*)&a + *(char*)&b;"
    made = compile_source(f"__global__ void k(char* o) {{ {declared} {uses} }}", arch="sm_90")
    (report,) = analyse_ptx_build(made)
    assert report.shared_bytes == size == made.kernels[0].resources.shared_bytes


def test_device_functions_are_reported_behind_the_kernels(
    builds: dict[tuple[str, str], Build],
) -> None:
    """Functions that were not inlined have reports of their own, and the kernel reaches them."""
    build = builds["calls", "sm_90"]
    reports = analyse_ptx_build(build)
    assert [r.kernel for r in reports] == ["calls", "step", "twice", "square"]
    assert [r.is_entry for r in reports] == [True, False, False, False]
    reached = read_ptx(build.ptx).reached(reports[0].symbol)
    assert {function.name for function in reached} == {r.symbol for r in reports}


# ---- the forms of PTX


HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def body(text: str, head: str = "", tail: str = "") -> PtxFunction:
    """The one function of a text with this body."""
    text = f"{HEAD}{head}\n.visible .entry k(.param .u64 k_0)\n{{\n{text}\n}}\n{tail}"
    return read_ptx(text).functions[0]


def test_comments_and_line_breaks_are_no_matter() -> None:
    """Comments, strings with semicolons, and instructions over several lines are understood."""
    function = body(
        """ld.shared.v4.f32 /* ; } */ {%f1,
            %f2, %f3, %f4}, // not here: }
            [%r1 + 16];
        .pragma "nounroll; }";
        @!%p1   bra  OUT ; OUT : ret;"""
    )
    load, branch, back = function.instructions
    assert load.operands == ("{%f1, %f2, %f3, %f4}", "[%r1 + 16]")
    assert (load.name, load.modifiers) == ("ld", ("shared", "v4", "f32"))
    assert load.text == "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r1 + 16]"
    assert (branch.predicate, branch.targets, branch.falls_through) == ("!%p1", (2,), True)
    assert (back.labels, back.falls_through) == (("OUT",), False)
    assert load.ptx_line == 7


def test_inline_assembly_may_repeat_its_labels() -> None:
    """A label counts within its braces: the same name in two of them is two labels."""
    piece = "{ .reg .pred q; AGAIN: setp.eq.s32 q, %r1, 0; @q bra AGAIN; @q bra DONE; }\n"
    function = body(f"{piece}{piece}DONE: exit;")
    assert [i.targets for i in function.instructions if i.name == "bra"] == [(0,), (6,), (3,), (6,)]
    assert len(ptx_flow(function.instructions).loops) == 2


def test_a_branch_through_a_table_reaches_all_its_targets() -> None:
    """brx.idx leads to each label of its .branchtargets, and not to the next instruction."""
    function = body(
        "ts: .branchtargets A, B, A;\nbrx.idx %r1, ts;\nadd.s32 %r1, %r1, 1;\nA: ret;\nB: trap;"
    )
    assert function.instructions[0].targets == (2, 3)
    flow = ptx_flow(function.instructions)
    assert not flow.reachable(1)
    assert "add.32" not in analyse_text("brx.idx %r1, ts;", "ts: .branchtargets A; A: ret;").mix


def analyse_text(*lines: str) -> PtxReport:
    text = "\n".join(lines)
    return analyse_ptx(f"{HEAD}.entry k()\n{{\n{text}\n}}\n")[0]


def test_lines_come_from_the_last_loc() -> None:
    """.loc gives file and line, the place of inlining, and with line 0 neither."""
    function = body(
        """.loc 1 7 3
        mov.u32 %r1, 0;
        .loc 2 5 1, function_name $L__info, inlined_at 1 9 2
        mov.u32 %r2, 0;
        .loc 1 0 1
        ret;""",
        tail='.file 1 "/a/b c.cu"\n\t.file\t2 "h.cuh", 12, 34\n.section .debug_str { .b8 0 }',
    )
    assert [i.line for i in function.instructions] == [
        SourceLine("/a/b c.cu", 7),
        SourceLine("h.cuh", 5),
        None,
    ]
    assert function.instructions[1].inlined_at == SourceLine("/a/b c.cu", 9)


def test_a_call_is_one_instruction_that_returns() -> None:
    """A call sequence with its parameters, a prototype and a declaration is read."""
    function = body(
        """{ // callseq 0, 0
        .param .b32 param0;
        st.param.b32 [param0+0], %r1;
        proto : .callprototype (.param .b32 _) _ (.param .b32 _);
        call (retval0),
        %rd6,
        (
        param0
        )
        , proto;
        }
        ret;""",
        head=".extern .func (.param .b32 r) other\n(\n.param .b64 a\n)\n.noreturn\n;\n",
    )
    call = function.instructions[1]
    assert (call.operands, call.falls_through) == (("(retval0)", "%rd6", "(param0)", "proto"), True)


def test_directives_before_the_body_are_passed_over() -> None:
    """Launch bounds, attributes and pragmas between the head and the body are no code."""
    text = (
        f"{HEAD}.shared .align 4 .b8 outside[2][8];\n.extern .shared .align 16 .b8 dynamic[];\n"
        ".func .attribute(.unified(1, 2)) (.param .b32 r) f (.param .b32 a) { ret; }\n"
        '.entry k(.param .u64 p)\n.maxntid 256, 1, 1\n.minnctapersm 2\n.pragma "x";\n'
        "{ .shared .v4 .f32 inside; .reg .b32 %r<5>, %s; .reg .v2 .f32 %v;"
        " mov.u32 %r1, outside; ret; }"
    )
    module = read_ptx(text)
    assert [(f.name, f.is_entry, len(f.instructions)) for f in module.functions] == [
        ("f", False, 1),
        ("k", True, 2),
    ]
    assert module.functions[1].registers == {"b32": 6, "f32": 2}
    assert [(v.name, v.size_bytes) for v in module.shared] == [("outside", 16), ("dynamic", 0)]
    assert module.shared_bytes("k") == 32
    assert module.shared_bytes("f") == 0


@pytest.mark.parametrize(
    ("text", "mnemonic"),
    [
        ("ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r1]", "ld.shared.128"),
        ("ld.global.nc.L1::no_allocate.L2::128B.v2.b64 {%rd1, %rd2}, [%rd3]", "ld.global.128"),
        ("ld.volatile.shared::cta.u8 %rs1, [%r1]", "ld.shared.8"),
        ("ld.shared::cluster.u32 %r1, [%r2]", "ld.shared::cluster.32"),
        ("ld.u32 %r1, [%rd1]", "ld.generic.32"),
        ("ld.param.u64 %rd1, [k_0]", "ld.param.64"),
        ("st.global.v8.f32 [%rd1], {a, b, c, d, e, f, g, h}", "st.global.256"),
        ("cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16", "cp.async.128"),
        ("cp.async.ca.shared::cta.global [%r1], [%rd1], 4, %r2", "cp.async.32"),
        ("cp.async.commit_group", "cp.async.commit_group"),
        ("fma.rn.ftz.f32 %f1, %f2, %f3, %f4", "fma.f32"),
        ("fma.rn.f64 %fd1, %fd2, %fd3, %fd4", "fma.f64"),
        ("fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4", "fma.f32x2"),
        ("fma.rn.bf16x2 %r1, %r2, %r3, %r4", "fma.bf16x2"),
        ("mad.lo.s32 %r1, %r2, %r3, %r4", "mad.32"),
        ("mul.wide.u32 %rd1, %r1, 4", "mul.wide.32"),
        ("div.full.f32 %f1, %f2, %f3", "div.full.f32"),
        ("cvt.rn.f32.s32 %f1, %r1", "cvt.f32.32"),
        ("cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2", "cvt.e4m3x2.f32"),
        ("setp.lt.and.f32 %p1|%p2, %f1, %f2, %p3", "setp.f32"),
        ("and.pred %p1, %p2, %p3", "and.pred"),
        ("bra.uni L", "bra"),
        ("bar.sync 0", "bar.sync"),
        ("barrier.cta.sync.aligned 0", "bar.sync"),
        ("atom.relaxed.gpu.global.add.f32 %f1, [%rd1], %f2", "atom.global.add.f32"),
        ("atom.shared.cas.b32 %r1, [%r2], %r3, %r4", "atom.shared.cas.32"),
        ("red.add.u64 [%rd1], %rd2", "red.generic.add.64"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {a}, {b}, {c}, {d}", ""),
        ("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1", ""),
        ("later.new.x7 %r1", ""),
    ],
)
def test_instructions_count_by_what_they_do(text: str, mnemonic: str) -> None:
    """Space and width, operation and type; what is not known counts under its own name."""
    (instruction, *_) = body(f"{text};\nL: ret;").instructions
    assert ptx_mnemonic(instruction) == (mnemonic or instruction.opcode)


def test_counts_leave_out_what_no_path_reaches() -> None:
    """Loops count without those inside them; dead code counts nowhere."""
    report = analyse_text(
        "A: add.s32 %r1, %r1, 1;",
        "B: fma.rn.f32 %f1, %f1, %f1, %f1; @%p1 bra B;",
        "@%p2 bra A; ret; mul.f32 %f1, %f1, %f1;",
    )
    outer, inner = report.loops
    assert (outer.depth, dict(outer.mix)) == (1, {"add.32": 1, "bra": 1})
    assert (inner.depth, dict(inner.mix)) == (2, {"bra": 1, "fma.f32": 1})
    assert report.hot is inner
    assert (report.instructions, inner.fma_share) == (5, 0.5)
    assert "mul.f32" not in report.mix


# ---- hostile text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 100,
        "no PTX at all",
        f"{HEAD}.entry",
        f"{HEAD}.entry k(",
        f"{HEAD}.entry k()",
        f"{HEAD}.entry k() {{ ret;",
        f"{HEAD}.entry k() {{ ret }}",
        f"{HEAD}.entry k() {{ mov.u32 %r1, {{1; }}",
        f"{HEAD}.entry k() {{ bra NOWHERE; }}",
        f"{HEAD}.entry k() {{ brx.idx %r1, NOWHERE; }}",
        f"{HEAD}.entry k() {{ brx.idx; }}",
        f"{HEAD}.entry k() {{ %%% ; }}",
        f"{HEAD}.entry k() " + "{" * 100_000,
        f"{HEAD}.shared .b8 x",
        f"{HEAD}.section .debug",
    ],
)
def test_damaged_text_gets_a_typed_error(text: str) -> None:
    """What is cut off, unbalanced or leads nowhere is a PtxError that says what to do."""
    with pytest.raises(PtxError) as caught:
        read_ptx(text)
    assert caught.value.remedy


def survives(text: str) -> None:
    """Reading gives reports or a PtxError, and ends."""
    begin = time.monotonic()
    with contextlib.suppress(PtxError):
        analyse_ptx(text)
    assert time.monotonic() - begin < 5


def test_truncated_and_changed_ptx_never_crashes(builds: dict[tuple[str, str], Build]) -> None:
    """PTX cut anywhere, or with characters changed, is a report or a PtxError."""
    chance = random.Random(3)
    texts = [builds[name, "sm_90"].ptx for name in ("calls", "half", "reduction", "printing")]
    for text in texts:
        for _ in range(40):
            survives(text[: chance.randrange(len(text))])
            changed = list(text)
            for _ in range(chance.randrange(1, 20)):
                changed[chance.randrange(len(text))] = chance.choice('{}();:@.,"%/*\\ \n0aL$[]<>')
            survives("".join(changed))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *(".entry k(", ".func ", ")", "{", "}", ";", ":", "L", "bra L", "brx.idx", "\n"),
                *(".shared .b8 x[", "]", ".reg .f32 %f<", ">", "99999999999", '"', "/*", "//"),
                *(".loc 1 2 3", "@!%p1 ", "ld.shared.v4.f32", ",", ".branchtargets", "\\", "\0"),
                *(".pragma", ".section", " ", "%r1", "cp.async.ca.shared", "é", "٣"),
            ]
        )
    ),
    st.text(max_size=20),
)
def test_pieces_of_ptx_in_any_order_never_crash(pieces: list[str], garbage: str) -> None:
    """Any text after a .version is a report or a PtxError."""
    survives(".version 8.0\n" + " ".join(pieces) + garbage)
    survives(".version 8.0\n.entry k() {" + "".join(pieces) + garbage + "}")


@pytest.mark.parametrize(
    "piece",
    [
        '"',
        '\\"',
        "/*",
        "(",
        ")",
        ";",
        ":",
        "a",
        "L:",
        "a;",
        "@",
        "[",
        "{}",
        ".loc ",
        ".file 1 ",
        " ",
    ],
)
def test_reading_takes_linear_time(piece: str) -> None:
    """A hundred thousand repetitions of any piece end within seconds."""
    survives(".version 8.0\n.entry k() {" + piece * 100_000)


# ---- views


def test_reports_can_be_shown(builds: dict[tuple[str, str], Build]) -> None:
    """A report is a table, Markdown, plain data; a kernel's text is its part of the PTX."""
    build = builds["nbody", "sm_90"]
    reports = analyse_ptx_build(build)
    (row,) = json.loads(json.dumps(ptx_data(reports)))
    assert row["kernel"] == "nbody"
    assert row["loops"][row["hot_loop"]]["mix"] == reports[0].loops[1].mix
    assert "### `nbody`, sm_90" in ptx_markdown(reports)
    assert ptx_view(reports) is not None
    listing = ptx_listing(build.ptx, read_ptx(build.ptx).functions[0])
    assert listing.startswith(".visible .entry")
    assert listing.endswith("}\n")


def test_records_compare_by_value() -> None:
    """Reading a text twice gives equal records."""
    one, two = body("L: bra L;"), body("L: bra L;")
    assert one == two
    assert one.instructions[0] == PtxInstruction(0, 7, "bra", ("L",), None, ("L",), (0,))


def test_the_command_shows_tables_json_markdown_and_the_text() -> None:
    """lowgemm ptx takes a rung or a .cu file, and shows one kernel with --only."""
    import lowgemm.cli.ptx  # noqa: F401  # registers the command
    from lowgemm.cli.common import app

    path = str(Path(__file__).parent / "kernels" / "calls.cu")

    def output(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["ptx", path, "--arch", "sm_90", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert json.loads(output("--json"))[0]["kernel"] == "calls"
    assert [row["kernel"] for row in json.loads(output("--json", "--only", "sq"))] == ["square"]
    assert "### `calls`, sm_90" in output("--markdown")
    assert "device function" in output()
    assert output("--text").startswith("//\n// Generated by NVIDIA")
    assert output("--text", "--only", "square").startswith(".func")
