"""Write what is generated into the documents, between their marks.

``python scripts/tables.py`` rewrites; ``--check`` only says what would change and fails if anything
would. Marks are HTML comments: ``<!-- ladder: FILE -->``, ``<!-- suite: FILE -->`` or
``<!-- code: FILE -->``, up to ``<!-- end -->``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lowgemm.report import read_report
from lowgemm.report.suite import read_suite
from lowgemm.view import ladder_markdown
from lowgemm.view.suite import suite_markdown

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "README.zh-CN.md", "sass_reports/README.md", "sass_reports/sgemm.md")
_MARK = re.compile(r"(<!-- (ladder|code|suite): (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated(kind: str, source: str) -> str:
    """What belongs between the marks of one kind and file."""
    path = ROOT / source
    if kind == "ladder":
        return ladder_markdown(read_report(path))
    if kind == "suite":
        return suite_markdown(read_suite(path))
    return f"```python\n{path.read_text(encoding='utf-8')}```\n"


def rewritten(text: str) -> str:
    """A document with every marked part made anew."""
    return _MARK.sub(lambda m: f"{m[1]}{generated(m[2], m[3])}{m[4]}", text)


def main() -> int:
    """Rewrite the documents, or with ``--check`` report those that are not up to date."""
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        fresh = rewritten(text)
        if fresh != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(fresh, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}; run make tables", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
