"""Names of the kernels of a source, as far as its look tells."""

from __future__ import annotations

import re

__all__ = ["kernel_names"]

# Linear in time, as the text may be anything: one statement, and the names called in it.
_STATEMENT_END = re.compile(r"[;{}]")
_CALLED = re.compile(r"(?<!\w)(?!__\w+__\b)([A-Za-z_]\w*+)\s*+\(")


def kernel_names(text: str, *, templates: bool = False) -> list[str]:
    """The names of all kernels, or of the templates alone."""
    names = []
    for statement in _STATEMENT_END.split(text):
        head, mark, tail = statement.rpartition("__global__")
        before = head.rstrip().removesuffix("static").rstrip()
        is_template = before.endswith(">") and re.search(r"\btemplate\s*+<", before)
        if mark and (is_template or not templates):
            names += _CALLED.findall(tail)[:1]
    return list(dict.fromkeys(names))
