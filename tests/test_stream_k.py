"""The stream-K kernel: right at any aligned shape, the same bits rewritten, flags left clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lowgemm.emulator import Emulator
from lowgemm.errors import ArrayLayoutError, DtypeError, ProblemSizeError
from lowgemm.gemm import GemmProblem, Reference, StreamK, random_operands
from lowgemm.runtime import Device
from lowgemm.studies.ladder import upload_operands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lowgemm.device import Gpu

#: On four blocks: tiles cut among all of them, a full wave and a rest, less than a k-tile, ragged.
SHAPES = ((600, 400, 72), (300, 140, 4), (1024, 256, 40), (33, 4, 108))


def result(device: Device, p: GemmProblem, *, rewritten: bool) -> NDArray[np.float32]:
    """C, computed twice: the second launch finds the workspace as the first left it."""
    kernel = StreamK(device, rewritten=rewritten)
    assert kernel.is_rewritten == rewritten
    a, b = device.empty(p.a_elements), device.empty(p.b_elements)
    c = device.zeros(p.c_elements)
    upload_operands(p, random_operands(p), a, b)
    kernel.prepare(p, a, b, c).launch()
    first = c.download()
    c.fill(7)
    kernel.prepare(p, a, b, c).launch()
    again = c.download()
    assert np.array_equal(first.view(np.uint32), again.view(np.uint32))
    return first


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_86", marks=pytest.mark.slow)])
def test_it_is_right_and_keeps_its_bits_rewritten(arch: str, shape: tuple[int, int, int]) -> None:
    """By the componentwise bound, with no finding in strict mode, and equal to the last bit."""
    p = GemmProblem(*shape)
    with Emulator(arch) as device:
        plain = result(device, p, rewritten=False)
    with Emulator(arch, strict=True) as device:
        assert np.array_equal(
            result(device, p, rewritten=True).view(np.uint32), plain.view(np.uint32)
        )
    operands = random_operands(p)
    assert Reference(p, operands).check(plain).passed


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, (2048, 1408, 520), (4096, 4224, 256)], ids=str)
def test_a_gpu_computes_the_same_bits_rewritten(gpu: Gpu, shape: tuple[int, int, int]) -> None:
    """On a GPU as well, with as many blocks as it has multiprocessors."""
    p = GemmProblem(*shape)
    one, two = (result(gpu, p, rewritten=each) for each in (False, True))
    assert np.array_equal(one.view(np.uint32), two.view(np.uint32))


def test_what_it_does_not_take() -> None:
    """Rows between 16 bytes, other types and short buffers are refused before a launch."""
    with Emulator("sm_90") as device:
        kernel = StreamK(device, rewritten=False)
        x = device.zeros(64)
        for sizes in ((4, 4, 6), (4, 6, 4), (4, 4, 4, 5)):
            with pytest.raises(ProblemSizeError, match="multiples of 4"):
                kernel.prepare(GemmProblem(*sizes), x, x, x)
        with pytest.raises(ArrayLayoutError, match="needs 256"):
            kernel.prepare(GemmProblem(16, 16, 16), x, x, x)
        with pytest.raises(DtypeError, match="int32"):
            kernel.prepare(GemmProblem(4, 4, 4), device.zeros(64, np.int32), x, x)


def test_rewriting_is_turned_off_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """With LOWGEMM_REWRITE=0 the compiler's loop runs, unless a caller asks for the other."""
    monkeypatch.setenv("LOWGEMM_REWRITE", "0")
    with Emulator("sm_90") as device:
        assert not StreamK(device).is_rewritten
        assert StreamK(device, rewritten=True).is_rewritten
        monkeypatch.delenv("LOWGEMM_REWRITE")
        assert StreamK(device).is_rewritten
