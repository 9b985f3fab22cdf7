"""The rungs as they compile, with no GPU."""

from __future__ import annotations

import pytest

from lowgemm.binary import read_cubin
from lowgemm.compiler import compile_file
from lowgemm.errors import CompilationError
from lowgemm.gemm import (
    RUNG_NAMES,
    GemmProblem,
    compile_rung,
    is_rewritten,
    kernel_directory,
    ladder,
    rung,
)
from lowgemm.report import join_ladder
from lowgemm.studies.inspection import inspect_ladder
from lowgemm.studies.ladder import CompiledRung, compile_ladder
from lowgemm.studies.verification import FAR_PROBLEM, SHAPES
from lowgemm.view import ladder_markdown

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], CompiledRung]:
    """Every rung on six architectures."""
    return {(c.rung.name, str(c.arch)): c for c in compile_ladder(ARCHS)}


def test_every_rung_compiles_for_every_architecture(
    compiled: dict[tuple[str, str], CompiledRung],
) -> None:
    """The ladder has the same rungs, in the same order, from sm_80 to sm_120."""
    assert list(compiled) == [(name, arch) for arch in ARCHS for name in RUNG_NAMES]


def test_no_rung_spills(compiled: dict[tuple[str, str], CompiledRung]) -> None:
    """The instance for aligned rows keeps everything in registers, on each architecture."""
    for key, item in compiled.items():
        r = item.kernel.resources
        assert (r.spill_store_bytes, r.spill_load_bytes, r.stack_bytes) == (0, 0, 0), key


@pytest.mark.parametrize(
    ("name", "shared_bytes"),
    [
        ("ex3", 0),
        ("ex4_16", 2 << 10),
        ("ex4_32", 8 << 10),
        ("ex5", 8 << 10),
        ("ex6", 32 << 10),
        ("ex7", 32 << 10),
        ("ex8", 8 << 10),
        ("ex9", 16 << 10),
        ("ex10", 30 << 10),
        ("ex11", 36 << 10),
        ("ex12", 64 << 10),
        ("ex12_rewritten", 64 << 10),
        ("two_ideas", 8 << 10),
    ],
)
def test_shared_memory_is_what_the_tile_needs(
    compiled: dict[tuple[str, str], CompiledRung], name: str, shared_bytes: int
) -> None:
    """Each rung's shared memory is what its file says, on each architecture; ex12's is dynamic."""
    for arch in ARCHS:
        item = compiled[name, arch]
        assert item.shared_bytes == shared_bytes
        assert item.kernel.resources.shared_bytes == (
            0 if name.startswith("ex12") else shared_bytes
        )


def test_the_warp_tiled_rungs_leave_room_for_two_blocks(
    compiled: dict[tuple[str, str], CompiledRung],
) -> None:
    """ex8 to ex10 stay within 128 registers, so that two blocks of 256 threads fit."""
    for name in ("ex8", "ex9", "ex10"):
        for arch in ARCHS:
            assert compiled[name, arch].occupancy.blocks_per_sm >= 2


def test_the_large_tiles_have_an_sm_to_themselves(
    compiled: dict[tuple[str, str], CompiledRung],
) -> None:
    """From ex11 on a thread has more than 128 registers: one block of 256 threads on an SM."""
    for name in ("ex11", "ex12", "ex12_rewritten"):
        for arch in ARCHS:
            assert compiled[name, arch].occupancy.blocks_per_sm == 1


def test_a_rewritten_rung_says_where_the_compilers_loop_stays(
    compiled: dict[tuple[str, str], CompiledRung],
) -> None:
    """ex12's loop is rewritten wherever it is made of FFMAs; the table tells where it is not."""
    for arch in ARCHS:
        item = compiled["ex12_rewritten", arch]
        same = item.build.cubin == compiled["ex12", arch].build.cubin
        assert item.is_rewritten == (not same) == (arch != "sm_100"), arch
        table = ladder_markdown(join_ladder([item]))
        assert ("ex12, its loop rewritten: refused" in table) == same
        assert compiled["ex12", arch].is_rewritten is None


def test_rewriting_can_be_turned_off(
    monkeypatch: pytest.MonkeyPatch, compiled: dict[tuple[str, str], CompiledRung]
) -> None:
    """With LOWGEMM_REWRITE=0 the compiler's loop stays, and the build is ex12's."""
    monkeypatch.setenv("LOWGEMM_REWRITE", "0")
    item = rung("ex12_rewritten", "sm_90")
    build = compile_rung(item, "sm_90")
    assert build.cubin == compiled["ex12", "sm_90"].build.cubin
    assert is_rewritten(item, build) is False


def test_a_rewritten_loop_loses_its_bank_conflicts(
    compiled: dict[tuple[str, str], CompiledRung],
) -> None:
    """The registers are those that the cubin asks for; the conflicts of the hot loop are gone."""
    items = [compiled[name, "sm_90"] for name in ("ex12", "ex12_rewritten")]
    before, after = inspect_ladder(items).values()
    assert before.hot is not None and after.hot is not None
    assert after.hot.conflict_cycles < before.hot.conflict_cycles / 4
    for name in ("FFMA", "LDS.128", "LDGSTS.128", "BAR"):
        assert after.hot.mix[name] == before.hot.mix[name]
    own = read_cubin(items[1].build.cubin).own_registers[items[1].kernel.name]
    assert own == items[1].kernel.resources.registers == items[1].kernel.signature.registers


def test_the_two_ideas_kernel_takes_its_register_tile_from_the_chip() -> None:
    """4 x 4 where an SM has 64 lanes, 8 x 8 where it has 128."""
    assert rung("two_ideas", "sm_80").tm == 4
    assert rung("two_ideas", "sm_90").tm == 8


def test_launch_bounds_are_the_rungs_threads(
    compiled: dict[tuple[str, str], CompiledRung],
) -> None:
    """The block that a rung's record names is the bound that its kernel was compiled with."""
    for key, item in compiled.items():
        assert item.kernel.signature.max_threads == item.rung.threads, key


def test_parameters_are_known_by_type(compiled: dict[tuple[str, str], CompiledRung]) -> None:
    """Every rung takes M N K, then A, B and C with their leading dimensions, or as tensor maps."""
    floats = "float const*"
    expected = ["int"] * 3 + [floats, "int", floats, "int", "float*", "int"]
    for key, item in compiled.items():
        types = [p.type_name for p in item.kernel.signature.parameters]
        if item.rung.source == "ex13_tma.cu":  # not mangled: what PTX tells is the widths
            sizes = [p.size_bytes for p in item.kernel.signature.parameters]
            assert sizes == [4, 4, 4, 128, 128, 8, 4, 8, 8], key
            continue
        workspace = ["float*", "unsigned int*"] if item.rung.is_persistent else []
        assert types == expected + workspace, key


@pytest.mark.parametrize(
    ("name", "defines", "said"),
    [
        ("ex4_16", {"TILE": 64}, "TILE must be 32 or less"),
        ("ex7", {"STRIDE": 8, "RK": 4}, "STRIDE must be 4"),
        ("ex8", {"BM": 100}, "whole warp tiles"),
        ("ex8", {"BK": 6}, "BK and BN in fours"),
        ("ex8", {"BM": 48, "BN": 96, "BK": 24, "TM": 12, "TN": 12}, "BM in thirty-twos"),
        ("ex9", {"BM": 16, "BN": 64, "BK": 16, "TM": 4}, "BM in thirty-twos"),
        ("ex9", {"TM": 6, "BM": 96}, "TM and TN in fours"),
        ("ex10", {"STAGES": 1}, "STAGES must be 2 or more"),
        ("ex10", {"STAGES": 5}, "exceed 48 KiB"),
        ("ex11", {"STAGES": 5}, "exceed 48 KiB"),
        ("ex11", {"BM": 96}, "whole warp tiles"),
        ("ex12", {"STAGES": 3}, "must be a power of two"),
        ("two_ideas", {"RT": 5}, "must divide the shared tile"),
    ],
)
def test_a_tile_that_cannot_work_is_refused_in_words(
    name: str, defines: dict[str, int], said: str
) -> None:
    """A static_assert says what is wrong with the tile; it never compiles to a wrong kernel."""
    item = rung(name, "sm_90")
    with pytest.raises(CompilationError, match=said) as caught:
        compile_file(
            item.path,
            arch="sm_90",
            defines={**item.defines, **defines},
            name_expressions=item.name_expressions if item.has_float4 else (),
        )
    assert said in caught.value.log


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("ex8", {"BK": 16}),
        ("ex9", {"BM": 64, "BN": 64}),
        ("ex10", {"STAGES": 2, "BK": 16}),
        ("ex11", {"BN": 64, "BK": 16, "STAGES": 2}),
        ("two_ideas", {"TILE": 128, "BK": 8}),
    ],
)
def test_other_tiles_compile(name: str, defines: dict[str, int]) -> None:
    """The tile sizes are macros: others than the defaults work as well."""
    item = rung(name, "sm_90")
    build = compile_file(
        item.path,
        arch="sm_90",
        defines={**item.defines, **defines},
        name_expressions=item.name_expressions,
    )
    assert build.kernel(item.instance(aligned=True)).resources.registers > 0


def test_the_grid_covers_c() -> None:
    """Blocks times tile is at least C, and one block fewer along either side is not."""
    for item in ladder("sm_90"):
        for problem in SHAPES:
            along_m, along_n = -(-problem.m // item.bm), -(-problem.n // item.bn)
            tiles = along_m * along_n
            steps = tiles * -(-problem.k // item.bk)
            wanted = min(132, steps) if item.is_persistent else tiles
            assert item.grid(problem, 132) == wanted
            assert (along_m - 1) * item.bm < problem.m <= along_m * item.bm


def test_a_tall_c_has_a_grid() -> None:
    """A million rows and more fit: the grid's one dimension reaches 2^31 - 1."""
    assert ladder("sm_90")[0].grid(GemmProblem(2**24, 16, 1), 132) == 2**20


def test_the_far_problem_reaches_beyond_31_bits() -> None:
    """The last rows of all three matrices begin beyond 2^31 elements."""
    p = FAR_PROBLEM
    assert min(p.a_elements, p.b_elements, p.c_elements) > 2**31


def test_every_kernel_file_is_a_rung_and_tells_its_idea() -> None:
    """No .cu file lies unused, and each opens with idea, tile, shared memory and expectation."""
    paths = kernel_directory().glob("*.cu")
    files = {path.name: path for path in paths if not path.name.startswith("lab_")}
    rungs = {item.source for arch in ("sm_80", "sm_90") for item in ladder(arch)}
    sgemm = {f"sgemm_{name}.cu" for name in ("stream_k", "tile", "gemv", "scale")}
    assert set(files) == {*rungs, *sgemm}
    for path in files.values():
        header = path.read_text(encoding="utf-8").split("#include", 1)[0]
        for word in ("Idea", "Tile", "Shared", "Expected"):
            assert f"// {word}" in header, (path.name, word)
        body = path.read_text(encoding="utf-8")
        for section in ("load", "compute", "store"):
            assert "// ---- " in body and section in body, (path.name, section)


def test_a_build_names_its_instances() -> None:
    """A template rung's build has both instances under their C++ names."""
    item = rung("ex6", "sm_90")
    build = compile_rung(item, "sm_90")
    assert {kernel.display_name for kernel in build.kernels} == set(item.name_expressions)
