"""The command line: one command per verb. It parses arguments, calls, and shows."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from lowgemm.cli import (
    ask,
    build,
    check,
    diff,
    drift,
    host,
    lab,
    ladder,
    model,
    ptx,
    rewrite,
    sass,
    sgemm,
)
from lowgemm.cli.common import app
from lowgemm.errors import CompilationError, LowgemmError, OutputError

__all__ = [
    "app",
    "ask",
    "build",
    "check",
    "diff",
    "drift",
    "host",
    "lab",
    "ladder",
    "main",
    "model",
    "ptx",
    "rewrite",
    "sass",
    "sgemm",
]

_ERROR = 2


def main() -> None:
    """Run the command line; an error becomes a message and the exit status 2.

    1 is for what was asked for, done, and found wrong or different.
    """
    _prepare_output()
    try:
        app()
        sys.stdout.flush()
    except LowgemmError as error:
        _fail(error)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python would complain again when it closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_ERROR)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            _crash()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(OutputError(f"the output cannot be written: {error.strerror}"))
    except MemoryError as error:
        _fail(LowgemmError(f"this machine has not enough memory: {error}", "choose smaller sizes"))
    except Exception:
        _crash()


def _prepare_output() -> None:
    """Write what an encoding lacks as question marks, and to nowhere if stdout is closed."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(error: LowgemmError) -> NoReturn:
    lines = [f"lowgemm: {error}"]
    if isinstance(error, CompilationError) and error.log and error.log not in str(error):
        lines.insert(1, error.log.rstrip())
    print("\n".join(lines), file=sys.stderr)
    sys.exit(_ERROR)


def _crash() -> NoReturn:
    """Python's own status would say that something was found wrong."""
    traceback.print_exc()
    sys.exit(_ERROR)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from lowgemm import __version__

        print(__version__)
        raise typer.Exit
