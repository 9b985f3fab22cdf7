"""Listings of machine code: where a branch goes, which loop an instruction is in, its source."""

from __future__ import annotations

import pytest
from corpus import POINTER

from lowgemm.analysis import analyse_kernel
from lowgemm.analysis.listing import KernelListing, list_kernel
from lowgemm.binary.sass import SassKernel, disassemble
from lowgemm.compiler import compile_file, compile_source
from lowgemm.view.sass import listing_data, sass_listing

SOURCE = """\
__global__ void twice(const float* x, float* y, int n) {
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
#pragma unroll 1
        for (int k = 0; k < i; ++k) y[i] = y[i] * x[k] + 1.0f;
    }
}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> SassKernel:
    """A loop in a loop."""
    path = tmp_path_factory.mktemp("listing") / "twice.cu"
    path.write_text(SOURCE, encoding="utf-8")
    return disassemble(compile_file(path, arch="sm_90").cubin, live_registers=False)[0]


@pytest.fixture(scope="module")
def listing(kernel: SassKernel) -> KernelListing:
    """Its listing."""
    return list_kernel(kernel, "twice")


def test_every_branch_has_its_label(kernel: SassKernel, listing: KernelListing) -> None:
    """Where a branch goes there stands the name that its text says."""
    labels = {item.instruction.address: item.label for item in listing.instructions}
    branches = [i for i in kernel.instructions if i.name == "BRA" and i.target is not None]
    assert branches
    for branch in branches:
        assert branch.target is not None
        label = labels[branch.target]
        assert f"({label})" in branch.text
        assert f"\n{label}:\n" in sass_listing(listing).plain


def test_loops_and_the_hot_loop_are_marked(kernel: SassKernel, listing: KernelListing) -> None:
    """A loop's instructions are those of the report, without inner loops; the hot one is marked."""
    report = analyse_kernel(kernel)
    for loop in report.loops:
        own = [item for item in listing.instructions if item.loop == loop.index]
        work = [item for item in own if not item.instruction.is_filler]
        assert len(work) == loop.instructions
        assert all(item.is_hot == (loop.index == report.hot_loop) for item in own)
    text = sass_listing(listing).plain
    assert f"loop {report.hot_loop}, " in text
    hot = sum(item.is_hot for item in listing.instructions)
    assert sum(row.startswith((">", "|>")) for row in text.splitlines()) == hot


def test_source_lines_have_their_text_and_padding_is_left_out(listing: KernelListing) -> None:
    """A listing names the kernel as people do, shows the source, and ends where the code does."""
    text = sass_listing(listing).plain
    assert text.startswith("twice  sm_90\n")
    assert "twice.cu:5   for (int k = 0; k < i; ++k) y[i] = y[i] * x[k] + 1.0f;" in text
    assert any(item.is_padding for item in listing.instructions)
    assert " NOP" not in text
    assert len(listing_data(listing)) == len(listing.instructions)


def test_control_words_come_with_their_meaning(listing: KernelListing) -> None:
    """The legend stands above the words."""
    assert "control word" not in sass_listing(listing).plain
    text = sass_listing(listing, control=True).plain
    for word in ("waits for", "stay or Y yield", "reuse"):
        assert word in text


def test_a_kernel_without_a_loop_and_one_with_functions_behind_it() -> None:
    """The first says that it has none; the names of the functions are labels."""
    made = compile_source("__global__ void k(int* p) { *p = 1; }", arch="sm_80")
    (plain,) = disassemble(made.cubin, live_registers=False)
    assert "this kernel has no loop" in sass_listing(list_kernel(plain)).plain
    (behind,) = disassemble(compile_source(POINTER, arch="sm_90").cubin, live_registers=False)
    labels = {item.label for item in list_kernel(behind).instructions}
    assert any("horner" in label for label in labels)


def test_functions_with_sections_of_their_own_have_their_labels() -> None:
    """They are listed behind the kernel; every branch and call inside leads to its label."""
    source = """
__device__ __noinline__ float leaf(const float* x, int n) {
    float s = 0;
    for (int i = 0; i < n; ++i) s = s * x[i] + 1.0f;
    return s;
}
__global__ void k(float* x, int n) { x[0] = leaf(x, n); }
"""
    made = compile_source(source, arch="sm_90", options=("-rdc=true",))
    (kernel,) = disassemble(made.cubin, live_registers=False)
    (_, part) = kernel.parts
    assert kernel.labels[part.start] == part.function
    assert "k" not in kernel.labels.values()
    branches = [i for i in kernel.instructions if i.name == "BRA" and i.target is not None]
    assert any(branch.address > part.start for branch in branches)
    for branch in branches:
        assert branch.target is not None
        assert f"({kernel.labels[branch.target]})" in branch.text
