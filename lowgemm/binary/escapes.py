"""File names in the compiler's output, where what is not ASCII is escaped byte by byte.

NVRTC writes a name's bytes beyond ASCII in octal (``\\303\\251`` for an e acute) and a backslash as
two. ptxas takes the last backslash or slash for the end of the folder, and nvdisasm sets a slash in
its place: ``k\\303\\251.cu`` is printed as ``k\\303/251.cu``. Established with NVRTC 13.5.
"""

from __future__ import annotations

import os
import re

__all__ = ["listed_file", "unescape"]

_ESCAPED = re.compile(rb"\\([0-3][0-7]{2}|.)")
_OCTAL = re.compile(r"[0-3][0-7]{2}")


def unescape(text: str) -> str:
    """The file name that NVRTC escaped so; bytes that are no UTF-8 as Python spells them.

    Examples
    --------
    >>> unescape(r"k\\303\\251.cu") == "k\\u00e9.cu"
    True
    """
    return os.fsdecode(_bytes(text))


def listed_file(text: str) -> str:
    """The file name in a line of nvdisasm's listing."""
    folder, slash, name = text.rpartition("/")
    if slash and _is_cut(folder, name):
        text = f"{folder}\\{name}"
    return unescape(text)


def _bytes(text: str) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        return bytes((int(match[1], 8),)) if len(match[1]) == 3 else match[1]

    return _ESCAPED.sub(plain, os.fsencode(text))


def _is_cut(folder: str, name: str) -> bool:
    """Whether the slash between them was the backslash of an escape."""
    trailing = len(folder) - len(folder.rstrip("\\"))
    if trailing % 2 or name.startswith('"'):
        return True
    if not _OCTAL.match(name):
        return False
    try:
        _bytes(folder).decode()
    except UnicodeDecodeError:
        return True
    return False
