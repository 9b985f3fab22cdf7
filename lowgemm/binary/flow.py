"""Control flow: basic blocks, dominators, loops. One implementation for every instruction set.

Dominators follow Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001). A loop is
a natural loop: a back edge to a block that dominates its source, and all blocks that reach the
source without passing that block; loops with one header count as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lowgemm.binary.instruction import INSTRUCTION_BYTES, Instruction
from lowgemm.binary.sass import SassKernel
from lowgemm.isa import Form

__all__ = [
    "Block",
    "FlowGraph",
    "FlowNode",
    "Loop",
    "build_flow",
    "hidden_entries",
    "sass_flow",
    "sass_node",
]


@dataclass(frozen=True, slots=True)
class FlowNode:
    """What control flow needs of an instruction.

    ``targets`` are the addresses it may jump to (not those it calls), ``falls_through`` whether the
    next instruction may follow it.
    """

    address: int
    size: int
    targets: tuple[int, ...] = ()
    falls_through: bool = True


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: instructions ``first`` to ``last`` (indices, both included)."""

    index: int
    first: int
    last: int
    start: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop.

    ``start`` and ``end`` are the lowest and one past the highest address of its blocks; ``depth``
    is 1 for an outermost loop; ``parent`` the index of the loop around it; ``own_blocks`` those in
    no inner loop.
    """

    index: int
    header: int
    blocks: frozenset[int]
    own_blocks: frozenset[int]
    start: int
    end: int
    depth: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """Blocks in the order of their addresses, and what follows from their edges.

    ``dominators`` holds each block's immediate dominator (its own index for an entry, None for a
    block that cannot be reached). ``loops`` are in the order of their addresses, outer before
    inner. ``irreducible`` tells of a cycle that is no natural loop: it has two entries.
    """

    blocks: tuple[Block, ...]
    dominators: tuple[int | None, ...]
    loops: tuple[Loop, ...]
    irreducible: bool

    def reachable(self, block: int) -> bool:
        """Whether a block can be reached from an entry."""
        return self.dominators[block] is not None


def build_flow(nodes: Sequence[FlowNode], entries: Iterable[int] = ()) -> FlowGraph:
    """Build the control-flow graph.

    Parameters
    ----------
    nodes
        The instructions, by ascending address.
    entries
        Addresses where execution may begin beside the first instruction.
    """
    if not nodes:
        return FlowGraph((), (), (), False)
    index_of = {node.address: i for i, node in enumerate(nodes)}
    blocks = _blocks(nodes, index_of, entries)
    block_at = {block.start: block.index for block in blocks}
    roots = [0, *(block_at[a] for a in entries if a in block_at and block_at[a] != 0)]
    order = _reverse_postorder(blocks, roots)
    dominators = _dominators(blocks, roots, order)
    back_edges, irreducible = _back_edges(blocks, dominators, order)
    return FlowGraph(blocks, dominators, _loops(blocks, set(order), back_edges), irreducible)


def hidden_entries(flow: FlowGraph, is_padding: Sequence[bool]) -> list[int]:
    """Addresses of blocks that nothing leads to: a branch whose targets nobody knows may.

    Parameters
    ----------
    flow
        The control flow as far as it is known.
    is_padding
        Whether each instruction does nothing; a block of such ones is no entry.
    """
    reached = {block.index for block in flow.blocks if flow.reachable(block.index)}
    entries = []
    for block in flow.blocks:
        if block.index in reached or all(is_padding[block.first : block.last + 1]):
            continue
        entries.append(block.start)
        stack = [block.index]
        while stack:
            index = stack.pop()
            if index not in reached:
                reached.add(index)
                stack.extend(flow.blocks[index].successors)
    return entries


def _blocks(
    nodes: Sequence[FlowNode], index_of: dict[int, int], entries: Iterable[int]
) -> tuple[Block, ...]:
    leaders = {0, *(index_of[a] for a in entries if a in index_of)}
    for i, node in enumerate(nodes):
        leaders.update(index_of[t] for t in node.targets if t in index_of)
        if (node.targets or not node.falls_through) and i + 1 < len(nodes):
            leaders.add(i + 1)
    firsts = sorted(leaders)
    number = {first: n for n, first in enumerate(firsts)}
    blocks = []
    for n, first in enumerate(firsts):
        last = (firsts[n + 1] if n + 1 < len(firsts) else len(nodes)) - 1
        node = nodes[last]
        successors = [number[index_of[t]] for t in node.targets if t in index_of]
        if node.falls_through and last + 1 < len(nodes):
            successors.append(number[last + 1])
        blocks.append(
            Block(
                index=n,
                first=first,
                last=last,
                start=nodes[first].address,
                end=node.address + node.size,
                successors=tuple(dict.fromkeys(successors)),
            )
        )
    return tuple(blocks)


def _reverse_postorder(blocks: Sequence[Block], roots: Sequence[int]) -> list[int]:
    seen: set[int] = set()
    order: list[int] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(blocks[root].successors))]
        while stack:
            block, successors = stack[-1]
            following = next((s for s in successors if s not in seen), None)
            if following is None:
                stack.pop()
                order.append(block)
            else:
                seen.add(following)
                stack.append((following, iter(blocks[following].successors)))
    return order[::-1]


def _dominators(
    blocks: Sequence[Block], roots: Sequence[int], order: Sequence[int]
) -> tuple[int | None, ...]:
    """Immediate dominators; -1 stands for a root above all entries while they are computed."""
    position = {-1: -1, **{block: i for i, block in enumerate(order)}}
    predecessors: dict[int, list[int]] = {block: [] for block in order}
    for root in roots:
        predecessors[root].append(-1)
    for block in order:
        for successor in blocks[block].successors:
            predecessors[successor].append(block)
    parent: dict[int, int] = {-1: -1}

    def meet(a: int, b: int) -> int:
        while a != b:
            while position[a] > position[b]:
                a = parent[a]
            while position[b] > position[a]:
                b = parent[b]
        return a

    changed = True
    while changed:
        changed = False
        for block in order:
            known = [p for p in predecessors[block] if p in parent]
            best = known[0]
            for other in known[1:]:
                best = meet(best, other)
            if parent.get(block) != best:
                parent[block] = best
                changed = True
    return tuple(
        None if block.index not in parent else block.index if parent[block.index] == -1
        else parent[block.index]
        for block in blocks
    )  # fmt: skip


def _dominates(dominators: Sequence[int | None], upper: int, lower: int) -> bool:
    at = lower
    while at != upper:
        above = dominators[at]
        if above is None or above == at:
            return False
        at = above
    return True


def _back_edges(
    blocks: Sequence[Block], dominators: Sequence[int | None], order: Sequence[int]
) -> tuple[list[tuple[int, int]], bool]:
    position = {block: i for i, block in enumerate(order)}
    edges, irreducible = [], False
    for block in order:
        for successor in blocks[block].successors:
            if position[successor] > position[block]:
                continue
            if _dominates(dominators, successor, block):
                edges.append((block, successor))
            else:
                irreducible = True
    return edges, irreducible


def _loops(
    blocks: Sequence[Block], reached: set[int], back_edges: Sequence[tuple[int, int]]
) -> tuple[Loop, ...]:
    predecessors: dict[int, list[int]] = {block: [] for block in reached}
    for block in reached:
        for successor in blocks[block].successors:
            predecessors[successor].append(block)
    bodies: dict[int, set[int]] = {}
    for source, header in back_edges:
        body = bodies.setdefault(header, {header})
        stack = [source]
        while stack:
            block_index = stack.pop()
            if block_index not in body:
                body.add(block_index)
                stack.extend(predecessors[block_index])
    parents, own = _nesting(bodies)
    # An outer loop begins no later than an inner one and has more blocks.
    headers = sorted(bodies, key=lambda header: (min(bodies[header]), -len(bodies[header])))
    number = {header: index for index, header in enumerate(headers)}
    loops: list[Loop] = []
    for header in headers:
        parent = parents.get(header)
        loops.append(
            Loop(
                index=number[header],
                header=header,
                blocks=frozenset(bodies[header]),
                own_blocks=frozenset(own[header]),
                start=min(blocks[b].start for b in bodies[header]),
                end=max(blocks[b].end for b in bodies[header]),
                depth=1 if parent is None else loops[number[parent]].depth + 1,
                parent=None if parent is None else number[parent],
            )
        )
    return tuple(loops)


def _nesting(bodies: dict[int, set[int]]) -> tuple[dict[int, int], dict[int, set[int]]]:
    """The header of the loop around each loop, and each loop's blocks that no inner one has.

    Natural loops with different headers are disjoint or nested: taken by size, the first that holds
    a header is the loop directly around it.
    """
    parents: dict[int, int] = {}
    own: dict[int, set[int]] = {}
    taken: set[int] = set()
    outermost: list[int] = []
    for header in sorted(bodies, key=lambda header: len(bodies[header])):
        body = bodies[header]
        own[header] = body - taken
        taken |= body
        inside = [inner for inner in outermost if inner in body]
        parents.update(dict.fromkeys(inside, header))
        outermost = [other for other in outermost if other not in body] + [header]
    return parents, own


# ---- SASS

_NO_PREDICATE = 7
_BY_TABLE = ("BRX", "BRXU", "JMX")
_ENDS = frozenset(("EXIT", "RET", "KILL", *_BY_TABLE))


def sass_flow(kernel: SassKernel) -> FlowGraph:
    """The control flow of a kernel's machine code, with the functions behind it.

    Those functions count as reached: calls through a register do not tell where they go. Where a
    branch through a table does not either, so does every block that nothing else leads to.
    """
    instructions = kernel.instructions
    called = (i.target for i in instructions if i.name == "CALL" and i.target is not None)
    entries = dict.fromkeys((*kernel.functions, *called))
    nodes = [sass_node(instruction) for instruction in instructions]
    flow = build_flow(nodes, entries)
    if all(i.table_targets for i in instructions if i.name in _BY_TABLE):
        return flow
    # Behind the last EXIT stands a branch to itself.
    is_padding = [i.is_filler or i.target == i.address for i in instructions]
    return build_flow(nodes, [*entries, *hidden_entries(flow, is_padding)])


def sass_node(instruction: Instruction) -> FlowNode:
    targets = instruction.table_targets
    # A call comes back: its target is an entry of its own, not an edge that could close a loop.
    if instruction.name == "BRA" and instruction.target is not None and not instruction.is_filler:
        targets = (instruction.target, *targets)
    unconditional = not instruction.is_conditional and not instruction.is_filler
    decided = _has_operand_predicate(instruction) or instruction.branches_on_divergence
    jumps = instruction.name == "BRA" and not decided
    ends = unconditional and (instruction.name in _ENDS or jumps)
    return FlowNode(instruction.address, INSTRUCTION_BYTES, targets, not ends)


def _has_operand_predicate(instruction: Instruction) -> bool:
    """Whether a branch has a predicate among its operands, beside the guard; 7 means none.

    BRA.U's uniform one stands in bits 24-26, BRA's in bits 87-89.
    """
    if instruction.form is Form.Ri:
        return instruction.low >> 24 & 7 != _NO_PREDICATE
    return instruction.high >> 23 & 7 != _NO_PREDICATE
