"""The occupancy rules against the driver's own answer."""

from __future__ import annotations

import pytest

from lowgemm.device import Gpu
from lowgemm.gemm import RUNG_NAMES, RungKernel, rung
from lowgemm.hardware import capability, occupancy
from lowgemm.model import occupancy_report

pytestmark = pytest.mark.gpu

KIB = 1024


@pytest.mark.parametrize("name", RUNG_NAMES)
def test_occupancy_is_the_drivers(gpu: Gpu, name: str) -> None:
    """Every rung, over block sizes, whole warps and not, and shared memory up to the most."""
    cc = capability(*gpu.capability)
    chosen = RungKernel(gpu, rung(name, gpu.architecture))
    used = chosen.build.kernel(chosen.rung.instance(aligned=True)).resources
    kernel = chosen.kernel(aligned=True)
    most = cc.shared_bytes_per_block_optin - used.shared_bytes
    dynamic = sorted({0, 1, 127, 1000, *range(4 * KIB, most, 4 * KIB), most - 1, most})
    sizes = sorted({1, 33, 100, *range(32, kernel.max_threads + 1, 32)})
    for threads in (size for size in sizes if size <= kernel.max_threads):
        for shared in dynamic:
            wanted = occupancy(
                cc,
                threads=threads,
                registers=used.registers,
                shared_bytes=used.shared_bytes + shared,
                barriers=used.barriers,
            )
            found = kernel.occupancy(threads, shared)
            assert found == wanted.blocks_per_sm, (threads, shared, wanted)


@pytest.mark.parametrize("name", RUNG_NAMES)
def test_the_way_to_the_next_block_is_the_drivers(gpu: Gpu, name: str) -> None:
    """Freeing as much shared memory as the report says gives one block more, one byte less none."""
    cc = capability(*gpu.capability)
    chosen = RungKernel(gpu, rung(name, gpu.architecture))
    used = chosen.build.kernel(chosen.rung.instance(aligned=True)).resources
    kernel = chosen.kernel(aligned=True)
    dynamic = 40 * KIB
    report = occupancy_report(
        cc,
        threads=chosen.rung.threads,
        registers=used.registers,
        shared_bytes=used.shared_bytes + dynamic,
        barriers=used.barriers,
    )
    step = next(step for step in report.steps if step.resource == "shared_bytes")
    now = report.blocks_per_sm
    assert kernel.occupancy(chosen.rung.threads, dynamic) == now
    if step.less_for_next is not None and step.less_for_next <= dynamic:
        enough = dynamic - step.less_for_next
        assert (kernel.occupancy(chosen.rung.threads, enough) or 0) > now
        assert kernel.occupancy(chosen.rung.threads, enough + 1) == now
