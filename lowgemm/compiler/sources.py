"""Find every header that a compilation may read, so that a cached result cannot be stale.

NVRTC lists no dependencies. So the files are scanned, and the set errs on the side of too many:
a directive counts whether or not its ``#if`` is active and even inside a comment, and each place
where a name *could* be found counts, not only the first. A result is reused only if the same files
exist in all these places with the same content; a header that newly shadows another one changes the
set. What scanning cannot settle is said in `HeaderSet.doubts`; then nothing is cached.

NVRTC's rules (checked on 13.5): a quoted name is looked for in the directory of the file
that includes it, then along the include path; an angled name along the include path alone. Neither
the working directory, nor the directories of files further up, nor the environment count.
"""

# ruff: noqa: PTH110, PTH116, PTH118, PTH120, PTH123
# (A compilation may look at ten thousand paths; Path objects cost ten times as much as texts.)

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["HOST_HEADERS", "HeaderSet", "find_headers"]

#: Headers of the host's C and C++ libraries and of CUDA's host side: NVRTC has none of them, and
#: sources written for nvcc keep them behind an #if.
HOST_HEADERS = frozenset(
    (
        *("cuda.h", "cuda_runtime_api.h", "cublas_v2.h", "curand.h", "nvrtc.h"),
        *("assert.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "stdio.h"),
        *("stdlib.h", "string.h", "time.h", "cassert", "cfloat", "climits", "cmath", "cstddef"),
        *("cstdint", "cstdio", "cstdlib", "cstring", "ctime", "algorithm", "array", "atomic"),
        *("bitset", "chrono", "complex", "deque", "fstream", "functional", "iomanip", "iostream"),
        *("iterator", "limits", "list", "map", "memory", "numeric", "optional", "ostream"),
        *("queue", "random", "set", "span", "sstream", "stdexcept", "string", "thread", "tuple"),
        *("type_traits", "unordered_map", "utility", "variant", "vector"),
    )
)


_BLANKS = re.compile(rb"[ \t\f\v\0]*+")
# What stands before a directive is blanks and comments; so a line begins there or a comment ends.
_HASH = re.compile(rb"(?:^|\*/)[ \t\f\v\0]*+(?:\#|%:)", re.MULTILINE)
_DIRECTIVE = re.compile(rb"(include_next|include|import|embed|define)\b")
_PROBE = re.compile(rb"__has_(?:include(?:_next)?|embed)\b")
_QUOTED_PROBE = re.compile(rb'[ \t]*+\([ \t]*+"')
_PROBE_TEST = re.compile(rb"(?:\bdefined[ \t]*\(?|#[ \t]*ifn?def)[ \t]*\Z")
_LITERAL = re.compile(rb'"([^"\n]++)"|<([^>\n]++)>')
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*+")
_CLOCK = re.compile(rb"__(?:DATE|TIME|TIMESTAMP)__")
# A longer definition is no header's name; its text is not kept.
_MAX_BODY_CHARS = 4096

# Names that ## may put together from words that show nothing of it.
_SECRETS = (
    *(b"__has_include", b"__has_include_next", b"__has_embed"),
    *(b"__DATE__", b"__TIME__", b"__TIMESTAMP__"),
)
_MAX_PIECES = 3
# A lone underscore, which CUDA's headers have, is passed over.
_PIECES = frozenset(
    name[i:j] for name in _SECRETS for i in range(len(name)) for j in range(i + 1, len(name) + 1)
) - {b"_", *_SECRETS}
_WHOLE_WORD = re.compile(rb"(?<![\w$])[A-Za-z_]++(?![\w$])")


@dataclass(frozen=True, slots=True)
class HeaderSet:
    """The headers that a source may read.

    Parameters
    ----------
    files
        Path and SHA-256 of each, sorted.
    missing
        Names in ``#include`` that are nowhere on the path.
    probed
        Names in ``__has_include`` that are nowhere on the path.
    doubts
        Why the set may be incomplete; empty if it is certain.
    uses_clock
        Whether ``__DATE__``, ``__TIME__`` or ``__TIMESTAMP__`` occurs.
    """

    files: tuple[tuple[str, str], ...]
    missing: frozenset[str]
    probed: frozenset[str]
    doubts: tuple[str, ...]
    uses_clock: bool


@dataclass(frozen=True, slots=True)
class _Name:
    text: str
    quoted: bool
    probe: bool


@dataclass(slots=True)
class _Scan:
    names: set[_Name] = field(default_factory=set)
    computed: set[tuple[bytes, bool]] = field(default_factory=set)
    macros: set[tuple[bytes, bytes | None]] = field(default_factory=set)
    parameters: set[bytes] = field(default_factory=set)
    pieces: set[bytes] = field(default_factory=set)
    doubts: set[str] = field(default_factory=set)
    uses_clock: bool = False


def find_headers(
    text: bytes, path: str, directories: Sequence[str], macros: Mapping[str, str]
) -> HeaderSet:
    """Find the headers of a source, transitively.

    Parameters
    ----------
    text
        The source.
    path
        Its absolute path; it need not exist.
    directories
        The include path.
    macros
        Macros from the command line: a header's name may come through one.
    """
    walk = _Walk(directories)
    for name, value in macros.items():
        body = value.encode("utf-8", "surrogateescape")
        walk.macros.setdefault(name.encode(), set()).add(body)
        walk.add_option(name.encode(), body)
    walk.add(path, text)
    walk.run()
    return HeaderSet(
        files=tuple(sorted(walk.files.items())),
        missing=frozenset(walk.missing),
        probed=frozenset(walk.probed - walk.missing),
        doubts=tuple(sorted(walk.doubts)),
        uses_clock=walk.uses_clock,
    )


class _Walk:
    """The state of one search: files still to follow, and what they named so far."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.directories = directories
        self.files: dict[str, str] = {}
        self.macros: dict[bytes, set[bytes | None]] = {}
        self.missing: set[str] = set()
        self.probed: set[str] = set()
        self.doubts: set[str] = set()
        self.uses_clock = False
        self._pieces: set[bytes] = set()
        self._folders: dict[str, str] = {}
        self._names: list[tuple[str, _Name]] = []
        self._seen: set[tuple[str, _Name]] = set()
        self._computed: set[tuple[str, bytes, bool]] = set()

    def add_option(self, name: bytes, body: bytes) -> None:
        """Take in a macro of the command line, whose body may look for headers as a file's does."""
        scan = _scan_file(b"#define " + name + b" " + body + b"\n")
        self.uses_clock |= scan.uses_clock
        self._pieces |= scan.pieces
        if scan.doubts or scan.names or scan.computed:
            self.doubts.add(f"the macro {name.decode()} of the options looks for a header")

    def add(self, path: str, text: bytes) -> str:
        """Take in one file; its SHA-256."""
        digest = hashlib.sha256(text)
        scan = _scan(text, digest.digest())
        self.uses_clock |= scan.uses_clock
        self.doubts |= {f"{path}: {doubt}" for doubt in scan.doubts}
        self._pieces |= scan.pieces
        for macro, body in scan.macros:
            self.macros.setdefault(macro, set()).add(body)
        # A header reached through a link is looked at from the link's and from its own directory.
        path = self._canonical(path)
        for folder in {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}:
            self._names.extend((folder, name) for name in scan.names)
            self._computed |= {(folder, word, probe) for word, probe in scan.computed}
        return digest.hexdigest()

    def run(self) -> None:
        while True:
            while self._names:
                self._follow(*self._names.pop())
            # Macros found meanwhile may give further names to computed includes.
            followed = len(self._seen)
            for folder, word, probe in list(self._computed):
                for name in list(self._resolved(word, probe)):
                    self._follow(folder, name)
            if followed == len(self._seen):
                break
        for _, word, probe in self._computed:
            list(self._resolved(word, probe, final=True))
        for secret in _SECRETS:
            if _composable(secret, self._pieces):
                self.doubts.add(f"## may put {secret.decode()} together")

    def _follow(self, folder: str, name: _Name) -> None:
        folder = folder if name.quoted else ""
        if (folder, name) in self._seen:
            return
        self._seen.add((folder, name))
        if "\0" in name.text:
            self.doubts.add(f"a header's name holds a NUL: {name.text!r}")
            return
        places = ([folder] if name.quoted else []) + list(self.directories)
        found = [self._open(os.path.join(place, name.text)) for place in places]
        if not any(found):
            (self.probed if name.probe else self.missing).add(name.text)

    def _canonical(self, path: str) -> str:
        """The path with its directory resolved.

        Headers that include each other through ``..`` would otherwise give ever longer paths.
        """
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)

    def _open(self, path: str) -> bool:
        spelled, path = path, self._canonical(path)
        if "/../" in spelled and os.path.exists(path) and not os.path.exists(spelled):
            # "gone/../a.h" becomes readable when the directory "gone" appears.
            self.doubts.add(f"{spelled}: goes through a directory that is not there")
        if path in self.files:
            return True
        try:
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode):
                return False
            if not stat.S_ISREG(mode):
                raise OSError("not a regular file")
            with open(path, "rb") as file:
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError) as error:
            self.doubts.add(f"{path}: {error}")
            return False
        self.files[path] = self.add(path, text)
        return True

    def _resolved(self, word: bytes, probe: bool, *, final: bool = False) -> Iterator[_Name]:
        """Header names that the macro ``word`` may stand for; unclear ones become doubts."""
        known: set[bytes] = set()
        waiting = [word]
        unclear = False
        while waiting:
            alias = waiting.pop()
            if alias in known:
                continue
            known.add(alias)
            bodies = self.macros.get(alias, set())
            # To include by an unknown name is an error, to probe for it need not be.
            unclear |= not bodies and (probe or alias.startswith(b"__"))
            for body in bodies:
                name, further, is_clear = self._meaning(body, probe)
                unclear |= not is_clear
                waiting.extend(further)
                if name is not None:
                    yield name
        if final and unclear:
            self.doubts.add(f"the header named by macro {word.decode()} cannot be told")

    def _meaning(
        self, body: bytes | None, probe: bool
    ) -> tuple[_Name | None, tuple[bytes, ...], bool]:
        """What a macro's body names: a header, or another macro; and whether that is all."""
        if body is None:
            return None, (), False
        at = _Gaps(body).end(0)
        literal = _LITERAL.match(body, at)
        if literal is None:
            alias = _lone_word(body, at)
            return None, () if alias is None else (alias,), alias is not None
        text = literal[1] or literal[2]
        # Inside <...> macros are expanded before the name is put together.
        words = set() if literal[1] else set(_IDENTIFIER.findall(text))
        is_clear = not words & (self.macros.keys() | {b"linux", b"unix"})
        return _Name(os.fsdecode(text), literal[1] is not None, probe), (), is_clear


def _composable(name: bytes, pieces: set[bytes], most: int = _MAX_PIECES) -> bool:
    """Whether a name is a row of at most ``most`` of the pieces."""
    return not name or (
        most > 0
        and any(
            name[:end] in pieces and _composable(name[end:], pieces, most - 1)
            for end in range(1, len(name) + 1)
        )
    )


# ---- one file


# A scan depends on the content alone; the CUDA headers come again with every compilation.
_SCANS: dict[bytes, _Scan] = {}
_MAX_SCANS = 4096


def _scan(text: bytes, digest: bytes) -> _Scan:
    scan = _SCANS.get(digest)
    if scan is None:
        if len(_SCANS) >= _MAX_SCANS:
            _SCANS.clear()
        scan = _SCANS[digest] = _scan_file(text)
    return scan


def _scan_file(text: bytes) -> _Scan:
    scan = _Scan()
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) or b"??=" in text or b"??/" in text:
        scan.doubts.add("UTF-16 text or trigraphs")
    text = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    # NVRTC takes a lone carriage return for a blank; other compilers end the line there.
    readings = {text.replace(b"\r", b"\n"), text.replace(b"\r", b" ")}
    readings |= {re.sub(rb"\\[ \t\f\v]*+\n", b"", reading) for reading in readings}
    for reading in readings:
        _scan_text(reading, scan)
    return scan


def _scan_text(text: bytes, scan: _Scan) -> None:
    scan.uses_clock |= _CLOCK.search(text) is not None
    scan.pieces |= _PIECES.intersection(_WHOLE_WORD.findall(text))
    gaps = _Gaps(text)
    for start in _HASH.finditer(text):
        directive = _DIRECTIVE.match(text, gaps.end(start.end()))
        if directive is None:
            continue
        at = gaps.end(directive.end())
        if directive[1] == b"define":
            _scan_definition(text, at, scan)
        else:
            _scan_include(text, at, scan)
    for probe in _PROBE.finditer(text):
        at = gaps.end(probe.end())
        if text.startswith(b"(", at):
            _scan_probe(text, gaps, gaps.end(at + 1), scan)
        elif not _PROBE_TEST.search(text[max(0, probe.start() - 40) : probe.start()]):
            scan.doubts.add("__has_include is used through a macro")
    if scan.parameters & {word for word, is_probe in scan.computed if is_probe}:
        scan.doubts.add("a macro's parameter names a header")


def _rest_of_line(text: bytes, at: int) -> bytes:
    end = text.find(b"\n", at)
    return text[at : len(text) if end < 0 else end]


def _lone_word(text: bytes, at: int) -> bytes | None:
    """The identifier that stands alone up to the end of the line, but for comments."""
    word = _IDENTIFIER.match(text, at)
    if word is None:
        return None
    end = _Gaps(text).end(word.end())
    alone = end == len(text) or text.startswith((b"\n", b"//"), end)
    return word[0] if alone else None


def _scan_definition(text: bytes, at: int, scan: _Scan) -> None:
    name = _IDENTIFIER.match(text, at)
    if name is None:
        return
    is_function = text.startswith(b"(", name.end())
    body = _rest_of_line(text, name.end())
    if is_function:
        listed, _, body = body.partition(b")")
        scan.parameters.update(_IDENTIFIER.findall(listed, 0, _MAX_BODY_CHARS))
    plain = not is_function and len(body) <= _MAX_BODY_CHARS
    scan.macros.add((name[0], body if plain else None))
    # In a macro's body only a quoted name is sure to be what it looks like.
    for probe in _PROBE.finditer(body):
        if not _QUOTED_PROBE.match(body, probe.end()):
            scan.doubts.add(f"the macro {name[0].decode()} looks for headers")


def _scan_include(text: bytes, at: int, scan: _Scan) -> None:
    literal = _LITERAL.match(text, at)
    if literal:
        scan.names.add(_Name(os.fsdecode(literal[1] or literal[2]), literal[1] is not None, False))
        return
    rest = _rest_of_line(text, at)
    word = _lone_word(rest, 0)
    if word is not None:
        scan.computed.add((word, False))
    elif rest.strip():
        scan.doubts.add(f"unclear #include {os.fsdecode(rest.strip()[:60])!r}")


def _scan_probe(text: bytes, gaps: _Gaps, at: int, scan: _Scan) -> None:
    """What follows the parenthesis of ``__has_include(``."""
    literal = _LITERAL.match(text, at)
    word = _IDENTIFIER.match(text, at)
    if literal:
        scan.names.add(_Name(os.fsdecode(literal[1] or literal[2]), literal[1] is not None, True))
    elif word and text.startswith(b")", gaps.end(word.end())):
        scan.computed.add((word[0], True))
    else:
        scan.doubts.add(f"unclear __has_include({os.fsdecode(text[at : at + 60])!r}")


class _Gaps:
    """The blanks and comments of a text; finding the end of all of them takes linear time."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._searched = (0, -1)  # where the last search began, and the comment's end it found
        self._ends: dict[int, int] = {}

    def end(self, at: int) -> int:
        """The first place from ``at`` on that is neither blank nor comment."""
        passed = []
        while True:
            at = _BLANKS.match(self._text, at).end()  # type: ignore[union-attr]  # it always does
            if at in self._ends:
                at = self._ends[at]
                break
            if not self._text.startswith(b"/*", at):
                break
            close = self._closing(at + 2)
            if close < 0:
                break
            passed.append(at)
            at = close + 2
        self._ends.update(dict.fromkeys(passed, at))
        return at

    def _closing(self, at: int) -> int:
        """The next ``*/``, or -1. Whatever lies within the last search needs no new one."""
        begun, close = self._searched
        if not begun <= at <= close:
            found = self._text.find(b"*/", at)
            close = found if found >= 0 else len(self._text)
            self._searched = at, close
        return close if close < len(self._text) else -1
