"""Read the code of PTX: each kernel's and function's instructions, their lines and control flow.

PTX ISA, "Syntax", "Directives" and "Control Flow Instructions". Instruction names are not checked:
what looks like an instruction is one, so that a newer PTX is read as well.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

from lowgemm.binary.escapes import unescape
from lowgemm.binary.flow import FlowGraph, FlowNode, build_flow
from lowgemm.binary.instruction import SourceLine
from lowgemm.errors import PtxError

__all__ = ["PtxFunction", "PtxInstruction", "PtxModule", "PtxShared", "ptx_flow", "read_ptx"]

# Each quote and each comment mark begins a match, however it ends: so this takes linear time.
_STRING_OR_COMMENT = re.compile(
    r'"(?:[^"\\\n]|\\[^\n])*+(?:"|\\?(?=\n|\Z))|//[^\n]*+|/\*.*?(?:\*/|\Z)', re.DOTALL
)
_FILE = re.compile(r"^[ \t]*\.file\s+(\d{1,9})\s+(?=\")", re.MULTILINE)
_TARGET = re.compile(r"^[ \t]*\.target\s+(\w+)", re.MULTILINE)
_VERSION = re.compile(r"(?<![\w$%.])\.version\b")
_ITEM = re.compile(r"(?<![\w$%.])\.(entry|func|shared|section)\b")
_NAME = re.compile(r"[A-Za-z_$%][\w$%.]*")
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([A-Za-z_$%][\w$%]*)\s*:(?!:)")
_TABLE = re.compile(r"\.(branchtargets|calltargets|callprototype)\b")
_LOC = re.compile(r"\.(?:loc|file)\b([^\n]*)")
_LOC_FIELDS = re.compile(r"\s*(\d{1,9})\s+(\d{1,9})\b(?:.*\binlined_at\s+(\d{1,9})\s+(\d{1,9})\b)?")
_INSTRUCTION = re.compile(r"(?:@ ?(!?) ?([\w$%.]+) )?([A-Za-z][\w.:]*+)(?![$%]) ?(.*)")
_DECLARED = re.compile(
    r"([A-Za-z_$%][\w$%]*) ?(?:< ?(\d{1,9}) ?>)?((?: ?\[ ?(?:\d{1,12})? ?\])*)(?: ?=.*)?"
)
_DECLARATION = re.compile(r"\.(?:reg|shared)((?: ?\.[a-z]\w*(?: \d+(?= ))?)*) ?\.([a-z]\w*) (.*)")
_ALIGN = re.compile(r"\.align\s+(\d{1,9})\b")
_SIZE = re.compile(r"(?:[bsuf]|bf|tf)(8|16|32|64|128)(?:x([24]))?")
_PARENTHESIS = re.compile(r"[()]")
_ATTRIBUTE = re.compile(r"\.attribute\b")
# What ends a function's head; a .pragma in it has a semicolon of its own.
_BODY = re.compile(r"(\.pragma\b[^;{]*)?([;{])")
_IDENTIFIER = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")
_BRACKET_SPACE = re.compile(r"([(\[{]) | ([)\]}])")
_MAX_NESTING = 100
_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap"))
_T = TypeVar("_T")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction.

    ``index`` counts the function's instructions from 0; ``ptx_line`` is its line in the PTX, from
    1. ``opcode`` is as written, with its modifiers (``"ld.shared.v4.f32"``). ``predicate`` is
    ``"%p1"`` or ``"!%p1"``, None where it always executes. ``targets`` are the indices that it may
    branch to. ``line`` is the source line, ``inlined_at`` where the function that holds that line
    was inlined.
    """

    index: int
    ptx_line: int
    opcode: str
    operands: tuple[str, ...]
    predicate: str | None = None
    labels: tuple[str, ...] = ()
    targets: tuple[int, ...] = ()
    line: SourceLine | None = None
    inlined_at: SourceLine | None = None

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the name, in order: ``("shared", "v4", "f32")``."""
        return tuple(self.opcode.split(".")[1:])

    @property
    def text(self) -> str:
        """The instruction on one line."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)}".rstrip()

    @property
    def falls_through(self) -> bool:
        """Whether the next instruction may follow it."""
        return self.name not in _ENDS or self.predicate is not None


@dataclass(frozen=True, slots=True)
class PtxShared:
    """A variable in shared memory; ``size_bytes`` is 0 where the launch gives the size."""

    name: str
    size_bytes: int
    align_bytes: int = 1


@dataclass(frozen=True, slots=True)
class PtxFunction:
    """A kernel (``.entry``) or a device function (``.func``) with its code.

    ``first_line`` and ``last_line`` are those of the PTX, from 1. ``registers`` are the virtual
    registers declared, by type; ``shared`` the variables in shared memory declared inside;
    ``references`` the names of functions and module variables that its operands use.
    """

    name: str
    is_entry: bool
    first_line: int
    last_line: int
    instructions: tuple[PtxInstruction, ...] = field(repr=False)
    registers: Mapping[str, int]
    shared: tuple[PtxShared, ...]
    references: frozenset[str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PtxModule:
    """A PTX text: its functions in order, and the shared memory declared outside of them.

    ``target`` is the architecture as ``.target`` names it, empty where it does not.
    """

    target: str
    functions: tuple[PtxFunction, ...]
    shared: tuple[PtxShared, ...]

    def function(self, name: str) -> PtxFunction | None:
        """The kernel or function of that (mangled) name, if its code is here."""
        return next((function for function in self.functions if function.name == name), None)

    def reached(self, name: str) -> tuple[PtxFunction, ...]:
        """A function and those that it calls or takes the address of, and those that they do."""
        named = {function.name: function for function in self.functions}
        found: dict[str, PtxFunction] = {}
        pending = [name]
        while pending:
            function = named.get(pending.pop())
            if function is not None and function.name not in found:
                found[function.name] = function
                pending.extend(sorted(function.references & named.keys()))
        return tuple(found.values())

    def shared_bytes(self, name: str) -> int:
        """Bytes of shared memory declared for a kernel, its functions' included.

        Variables lie in the order of their declarations, each at a multiple of its alignment; what
        the launch adds comes last, and its alignment pads what stands before.
        """
        functions = self.reached(name)
        used = {reference for function in functions for reference in function.references}
        inside = [variable for function in functions for variable in function.shared]
        outside = [variable for variable in self.shared if variable.name in used]
        variables = sorted([*outside, *inside], key=lambda variable: not variable.size_bytes)
        end = 0
        for variable in variables:
            end = -(-end // variable.align_bytes) * variable.align_bytes + variable.size_bytes
        return end


def read_ptx(text: str) -> PtxModule:
    """Read the code of every ``.entry`` and ``.func`` of a PTX text.

    Parameters
    ----------
    text
        The PTX. Declarations without a body are left out.

    Raises
    ------
    PtxError
        The text is no PTX, is cut off, or branches to a label that is not there; the message names
        the line.
    """
    source = _Source(text)
    if not _VERSION.search(source.masked):
        raise PtxError("the text has no .version directive: it is no PTX", "hand over NVRTC's PTX")
    functions: list[PtxFunction] = []
    shared: list[PtxShared] = []
    position = 0
    while (item := _ITEM.search(source.masked, position)) is not None:
        position = item.end()
        if item[1] == "section":
            position = source.skip_section(position)
        elif item[1] == "shared":
            position, statement = source.statement(item.start())
            shared += _shared(statement)
        else:
            position, function = _function(source, item)
            functions += [function] if function is not None else []
    target = _TARGET.search(source.masked)
    return PtxModule(target[1] if target else "", tuple(functions), tuple(shared))


def ptx_flow(instructions: Sequence[PtxInstruction]) -> FlowGraph:
    """The control flow of a function; an address is an instruction's index."""
    return build_flow([FlowNode(i.index, 1, i.targets, i.falls_through) for i in instructions])


# ---- the text


def _blank(match: re.Match[str]) -> str:
    return "".join(char if char == "\n" else " " for char in match[0])


def _mask(match: re.Match[str]) -> str:
    """A comment becomes blanks, a string keeps its quotes: nothing moves."""
    found = match[0]
    return f'"{" " * (len(found) - 2)}"' if found[0] == '"' and len(found) > 1 else _blank(match)


class _Source:
    """A PTX text without comments and the contents of strings, and where its lines begin."""

    def __init__(self, text: str) -> None:
        self.masked = _STRING_OR_COMMENT.sub(_mask, text)
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.files = {
            int(found[1]): _string_at(text, found.end()) for found in _FILE.finditer(self.masked)
        }

    def line(self, position: int) -> int:
        """The number of a position's line, from 1."""
        return bisect_right(self._starts, position)

    def skip(self, position: int) -> int:
        """The next position that is not blank."""
        found = _SPACE.match(self.masked, position)
        return found.end() if found else position

    def error(self, position: int, what: str) -> PtxError:
        return PtxError(
            f"line {self.line(position)} of the PTX: {what}",
            "the PTX is cut off or damaged: compile again",
        )

    def statement(self, position: int) -> tuple[int, str]:
        """The text up to the next semicolon, and the position behind it."""
        end = self.masked.find(";", position)
        if end < 0:
            raise self.error(position, "a statement does not end")
        statement = self.masked[position:end]
        if not _is_balanced(statement):
            raise self.error(position, "brackets do not match")
        return end + 1, _BRACKET_SPACE.sub(r"\1\2", " ".join(statement.split()))

    def skip_section(self, position: int) -> int:
        """The position behind a section of debugging data."""
        end = self.masked.find("}", position)
        if end < 0:
            raise self.error(position, "a section does not end")
        return end + 1

    def source_line(self, file: str, line: str) -> SourceLine | None:
        """What two fields of ``.loc`` name; line 0 is code that belongs to none."""
        name = self.files.get(int(file))
        return SourceLine(name, int(line)) if name is not None and int(line) else None


def _string_at(text: str, position: int) -> str:
    found = _STRING_OR_COMMENT.match(text, position)
    return unescape(found[0][1:-1]) if found else ""


def _is_balanced(text: str) -> bool:
    expected: list[str] = []
    for char in text:
        if char in _OPENING:
            expected.append(_CLOSING[_OPENING.index(char)])
        elif char in _CLOSING and (not expected or expected.pop() != char):
            return False
    return not expected


def _split(text: str) -> tuple[str, ...]:
    """Split operands at the commas outside of brackets."""
    pieces, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            pieces.append(text[begin:at].strip())
            begin = at + 1
    pieces.append(text[begin:].strip())
    return tuple(piece for piece in pieces if piece)


# ---- functions


def _function(source: _Source, item: re.Match[str]) -> tuple[int, PtxFunction | None]:
    """A function and the position behind it; None for a declaration without a body."""
    position = _behind_attributes(source, item.end())
    if source.masked.startswith("(", position):  # what a .func returns
        position = source.skip(_behind_parenthesis(source, position))
    name = _NAME.match(source.masked, position)
    if name is None:
        raise source.error(item.start(), f".{item[1]} has no name")
    position = source.skip(name.end())
    if source.masked.startswith("(", position):
        position = _behind_parenthesis(source, position)
    body = _BODY.search(source.masked, position)
    while body is not None and body[1]:  # a .pragma
        body = _BODY.search(source.masked, body.end())
    if body is None:
        raise source.error(item.start(), f"{name[0]} has no body")
    if body[2] == ";":
        return body.end(), None
    reader = _Body(source, body.end())
    end = reader.read()
    return end, reader.function(name[0], item[1] == "entry", source.line(item.start()))


def _behind_attributes(source: _Source, position: int) -> int:
    position = source.skip(position)
    while (found := _ATTRIBUTE.match(source.masked, position)) is not None:
        position = source.skip(found.end())
        if source.masked.startswith("(", position):
            position = source.skip(_behind_parenthesis(source, position))
    return position


def _behind_parenthesis(source: _Source, position: int) -> int:
    """The position behind a parenthesis, which may hold others."""
    depth = 0
    for found in _PARENTHESIS.finditer(source.masked, position):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    raise source.error(position, "parameters do not end")


@dataclass(slots=True)
class _Draft:
    """An instruction whose branch targets are not known yet."""

    ptx_line: int
    position: int
    predicate: str | None
    opcode: str
    operands: tuple[str, ...]
    labels: tuple[str, ...]
    line: SourceLine | None
    inlined_at: SourceLine | None
    scope: int


class _Body:
    """Reads the body of one function.

    Labels count within their braces and those inside: inline assembly repeats its labels in braces
    of its own.
    """

    def __init__(self, source: _Source, position: int) -> None:
        self._source = source
        self._position = position
        self._drafts: list[_Draft] = []
        self._parents: list[int] = [-1]
        self._depths: list[int] = [0]
        self._labels: dict[tuple[int, str], int] = {}
        self._tables: dict[tuple[int, str], tuple[str, ...]] = {}
        self._pending: list[str] = []
        self._scope = 0
        self._line: SourceLine | None = None
        self._inlined_at: SourceLine | None = None
        self._registers: Counter[str] = Counter()
        self._shared: list[PtxShared] = []

    def read(self) -> int:
        """Read up to the closing brace; the position behind it."""
        source, masked = self._source, self._source.masked
        begin = self._position
        while True:
            position = self._position = source.skip(self._position)
            char = masked[position : position + 1]
            if not char:
                raise source.error(begin, "the body that begins here does not end")
            if char == "}":
                self._position += 1
                self._scope = self._parents[self._scope]
                if self._scope < 0:
                    return self._position
            elif char == "{":
                self._position += 1
                self._open()
            elif char == ";":
                self._position += 1
            elif (found := _LOC.match(masked, position)) is not None:
                self._position = found.end()
                self._locate(found)
            elif (found := _LABEL.match(masked, position)) is not None:
                self._position = found.end()
                self._label(found[1])
            else:
                self._position, statement = source.statement(position)
                self._statement(position, statement)

    def function(self, name: str, is_entry: bool, line: int) -> PtxFunction:
        """What was read."""
        instructions = tuple(self._finished(i, draft) for i, draft in enumerate(self._drafts))
        return PtxFunction(
            name=name,
            is_entry=is_entry,
            first_line=line,
            last_line=self._source.line(self._position - 1),
            instructions=instructions,
            registers=dict(sorted(self._registers.items())),
            shared=tuple(self._shared),
            references=frozenset(_references(instructions)),
        )

    def _open(self) -> None:
        depth = self._depths[self._scope] + 1
        if depth > _MAX_NESTING:
            raise self._source.error(self._position, f"more than {_MAX_NESTING} nested braces")
        self._parents.append(self._scope)
        self._depths.append(depth)
        self._scope = len(self._parents) - 1

    def _locate(self, directive: re.Match[str]) -> None:
        fields = _LOC_FIELDS.match(directive[1])
        if fields is None or not directive[0].startswith(".loc"):
            return
        self._line = self._source.source_line(fields[1], fields[2])
        inlined = fields[3] is not None
        self._inlined_at = self._source.source_line(fields[3], fields[4]) if inlined else None

    def _label(self, name: str) -> None:
        position = self._source.skip(self._position)
        table = _TABLE.match(self._source.masked, position)
        if table is None:
            self._labels[self._scope, name] = len(self._drafts)
            self._pending.append(name)
            return
        self._position, statement = self._source.statement(table.end())
        if table[1] == "branchtargets":
            self._tables[self._scope, name] = _split(statement)

    def _statement(self, position: int, statement: str) -> None:
        if statement.startswith(".reg "):
            self._registers.update(_registers(statement))
        elif statement.startswith(".shared "):
            self._shared += _shared(statement)
        elif not statement.startswith("."):
            self._instruction(position, statement)

    def _instruction(self, position: int, statement: str) -> None:
        found = _INSTRUCTION.fullmatch(statement)
        if found is None:
            raise self._source.error(position, f"no instruction: {statement[:60]!r}")
        self._drafts.append(
            _Draft(
                ptx_line=self._source.line(position),
                position=position,
                predicate=found[1] + found[2] if found[2] else None,
                opcode=found[3].rstrip("."),
                operands=_split(found[4]),
                labels=tuple(self._pending),
                line=self._line,
                inlined_at=self._inlined_at,
                scope=self._scope,
            )
        )
        self._pending = []

    def _finished(self, index: int, draft: _Draft) -> PtxInstruction:
        return PtxInstruction(
            index=index,
            ptx_line=draft.ptx_line,
            opcode=draft.opcode,
            operands=draft.operands,
            predicate=draft.predicate,
            labels=draft.labels,
            targets=self._targets(draft),
            line=draft.line,
            inlined_at=draft.inlined_at,
        )

    def _targets(self, draft: _Draft) -> tuple[int, ...]:
        name = draft.opcode.partition(".")[0]
        if name not in ("bra", "brx"):
            return ()
        labels: tuple[str, ...] | None = draft.operands[-1:]
        if name == "brx" and labels:
            labels = self._visible(self._tables, draft.scope, labels[0])
        found = [self._visible(self._labels, draft.scope, label) for label in labels or ()]
        targets = [target for target in found if target is not None]
        if not targets or len(targets) != len(found):
            raise self._source.error(
                draft.position, f"{draft.opcode} {', '.join(draft.operands)} leads nowhere"
            )
        return tuple(dict.fromkeys(targets))

    def _visible(self, names: Mapping[tuple[int, str], _T], scope: int, name: str) -> _T | None:
        while scope >= 0:
            if (scope, name) in names:
                return names[scope, name]
            scope = self._parents[scope]
        return None


# ---- declarations


def _registers(statement: str) -> Counter[str]:
    """Virtual registers by type; those of a vector count one by one."""
    found: Counter[str] = Counter()
    for _, count, _, size, type_name in _declared(statement):
        found[type_name] += count * size
    return found


def _shared(statement: str) -> Iterator[PtxShared]:
    for name, _, extents, size, type_name in _declared(statement):
        width = _SIZE.fullmatch(type_name)
        bits = int(width[1]) * int(width[2] or 1) if width else 0
        align = _ALIGN.search(statement)
        alignment = int(align[1]) if align else max(1, bits // 8 * size)
        yield PtxShared(name, bits // 8 * size * prod(extents), max(1, alignment))


def _declared(statement: str) -> Iterator[tuple[str, int, list[int], int, str]]:
    """What ``.reg`` or ``.shared`` declares: name, count, extents, vector length and type.

    An extent that is left open is 0.
    """
    declaration = _DECLARATION.fullmatch(statement)
    if declaration is None:
        return
    vector = re.search(r"\.v([248])\b", declaration[1])
    for piece in _split(declaration[3]):
        found = _DECLARED.fullmatch(piece)
        if found is not None:
            extents = [int(extent or 0) for extent in re.findall(r"\[ ?(\d*) ?\]", found[3])]
            count = int(found[2] or 1)
            yield found[1], count, extents, int(vector[1]) if vector else 1, declaration[2]


def _references(instructions: Sequence[PtxInstruction]) -> Iterator[str]:
    for instruction in instructions:
        for operand in instruction.operands:
            yield from _IDENTIFIER.findall(operand)
