"""The table of GPUs, and records made of a device's attributes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from lowgemm.device import GpuAttributes
from lowgemm.errors import ArgumentValueError, UnknownGpuError
from lowgemm.hardware import (
    GPUS,
    GpuRecord,
    figure,
    gpu_record,
    record_from_attributes,
)
from lowgemm.hardware.gpus import DATA_SHEET, DEVICE, MICROBENCHMARK

H200 = {
    "capability_major": 9,
    "capability_minor": 0,
    "multiprocessors": 132,
    "sm_clock_khz": 1_980_000,
    "memory_clock_khz": 3_201_000,
    "memory_bus_bits": 6144,
    "l2_bytes": 60 * 2**20,
}


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("a100", "A100 80GB SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB"),
        ("NVIDIA GeForce RTX 5080", "RTX 5080"),
        ("rtx5090", "RTX 5090"),
        ("NVIDIA H200", "H200 SXM"),
    ],
)
def test_a_gpu_is_found_by_any_usual_name(spelling: str, name: str) -> None:
    """Table names, short names and the driver's names mean the same GPU."""
    assert gpu_record(spelling).name == name


@pytest.mark.parametrize("name", ["", "a1000", "nvidia", "h200 nvl"])
def test_an_unknown_gpu_is_an_error_that_lists_the_known(name: str) -> None:
    """What the table has not is refused with the names that it has."""
    with pytest.raises(UnknownGpuError, match=r"A100 80GB SXM.*RTX 5090"):
        gpu_record(name)


def test_names_are_unambiguous_and_capabilities_known() -> None:
    """No two GPUs share a spelling, and each has the limits of its compute capability."""
    spellings = [n for record in GPUS for n in (record.name.lower(), *record.aliases)]
    assert len(spellings) == len(set(spellings))
    for record in GPUS:
        assert record.capability.ffma_lanes_per_sm in (64, 128)


def test_every_figure_says_where_it_comes_from() -> None:
    """Known figures have a source, unknown ones have none."""
    h200, rtx = gpu_record("h200"), gpu_record("5080")
    assert h200.source("dram_gb_per_s") == DATA_SHEET
    assert h200.source("l2_mib") == DEVICE
    assert h200.source("l2_latency_cycles") == MICROBENCHMARK
    assert rtx.source("l2_latency_cycles") is None
    assert "l2_latency_cycles" not in rtx.sources()
    with pytest.raises(ArgumentValueError, match="dram_gb_per_s"):
        h200.source("price")


def test_a_device_gives_its_record() -> None:
    """Attributes win over the table; what no attribute tells comes from the table."""
    record = record_from_attributes("NVIDIA H200", **H200)
    assert record.dram_gb_per_s == pytest.approx(4917, abs=1)
    assert (record.sms, record.clock_ghz, record.l2_mib) == (132, 1.98, 60)
    assert record.source("dram_gb_per_s") == DEVICE
    assert record.l2_gb_per_s == gpu_record("h200").l2_gb_per_s
    other = record_from_attributes("NVIDIA Something", **H200)
    assert other.l2_latency_cycles is None


def test_without_a_memory_clock_the_table_helps_or_an_error_says_so() -> None:
    """Drivers that give 0 for the memory's clock leave its peak to the table."""
    silent = H200 | {"memory_clock_khz": 0}
    record = record_from_attributes("NVIDIA H200", **silent)
    assert (record.dram_gb_per_s, record.source("dram_gb_per_s")) == (4800, DATA_SHEET)
    with pytest.raises(ArgumentValueError, match="dram_gb_per_s"):
        record_from_attributes("NVIDIA Something", **silent)


def test_the_attributes_of_a_gpu_become_its_record() -> None:
    """`Gpu.attributes.as_record()` is the bridge from the driver to the model."""
    values = {field.name: 1 for field in fields(GpuAttributes)} | H200
    attributes = GpuAttributes(**{**values, "name": "NVIDIA H200"})  # type: ignore[arg-type]
    assert attributes.as_record() == record_from_attributes("NVIDIA H200", **H200)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True])
def test_impossible_figures_are_refused(wrong: float) -> None:
    """Zero, negative, infinite, NaN and truth values are no bandwidth."""
    with pytest.raises(ArgumentValueError, match="dram_gb_per_s"):
        GpuRecord("x", (), 9, 0, 132, 1.98, wrong, 50)


@pytest.mark.parametrize(
    ("name", "field", "other"),
    [
        ("h200", "l2_gb_per_s", "H200 SXM"),
        ("h100", "l2_gb_per_s", "H200 SXM"),
        ("b200", "l2_gb_per_s", "H200 SXM"),
        ("5080", "l2_latency_cycles", "RTX 5090"),
        ("5080", "l2_gb_per_s", "L40"),
        ("3090", "dram_latency_cycles", "A40"),
    ],
)
def test_a_missing_figure_is_asked_of_the_nearest_gpu(name: str, field: str, other: str) -> None:
    """One of the same class, and of those the nearest compute capability."""
    found = figure(gpu_record(name), field)
    assert found.owner.name == other
    assert found.value == getattr(gpu_record(other), field)
    assert found.note == ("" if found.owner is gpu_record(name) else f" (that of the {other})")


def test_no_gpu_answers_for_a_figure_that_there_is_not() -> None:
    """A name that is no figure, and one that nobody has published."""
    with pytest.raises(ArgumentValueError, match="no figure"):
        figure(gpu_record("h200"), "name")
    with pytest.raises(ArgumentValueError, match="no GPU"):
        figure(gpu_record("h200"), "shared_latency_cycles")
