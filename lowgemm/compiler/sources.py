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


# Blanks and comments. Atomic and possessive, so that scanning stays linear.
_GAP = rb"(?>(?:[ \t\f\v\0]++|/\*(?:[^*]|\*(?!/))*+\*/)*+)"
_DIRECTIVE = re.compile(
    rb"(?:^|\*/)" + _GAP + rb"(?:\#|%:)" + _GAP + rb"(include_next|include|import|embed|define)\b"
    rb"([^\n]*)",
    re.MULTILINE,
)
_PROBE = re.compile(rb"__has_(?:include(?:_next)?|embed)\b([^\n]*)")
_PROBE_TEST = re.compile(rb"(?:defined[ \t]*\(?|#[ \t]*ifn?def)[ \t]*\Z")
_LITERAL = re.compile(_GAP + rb'(?:"([^"\n]+)"|<([^>\n]+)>)')
_WORD = re.compile(_GAP + rb"([A-Za-z_]\w*)" + _GAP + rb"(?://.*)?\Z", re.DOTALL)
_DEFINITION = re.compile(_GAP + rb"([A-Za-z_]\w*)(\(?)(.*)", re.DOTALL)
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_CLOCK = re.compile(rb"__(?:DATE|TIME|TIMESTAMP)__")


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
        self._folders: dict[str, str] = {}
        self._names: list[tuple[str, _Name]] = []
        self._seen: set[tuple[str, _Name]] = set()
        self._computed: set[tuple[str, bytes, bool]] = set()

    def add(self, path: str, text: bytes) -> str:
        """Take in one file; its SHA-256."""
        digest = hashlib.sha256(text)
        scan = _scan(text, digest.digest())
        self.uses_clock |= scan.uses_clock
        self.doubts |= {f"{path}: {doubt}" for doubt in scan.doubts}
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

    def _follow(self, folder: str, name: _Name) -> None:
        folder = folder if name.quoted else ""
        if (folder, name) in self._seen:
            return
        self._seen.add((folder, name))
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

    def _resolved(
        self, word: bytes, probe: bool, *, final: bool = False, depth: int = 0
    ) -> Iterator[_Name]:
        """Header names that the macro ``word`` may stand for; unclear ones become doubts."""
        bodies = self.macros.get(word, set())
        unclear = depth > 20 or (not bodies and word.startswith(b"__"))
        for body in bodies if depth <= 20 else ():
            literal = _LITERAL.match(body) if body is not None else None
            alias = _WORD.match(body) if body is not None else None
            if literal:
                name = literal[1] or literal[2]
                # Inside <...> macros are expanded before the name is put together.
                words = set() if literal[1] else set(_IDENTIFIER.findall(name))
                unclear |= bool(words & (self.macros.keys() | {b"linux", b"unix"}))
                yield _Name(os.fsdecode(name), literal[1] is not None, probe)
            elif alias:
                yield from self._resolved(alias[1], probe, final=final, depth=depth + 1)
            else:
                unclear = True
        if final and unclear:
            self.doubts.add(f"the header named by macro {word.decode()} cannot be told")


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
    text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for version in {text, re.sub(rb"\\[ \t]*\n", b"", text)}:
        _scan_text(version, scan)
    return scan


def _scan_text(text: bytes, scan: _Scan) -> None:
    scan.uses_clock |= _CLOCK.search(text) is not None
    for match in _DIRECTIVE.finditer(text):
        if match[1] == b"define":
            definition = _DEFINITION.match(match[2])
            if definition:
                scan.macros.add((definition[1], None if definition[2] else definition[3]))
        else:
            _scan_name(match[2], scan, probe=False)
    for match in _PROBE.finditer(text):
        rest = match[1].lstrip()
        if rest.startswith(b"("):
            _scan_name(rest[1:].partition(b")")[0], scan, probe=True)
        elif not _PROBE_TEST.search(text[max(0, match.start() - 40) : match.start()]):
            scan.doubts.add("__has_include is used through a macro")


def _scan_name(argument: bytes, scan: _Scan, *, probe: bool) -> None:
    literal = _LITERAL.match(argument)
    word = _WORD.match(argument)
    if literal:
        text = os.fsdecode(literal[1] or literal[2])
        scan.names.add(_Name(text, literal[1] is not None, probe))
    elif word:
        scan.computed.add((word[1], probe))
    elif argument.strip():
        scan.doubts.add(f"unclear #include {os.fsdecode(argument.strip()[:60])!r}")
