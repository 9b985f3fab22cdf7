"""Basic blocks, dominators and loops, on graphs that one can draw."""

from __future__ import annotations

import time

import pytest
from corpus import ARCHS, OTHERS, kernels
from hypothesis import given
from hypothesis import strategies as st

from lowgemm.binary.flow import FlowGraph, FlowNode, build_flow, sass_flow


def graph(*edges: tuple[int, ...], ends: tuple[int, ...] = ()) -> FlowGraph:
    """One instruction a block: node i jumps to ``edges[i]`` and falls through unless it ends."""
    nodes = [
        FlowNode(10 * i, 10, tuple(10 * t for t in targets), i not in ends)
        for i, targets in enumerate(edges)
    ]
    return build_flow(nodes)


def test_straight_code_is_one_block() -> None:
    """Without a jump there is one block and no loop."""
    flow = graph((), (), ())
    assert [(b.first, b.last) for b in flow.blocks] == [(0, 2)]
    assert flow.loops == ()


def test_a_jump_ends_a_block_and_its_target_begins_one() -> None:
    """if: 0 jumps over 1 to 2."""
    flow = graph((2,), (), ())
    assert [b.successors for b in flow.blocks] == [(2, 1), (2,), ()]
    assert flow.dominators == (0, 0, 0)


def test_nested_loops_have_depth_and_own_blocks() -> None:
    """1 is around 2: the inner one's blocks are not the outer one's own."""
    flow = graph((), (), (2,), (1,), (), ends=(4,))
    outer, inner = flow.loops
    assert (outer.depth, inner.depth, inner.parent) == (1, 2, outer.index)
    assert inner.blocks < outer.blocks
    assert outer.own_blocks == outer.blocks - inner.blocks
    assert (inner.start, inner.end) == (20, 30)


@pytest.mark.parametrize("count", [1500])
def test_many_loops_take_no_time(count: int) -> None:
    """A thousand and more loops, nested or one after the other, are found in seconds."""
    nested = [()] * count + [(count - 1 - i,) for i in range(count)]
    flat = [(i,) for i in range(count)]
    for edges, depth in ((nested, count), (flat, 1)):
        begin = time.perf_counter()
        flow = graph(*edges)
        assert time.perf_counter() - begin < 20
        assert len(flow.loops) == count
        assert max(loop.depth for loop in flow.loops) == depth


def test_two_back_edges_to_one_header_are_one_loop() -> None:
    """continue: both edges go to 1."""
    flow = graph((), (), (1,), (1,), (), ends=(4,))
    assert len(flow.loops) == 1
    assert flow.loops[0].depth == 1


def test_a_loop_with_two_entries_is_no_natural_loop() -> None:
    """0 jumps into the middle of a cycle: it is reported, not invented as a loop."""
    flow = graph((2,), (), (1,), ends=())
    assert flow.loops == ()
    assert flow.irreducible


def test_what_no_path_reaches_is_known() -> None:
    """Padding behind an end, with its branch to itself, is not reached and no loop."""
    flow = graph((), (), (2,), ends=(1, 2))
    assert [flow.reachable(b.index) for b in flow.blocks] == [True, False]
    assert flow.loops == ()


def test_another_entry_reaches_what_lies_behind_it() -> None:
    """A function that is entered by address counts as reached."""
    nodes = [FlowNode(0, 10, falls_through=False), FlowNode(10, 10, falls_through=False)]
    assert not build_flow(nodes).reachable(1)
    assert build_flow(nodes, entries=[10]).reachable(1)


@given(st.lists(st.tuples(st.lists(st.integers(0, 14), max_size=2), st.booleans()), max_size=15))
def test_dominators_equal_their_definition(shape: list[tuple[list[int], bool]]) -> None:
    """A block's dominators are those without which it cannot be reached, on any graph."""
    nodes = [
        FlowNode(10 * i, 10, tuple(10 * t for t in targets if t < len(shape)), falls)
        for i, (targets, falls) in enumerate(shape)
    ]
    flow = build_flow(nodes)

    def reached(without: int | None) -> set[int]:
        seen: set[int] = set()
        stack = [0] if flow.blocks and without != 0 else []
        while stack:
            block = stack.pop()
            if block in seen or block == without:
                continue
            seen.add(block)
            stack.extend(flow.blocks[block].successors)
        return seen

    everything = reached(None)
    for block in flow.blocks:
        assert flow.reachable(block.index) is (block.index in everything)
        if block.index not in everything:
            continue
        chain, at = {block.index}, block.index
        while (above := flow.dominators[at]) is not None and above != at:
            chain.add(above)
            at = above
        expected = {d for d in everything if block.index not in reached(d)}
        assert chain == expected | {block.index}
    for loop in flow.loops:
        assert loop.blocks <= everything


@pytest.mark.parametrize("arch", ARCHS)
def test_real_code_divides_into_blocks_without_gap(arch: str) -> None:
    """Every instruction lies in exactly one block, and every loop has its header inside."""
    for name in OTHERS:
        for kernel in kernels(name, arch):
            flow = sass_flow(kernel)
            spans = [i for b in flow.blocks for i in range(b.first, b.last + 1)]
            assert spans == list(range(len(kernel.instructions)))
            for loop in flow.loops:
                assert loop.header in loop.own_blocks


@pytest.mark.parametrize("arch", ARCHS)
def test_loops_of_known_kernels_are_found(arch: str) -> None:
    """A loop with a break, a spin on a lock, a tile loop: each is there."""
    mandelbrot = sass_flow(kernels("mandelbrot", arch)[0])
    assert mandelbrot.loops
    locks = next(k for k in kernels("atomics", arch) if "locks" in k.name)
    assert sass_flow(locks).loops
    assert sass_flow(kernels("nbody", arch)[0]).loops


@pytest.mark.parametrize("arch", ARCHS)
def test_only_padding_is_dead(arch: str) -> None:
    """What no path reaches is a branch to itself or a NOP: no kernel's code is left out."""
    for name in OTHERS:
        for kernel in kernels(name, arch):
            flow = sass_flow(kernel)
            for block in flow.blocks:
                if flow.reachable(block.index):
                    continue
                for i in kernel.instructions[block.first : block.last + 1]:
                    padding = i.is_filler or i.target == i.address
                    assert padding, (kernel.name, hex(i.address), i.text)


@pytest.mark.parametrize("arch", ARCHS)
def test_shuffles_in_a_divergent_loop_are_in_the_loop(arch: str) -> None:
    """BRA.DIV leads to a slow path and goes on: the fast path with its shuffles counts."""
    kernel = next(k for k in kernels("divergent", arch) if "divergent" in k.name)
    assert any(i.branches_on_divergence for i in kernel.instructions)
    flow = sass_flow(kernel)
    inside = {i for loop in flow.loops for b in loop.blocks for i in span(flow, b)}
    shuffles = {n for n, i in enumerate(kernel.instructions) if i.name == "SHFL"}
    assert shuffles
    # On sm_80 to sm_89 the slow path calls a function for its one shuffle.
    assert len(shuffles - inside) <= 1
    assert len(shuffles) >= 26


def span(flow: FlowGraph, block: int) -> range:
    return range(flow.blocks[block].first, flow.blocks[block].last + 1)


@pytest.mark.parametrize("arch", ARCHS)
def test_recursion_is_no_loop(arch: str) -> None:
    """A function that calls itself goes round, but no back edge of a loop says so."""
    (kernel,) = kernels("calls", arch)
    calls = [i for i in kernel.instructions if i.name == "CALL" and i.target is not None]
    assert any(i.target is not None and i.target <= i.address for i in calls)
    flow = sass_flow(kernel)
    for loop in flow.loops:
        last = max(loop.blocks)
        assert kernel.instructions[flow.blocks[last].last].name != "CALL"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_switch_reaches_its_cases(arch: str) -> None:
    """A branch through a table has its targets from nvdisasm: no case counts as dead."""
    (kernel,) = kernels("calls", arch)
    flow = sass_flow(kernel)
    dead = [
        i
        for block in flow.blocks
        if not flow.reachable(block.index)
        for i in kernel.instructions[block.first : block.last + 1]
        if not i.is_filler
    ]
    assert all(i.name in ("BRA", "RET", "BRX", "BRXU", "EXIT", "YIELD") for i in dead), [
        i.text for i in dead
    ]
