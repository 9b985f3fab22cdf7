"""What importing lowgemm costs and loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lowgemm

PROBE = """
import sys
import lowgemm
heavy = [m for m in ("numpy", "rich", "typer", "cuda", "elftools") if m in sys.modules]
maps = open("/proc/self/maps").read()
libraries = [name for name in ("libcuda.so", "libnvrtc", "libcublas") if name in maps]
print(heavy, libraries)
"""


def test_importing_loads_neither_driver_nor_numpy() -> None:
    """`import lowgemm` leaves everything heavy for first use, the driver above all."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert done.stdout.strip() == "[] []"


@pytest.mark.parametrize("name", lowgemm.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """Each name in ``lowgemm.__all__`` loads at first use."""
    assert getattr(lowgemm, name) is not None
    assert name in dir(lowgemm)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelled name fails as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'Gpuu'"):
        lowgemm.Gpuu  # noqa: B018


def test_every_error_derives_from_the_base_and_is_exported() -> None:
    """One except clause catches everything that lowgemm raises on purpose."""
    from lowgemm import errors

    tree = ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert classes == set(errors.__all__)
    for name in classes:
        assert issubclass(getattr(errors, name), errors.LowgemmError)


def test_an_error_shows_what_and_remedy() -> None:
    """The text of an error has the remedy; the builtin base does not change it."""
    from lowgemm.errors import ToolNotFoundError

    error = ToolNotFoundError("nvdisasm was not found", "pip install nvidia-cuda-nvdisasm")
    assert str(error) == "nvdisasm was not found\n  remedy: pip install nvidia-cuda-nvdisasm"
    assert isinstance(error, FileNotFoundError)
