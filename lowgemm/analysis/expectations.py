"""Expectations of machine code: read them, judge them, show what stands there instead.

An expectation is ``path comparison number``, such as ``hot_loop.LDS.128 == 4``:

* ``registers <= 128``: a figure of the kernel (:data:`KERNEL_FIGURES`);
* ``mix.LDG.128 >= 2``: how often an instruction occurs in the kernel. Without a width all widths
  count: ``mix.STL == 0``;
* ``hot_loop.FFMA == 512``, ``loops[0].ffma_share >= 0.9``: the same of a loop without the loops
  inside it (:data:`LOOP_FIGURES`). ``mix.`` may be left out everywhere.

``[sm_80, sm_86] registers <= 168`` holds on these architectures alone, and there replaces what is
said without architectures of the same path and kernel in the same direction: ``<`` and ``<=`` are
one, ``>`` and ``>=`` another, ``==`` and ``!=`` each their own.

In a source file expectations begin a comment or a line of one, in any case of letters, with ``;``
between several, the kernel's name where they are not for all, and a remark after ``//``::

    // expect: spill_store_bytes == 0; registers <= 128
    // expect scale<4>: hot_loop.LDS.128 == 4  // one for each row

Overloads are named with their parameters (``scale(float*)``) or all at once, kernels of an
anonymous namespace without it.

What looks like an expectation and cannot be read as one, in a remark as well, is an error.

RED and REDG, the names of one operation on different architectures, mean either. In a kernel with
unknown opcodes ``X == 0``, ``X <= n`` and ``X < n`` do not pass for a number of instructions, as an
unknown one may be an X, unless an expectation of ``unknown_opcodes`` says how many may be there:
``unknown_opcodes >= 0`` for any number. The same holds of all that is expected to be at most so
much in a kernel of relocatable code that calls functions which are linked in later:
``external_calls >= 0`` says that these may do what they like.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from lowgemm.analysis.sass import LoopReport, SassReport
from lowgemm.binary.instruction import SourceLine
from lowgemm.binary.mangled import ANONYMOUS
from lowgemm.errors import ExpectationError, SourceNotFoundError, UnknownArchitectureError
from lowgemm.hardware import Architecture
from lowgemm.isa import known_opcodes

__all__ = [
    "HOT_LOOP",
    "KERNEL_FIGURES",
    "LOOP_FIGURES",
    "Expectation",
    "PathParts",
    "Verdict",
    "allows_external",
    "allows_unknown",
    "figure",
    "instances",
    "judge",
    "parse_clauses",
    "parse_expectation",
    "parse_expectations",
    "read_expectations",
    "read_path",
    "select",
]

#: What may be expected of a kernel, beside the counts of its instructions.
KERNEL_FIGURES = (
    "registers",
    "registers_live",
    "shared_bytes",
    "stack_bytes",
    "spill_store_bytes",
    "spill_load_bytes",
    "instructions",
    "ffma_share",
    "moves",
    "code_bytes",
    "loops",
    "unknown_opcodes",
    "external_calls",
)
#: What may be expected of a loop, beside the counts of its instructions.
LOOP_FIGURES = (
    "instructions",
    "ffma_share",
    "moves",
    "conflict_cycles",
    "registers_live",
    "blocks",
    "depth",
)

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_EXPECTATION = re.compile(r"(?:\[([^\]]*)\]\s*)?([^\s=!<>]+)\s*(==|!=|<=|>=|<|>)\s*(\S+)")
_PATH = re.compile(r"(?:(hot_loop|loops\[([0-9]{1,6})\])\.)?(mix\.)?(\w+)(?:\.([0-9]{1,4}))?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_NAME = re.compile(
    r"\s*((?:\(anonymous namespace\)|[A-Za-z_]\w*)(?:::(?:\(anonymous namespace\)|\w+))*)?"
)
_COLON = re.compile(r"\s*:(?!:)")
_COMPARES = re.compile(r"==|!=|<=|>=|≤|≥|\s[<>]\s*[0-9]")
# What may hold the beginning of a comment and is none, before the comments themselves.
_TOKEN = re.compile(
    r"""\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"   # a raw string
    | "(?:\\.|[^"\\\n])*" | \b[0-9](?:'?[\w.])* | '(?:\\.|[^'\\\n])*'  # 1'000 is a number
    | (?P<line>//(?:\\\n|[^\n])*) | (?P<block>/\*.*?(?:\*/|\Z))""",
    re.DOTALL | re.VERBOSE,
)
_WORD = re.compile(r"\bexpect(s|ed|ing|ations?)?\b(?!-)", re.IGNORECASE)
_CLAUSE = re.compile(r"(?:\[[^\]]*\]\s*)?([^\s=!<>≤≥]+)\s*[=!<>≤≥]")
_CLAUSE_WITHIN = re.compile(
    r"(?<![\w.\]])[A-Za-z_][\w.\[\]]*\s*(?:[=!<>]=|[<>≤≥])\s*-?[\d.]+\s*(?:$|[,;)]|and\b)"
)
_FIRST_WORD = re.compile(r"[A-Za-z]+")
_LEADING_WORD = re.compile(r"\W*\w+[,:]?\s+")
# Of the resemblance of a word to "expect", and what brackets close.
_NEAR = 0.8
_CLOSES = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DASHES = re.compile(r"\s*[-–—.,~|>*]+\s*(?:\w+\s*:\s+)?")
# What may stand between clauses, and at the end of a line that goes on.
_BETWEEN = ";,\\ \t"
_LINE_ENDS = "\\ \t"
# What may stand before the first word of a comment: its marks, and those of lists and tags.
_MARKS = "/*!<#-+@\\ \t\f\v"
# Names of one operation: sm_70 to sm_89 say RED what later architectures say REDG.
_SAME = (("RED", "REDG"),)
_WIDTHS = (8, 16, 32, 64, 128)
# From sm_100 on.
_WIDE, _WIDE_BITS = ("LDG", "STG"), 256
_WIDTHS_ALONE = (
    "only loads, stores and copies are told apart, by bits: shapes, types and other modifiers "
    "(HMMA.16816, LDSM.x4) are not"
)
_HOW = "write a path, a comparison and a number, as in hot_loop.LDS.128 == 4"


@dataclass(frozen=True, slots=True)
class Expectation:
    """What shall hold of a kernel's machine code.

    ``archs`` is empty where it shall hold on every architecture, ``kernel`` None where it shall
    hold for every kernel. ``origin`` is the line that says so, where a file does.
    """

    path: str
    comparison: str
    wanted: float
    archs: tuple[Architecture, ...] = ()
    kernel: str | None = None
    origin: SourceLine | None = None

    def __str__(self) -> str:
        archs = f"[{', '.join(map(str, self.archs))}] " if self.archs else ""
        return f"{archs}{self.path} {self.comparison} {self.wanted}"

    def concerns(self, report: SassReport) -> bool:
        """Whether it speaks of this kernel on this architecture."""
        return self.speaks_of(report) and self.holds_on(report.arch)

    def speaks_of(self, report: SassReport) -> bool:
        """Whether it speaks of this kernel, by any of its names."""
        return any(map(self.names, report.names))

    def names(self, kernel: str) -> bool:
        """Whether it speaks of a kernel of that name: an instance, or all of a template."""
        if self.kernel is None:
            return True
        wanted, actual = _squeezed(self.kernel), _squeezed(kernel)
        return wanted == actual or wanted == actual.partition("<")[0]

    def _names_instance(self, report: SassReport) -> bool:
        return self.kernel is not None and _squeezed(self.kernel) in map(_squeezed, report.names)

    def holds_on(self, spelling: str) -> bool:
        """Whether it speaks of this architecture."""
        arch = Architecture.parse(spelling)
        return not self.archs or arch in self.archs or replace(arch, suffix="") in self.archs


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an expectation holds for a kernel on an architecture, and why not.

    ``actual`` is None where there is nothing to compare: the loop is not there, say.
    """

    expectation: Expectation
    kernel: str
    arch: str
    actual: float | None
    passed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PathParts:
    """A path, taken apart: of which loop, and a figure or an instruction of a width.

    ``loop`` is None for the kernel and -1 for the hot loop. ``width_bits`` is None for all widths.
    """

    loop: int | None
    name: str
    is_mnemonic: bool
    width_bits: int | None = None


#: The number of the hot loop in a path taken apart.
HOT_LOOP = -1


# ---- read


def parse_expectation(text: str) -> Expectation:
    """Read one expectation, such as ``registers <= 128`` or ``scale<4>: registers <= 128``.

    Raises
    ------
    ExpectationError
        The text is none, or names a figure or an instruction that does not exist.
    """
    if not isinstance(text, str):
        raise ExpectationError(f"{text!r} is no expectation but a {type(text).__name__}", _HOW)
    kernel, said = _body(text) or (None, text)
    match = _EXPECTATION.fullmatch(said.strip())
    if match is None:
        raise ExpectationError(f"{text.strip()!r} is no expectation", _HOW)
    archs, path, comparison, number = match.groups()
    read_path(path)
    value, chosen = _number(number, text), _archs(archs, text)
    return Expectation(path, comparison, value, chosen, kernel)


def _body(text: str) -> tuple[str | None, str] | None:
    """What is said behind a colon, and the kernel's name before it; None where there is no colon.

    The name may have template arguments and, of an overload, parameters: both in brackets, within
    which a colon is part of the name.
    """
    match = _NAME.match(text)
    assert match is not None  # all of it may be missing
    end = match.end()
    for bracket in "<(" if match[1] else "":
        opening = len(text) - len(text[end:].lstrip())
        if text[opening : opening + 1] == bracket:
            end = _closing(text, opening)
    colon = _COLON.match(text, end)
    if colon is None:
        return None
    return text[:end].strip() or None, text[colon.end() :]


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens there has been closed; the text's end if it never is."""
    waiting: list[str] = []
    for at in range(opening, len(text)):
        letter, inner = text[at], waiting[-1] if waiting else ""
        if letter == inner:
            waiting.pop()
            if not waiting:
                return at + 1
        # In other brackets < and > compare.
        elif letter in _CLOSES and (letter != "<" or inner in ("", ">")):
            waiting.append(_CLOSES[letter])
    return len(text)


def parse_clauses(text: str) -> tuple[Expectation, ...]:
    """Read expectations with ``;`` between them; a kernel's name holds until the next.

    Raises
    ------
    ExpectationError
        One of them is none; see :func:`parse_expectation`.
    """
    if not isinstance(text, str):
        return (parse_expectation(text),)  # which says what it is
    found: list[Expectation] = []
    for clause in [part for part in text.split(";") if part.strip()] or [text]:
        item = parse_expectation(clause)
        kernel = item.kernel or (found[-1].kernel if found else None)
        found.append(replace(item, kernel=kernel))
    return tuple(found)


def _number(number: str, text: str) -> float:
    value = float(number) if _NUMBER.fullmatch(number) else math.nan
    if not math.isfinite(value):
        raise ExpectationError(f"{number!r} in {text.strip()!r} is no number", _HOW)
    return int(number) if number.lstrip("-").isdigit() else value


def _archs(names: str | None, text: str) -> tuple[Architecture, ...]:
    if names is None:
        return ()
    try:
        archs = tuple(Architecture.parse(name) for name in names.split(","))
    except UnknownArchitectureError as error:
        raise ExpectationError(f"{text.strip()!r}: {error.what}", error.remedy) from error
    for name, arch in zip(names.split(","), archs, strict=True):
        if not arch.exists:
            raise ExpectationError(
                f"{text.strip()!r}: there is no architecture {name.strip()!r}",
                "name one that NVRTC compiles for, such as sm_80, sm_90, sm_90a or sm_120f",
            )
    return archs


@lru_cache(maxsize=1024)
def read_path(path: str) -> PathParts:
    """Take a path apart.

    Raises
    ------
    ExpectationError
        There is no such figure or instruction; the error lists what there is.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise ExpectationError(
            f"{path!r} is no path",
            "write a figure (registers), or an instruction of a kernel (mix.LDG.128) or a loop "
            f"(hot_loop.LDS.128, loops[0].FFMA); {_WIDTHS_ALONE}",
        )
    scope, index, _, name, width = match.groups()
    loop = None if scope is None else HOT_LOOP if index is None else int(index)
    figures = KERNEL_FIGURES if loop is None else LOOP_FIGURES
    if name in figures and match[3] is None and width is None:
        return PathParts(loop, name, is_mnemonic=False)
    known = _mnemonics()
    if name not in known:
        raise _no_such(path, name, figures)
    if width is None:
        return PathParts(loop, name, is_mnemonic=True)
    widths = (*_WIDTHS, _WIDE_BITS) if name in _WIDE else _WIDTHS if known[name] else ()
    if int(width) not in widths:
        there = ", ".join(map(str, widths))
        raise ExpectationError(
            f"{path!r}: {name} has no width of {width} bits",
            f"its widths: {there}" if known[name] else f"write {name} alone; {_WIDTHS_ALONE}",
        )
    return PathParts(loop, name, is_mnemonic=True, width_bits=int(width))


def _no_such(path: str, name: str, figures: Sequence[str]) -> ExpectationError:
    close = difflib.get_close_matches(name, [*figures, *_mnemonics()], n=3)
    hint = f"; {' or '.join(close)} may be meant" if close else ""
    return ExpectationError(
        f"{path!r}: there is neither a figure nor an instruction {name!r}{hint}",
        f"figures are {', '.join(figures)}; instructions go by their name and width (FFMA, "
        "LDS.128), without further modifiers",
    )


@lru_cache(maxsize=1)
def _mnemonics() -> dict[str, bool]:
    """Every operation of every architecture, and whether its width is part of its count."""
    return {known.name: known.is_sized for known in known_opcodes()}


def parse_expectations(text: str, file: str = "") -> tuple[Expectation, ...]:
    """Read the expectations in the comments of a source text.

    Parameters
    ----------
    text
        The source.
    file
        Its name, for messages.

    Raises
    ------
    ExpectationError
        A comment looks like an expectation and is none; the message names its line.
    """
    found: list[Expectation] = []
    last, unfinished, path = -1, False, ""
    for number, comment in _comments(text):
        origin = SourceLine(file, number)
        here = list(_of_comment(comment, origin))
        said = comment.strip(_BETWEEN)
        if here:
            found += here
            last, unfinished, path = number, comment.rstrip(_LINE_ENDS).endswith((";", ",")), ""
        elif number == last + 1:
            if _goes_on(f"{path} {said}".strip(), unfinished):
                raise _unread(origin, comment, "begin each line with expect:")
            # Nothing, or a path whose comparison may be on the next line.
            path = said if _is_path(said) else ""
            if path or (unfinished and not said):
                last = number
    return tuple(found)


def _is_path(text: str) -> bool:
    try:
        read_path(text)
    except ExpectationError:
        return False
    return True


def _goes_on(comment: str, unfinished: bool) -> bool:
    """Whether a line below an expectation is meant to be one, and does not say so.

    It is if it begins with a clause, if but one word stands before its clauses, or if the line
    above is not finished. Further words make it prose.
    """
    word = _LEADING_WORD.match(comment)
    clauses = comment[word.end() :].rstrip(".,; ").split(";") if word else ()
    only_clauses = bool(clauses) and all(
        _EXPECTATION.fullmatch(clause.strip()) and _is_clause(clause) for clause in clauses
    )
    return _is_clause(comment) or only_clauses or (unfinished and _has_clause(comment))


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """The lines of all comments, without what marks them as such, and their numbers."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    number, end = 1, 0
    for token in _TOKEN.finditer(text):
        comment = token["line"] or token["block"]
        if comment is None:
            continue
        number += text.count("\n", end, token.start())
        end = token.start()
        body = comment[2:].removesuffix("*/") if token["block"] else comment[2:]
        for offset, line in enumerate(body.split("\n")):
            yield number + offset, line.lstrip(_MARKS).rstrip()


def _of_comment(comment: str, origin: SourceLine) -> Iterator[Expectation]:
    """The expectations of a line of a comment; what follows a further ``//`` is a remark."""
    expects = False
    for index, part in enumerate(comment.split("//")):
        said = part.strip(_MARKS)
        word = _WORD.match(said)
        rest = said[word.end() :] if word is not None and word[1] is None else ""
        if _compares(rest) or (index == 0 and word is not None and _body(rest)):
            expects = True
            yield from _of_part(said, rest, origin)
            continue
        if _is_disguised(said) or (index and expects and _continues(said)):
            raise _unread(
                origin, comment, "begin the comment with expect: and let its remark be none"
            )


def _of_part(said: str, rest: str, origin: SourceLine) -> Iterator[Expectation]:
    body = _body(rest)
    if body is None:
        raise _unread(origin, said)
    if not body[1].strip("; \t"):
        raise _unread(origin, said, "write what is expected on the same line")
    try:
        for item in parse_clauses(rest):
            yield replace(item, origin=origin)
    except ExpectationError as error:
        raise ExpectationError(f"{origin}: {error.what}", error.remedy) from error


def _unread(
    origin: SourceLine,
    comment: str,
    remedy: str = "write // expect: registers <= 128, or // expect KERNEL: ...",
) -> ExpectationError:
    return ExpectationError(f"{origin}: {comment.strip()!r} is no expectation", remedy)


def _is_disguised(said: str) -> bool:
    """Whether an expectation follows a word that is not quite ``expect`` or not the first."""
    first = _FIRST_WORD.match(said)
    if first is not None and _resembles_expect(first[0]):
        rest = said[first.end() :]
        _, clauses = _body(rest) or (None, rest)
        bare = _DASHES.sub("", rest, count=1)
        if any(map(_is_clause, [*clauses.split(";"), *bare.split(";")])):
            return True
    for word in _WORD.finditer(said):
        rest = said[word.end() :]
        body = _body(rest)
        if (body is not None and _compares(body[1])) or _is_clause(rest) or _has_clause(rest):
            return True
    return False


def _resembles_expect(word: str) -> bool:
    letters = word.lower()
    alike = difflib.SequenceMatcher(None, letters, "expect").ratio() >= _NEAR
    return alike or sorted(letters) == sorted("expect")


def _has_clause(text: str) -> bool:
    """Whether a sentence or a text ends with a path that there is, a comparison and a number."""
    return any(_is_clause(text[match.start() :]) for match in _CLAUSE_WITHIN.finditer(text))


def _continues(remark: str) -> bool:
    first, *others = remark.split(";")
    return _is_clause(first) or any(map(_compares, others))


def _compares(text: str) -> bool:
    return _COMPARES.search(text) is not None or any(map(_is_clause, text.split(";")))


def _is_clause(text: str) -> bool:
    """Whether a text begins with a path that there is and a comparison."""
    clause = _CLAUSE.match(text.strip())
    if clause is None:
        return False
    return _is_path(clause[1])


def read_expectations(path: str | Path) -> tuple[Expectation, ...]:
    """Read the expectations in the comments of a source file.

    Raises
    ------
    SourceNotFoundError
        The file cannot be read.
    ExpectationError
        A comment looks like an expectation and is none.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceNotFoundError(
            f"{path} cannot be read: {error.strerror or error}", "name a .cu file"
        ) from error
    return parse_expectations(text, str(path))


# ---- judge


def select(expectations: Iterable[Expectation], report: SassReport) -> tuple[Expectation, ...]:
    """Those that hold for a kernel on its architecture.

    One with architectures replaces those without that bound the same path of the same kernel in
    the same direction. What a caller expects is replaced by the caller alone, not by a file.
    """
    concerned = [expectation for expectation in expectations if expectation.concerns(report)]
    special = {_subject(item, report) for item in concerned if item.archs}
    return tuple(
        item for item in concerned if item.archs or _subject(item, report) not in special
    )  # fmt: skip


def _subject(
    expectation: Expectation, report: SassReport
) -> tuple[PathParts, str, tuple[bool, bool], bool]:
    """What an expectation of this kernel speaks of, however it and the kernel are spelt."""
    parts = read_path(expectation.path)
    if parts.is_mnemonic:
        parts = replace(parts, name=min(_names(parts.name)))
    comparison = expectation.comparison
    direction = comparison[0] if comparison[0] in "<>" else comparison
    kernel = (expectation.kernel is not None, expectation._names_instance(report))
    return parts, direction, kernel, expectation.origin is None


def instances(expectations: Iterable[Expectation]) -> tuple[str, ...]:
    """The instances of templates that expectations name, as they are asked of the compiler."""
    named = (item.kernel for item in expectations if item.kernel is not None and "<" in item.kernel)
    plain = (name.replace(ANONYMOUS, "") for name in named)
    return tuple(dict.fromkeys(name[: _closing(name, name.index("<"))] for name in plain))


def allows_unknown(expectations: Iterable[Expectation]) -> bool:
    """Whether one says how many unknown opcodes there may be."""
    return _speaks_of("unknown_opcodes", expectations)


def allows_external(expectations: Iterable[Expectation]) -> bool:
    """Whether one says how many functions may be called that are linked in later."""
    return _speaks_of("external_calls", expectations)


def _speaks_of(figure_name: str, expectations: Iterable[Expectation]) -> bool:
    return any(read_path(item.path).name == figure_name for item in expectations)


def judge(
    expectation: Expectation,
    report: SassReport,
    *,
    unknown_allowed: bool = False,
    external_allowed: bool = False,
) -> Verdict:
    """Say whether an expectation holds.

    Parameters
    ----------
    expectation
        What shall hold.
    report
        The kernel.
    unknown_allowed
        Whether a bound on a number of instructions may pass although the kernel has opcodes that
        nobody knows; see :func:`allows_unknown`.
    external_allowed
        Whether what is bounded above may pass although the kernel calls functions that are not
        there; see :func:`allows_external`.

    Raises
    ------
    ExpectationError
        Its path does not exist. A loop that this kernel lacks is a failure, not an error.
    """
    read_path(expectation.path)
    try:
        actual = figure(report, expectation.path)
    except ExpectationError as error:
        reason = f"{error.what}; {error.remedy}"
        return Verdict(expectation, report.kernel, report.arch, None, False, reason)
    passed = _COMPARISONS[expectation.comparison](actual, expectation.wanted)
    reason = "" if passed else f"{expectation.path} is {actual:.6g}"
    doubt = ""
    if passed and not unknown_allowed:
        doubt = _unknown_doubt(expectation, report)
    if passed and not external_allowed:
        doubt = doubt or _external_doubt(expectation, report)
    if doubt:
        passed, reason = False, f"{expectation.path} is {actual:.6g} {doubt}"
    return Verdict(expectation, report.kernel, report.arch, actual, passed, reason)


def _unknown_doubt(expectation: Expectation, report: SassReport) -> str:
    """Why a count that is small enough may be larger: opcodes that nobody knows."""
    parts = read_path(expectation.path)
    counts = parts.is_mnemonic or parts.name == "moves"
    if not (report.unknown_opcodes and counts and _is_ceiling(expectation)):
        return ""
    there = ", ".join(f"{count} x {code}" for code, count in report.unknown_opcodes.items())
    return (
        f"beside unknown opcodes, which may be such: {there}"
        "; expect unknown_opcodes >= 0 as well to allow them"
    )


def _external_doubt(expectation: Expectation, report: SassReport) -> str:
    """Why a figure that is small enough may be larger: functions that are linked in later."""
    own = read_path(expectation.path).name in ("unknown_opcodes", "external_calls")
    if own or not report.external_calls or not _is_ceiling(expectation):
        return ""
    return (
        f"without the functions that are linked in later: {', '.join(report.external_calls)}"
        "; expect external_calls >= 0 as well to allow them"
    )


def _is_ceiling(expectation: Expectation) -> bool:
    """Whether it says that there is no more than so much."""
    none = expectation.comparison == "==" and expectation.wanted == 0
    return expectation.comparison in ("<", "<=") or none


def figure(report: SassReport, path: str) -> float:
    """The number that a path names; an instruction that does not occur counts 0.

    Raises
    ------
    ExpectationError
        There is no such path, no such loop in this kernel, or nobody knows the figure.
    """
    parts = read_path(path)
    owner: SassReport | LoopReport = report
    if parts.loop is not None:
        owner = _loop(report, parts.loop, path)
    if parts.is_mnemonic:
        return sum(
            count for name, count in owner.mix.items() if _matches(name, parts)
        )  # fmt: skip
    value = getattr(owner, parts.name)
    if isinstance(value, Mapping):
        return sum(value.values())
    if isinstance(value, tuple):
        return len(value)
    if value is None:
        raise ExpectationError(f"{path} of {report.kernel} is not known", _why_unknown(parts.name))
    number: float = value
    return number


def _why_unknown(name: str) -> str:
    if name == "registers_live":
        return (
            "nvdisasm counts the live registers, and nvdisasm 13 none in cubins of NVRTC 12: "
            "compile with NVRTC 13, or expect something of registers"
        )
    if name == "stack_bytes":
        return "functions call each other without end, or are linked in later"
    return "spills come from the compiler's log: compile the source"


def _matches(mnemonic: str, parts: PathParts) -> bool:
    name, _, width = mnemonic.partition(".")
    return name in _names(parts.name) and parts.width_bits in (None, int(width or 0))


def _names(mnemonic: str) -> tuple[str, ...]:
    """All names that an operation has, on one architecture or another."""
    return next((names for names in _SAME if mnemonic in names), (mnemonic,))


def _loop(report: SassReport, index: int, path: str) -> LoopReport:
    loop = None
    if index == HOT_LOOP:
        loop = report.hot
    elif index < len(report.loops):
        loop = report.loops[index]
    if loop is None:
        there = ", ".join(f"loops[{i}]" for i in range(len(report.loops))) or "no loop"
        raise ExpectationError(
            f"{path}: {report.kernel} on {report.arch} has no such loop", f"it has {there}"
        )
    return loop


def _squeezed(name: str) -> str:
    return re.sub(r"\s+", "", name)
