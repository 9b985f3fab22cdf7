"""The laboratory on the emulator: every variant right and clean at a small size, and its page."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import lowgemm.cli.lab  # noqa: F401  # registers the command
from lowgemm.cli.common import app
from lowgemm.emulator import Emulator, Finding, FindingKind
from lowgemm.errors import EmulationError
from lowgemm.hardware import Architecture, gpu_record
from lowgemm.report.lab import LabReport
from lowgemm.studies.lab import (
    EXPERIMENTS,
    LabResult,
    SmallSetup,
    Trial,
    compile_variants,
    emulate_experiment,
    find_experiment,
)
from lowgemm.studies.lab.bank_conflicts import BankConflicts
from lowgemm.view.lab import lab_view

NAMES = [experiment.name for experiment in EXPERIMENTS]
#: Loads and copies of all widths, shuffles, clocks.
SAMPLE = ("global-vectors", "shared-vectors", "cp-async", "gemv", "memory-levels")


def trials_of(name: str, device: Emulator) -> Mapping[str, Trial]:
    """An experiment's trials at the smallest size."""
    experiment = find_experiment(name)
    variants = compile_variants(experiment, device.architecture)
    return experiment.trials(SmallSetup(device, variants))


def shown(result: LabResult) -> str:
    """What a terminal shows of a result."""
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(lab_view(LabReport(result), 200))
    return console.export_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_variant_is_right_and_clean(name: str) -> None:
    """On sm_90 each writes what the experiment knows it must, and nothing wrong is found."""
    with Emulator("sm_90") as device:
        trials = trials_of(name, device)
        variants = find_experiment(name).variants(Architecture(9, 0))
        assert {variant.name for variant in variants} <= set(trials)
        for variant, trial in trials.items():
            assert trial.is_right(), variant


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
@pytest.mark.parametrize("name", SAMPLE)
def test_other_architectures_are_right_and_clean(name: str, arch: str) -> None:
    """Older and newer code of the same variants does the same."""
    with Emulator(arch) as device:
        for variant, trial in trials_of(name, device).items():
            assert trial.is_right(), variant


def test_clusters_run_on_the_newest_architecture() -> None:
    """On sm_120 the copies' mbarriers are encoded otherwise; every variant is right."""
    rows = emulate_experiment(find_experiment("clusters"), gpu_record("rtx 5080")).rows
    emulations = [row.emulation for row in rows]
    assert emulations
    assert all(one and one.correct and not one.findings for one in emulations)


def test_small_sizes_grow_with_the_scale() -> None:
    """Twice the scale is more work, on more blocks."""
    experiment = BankConflicts()
    with Emulator("sm_90") as device:
        variants = compile_variants(experiment, device.architecture)
        written = [
            experiment.trials(SmallSetup(device, variants, scale))["plain"].run().size
            for scale in (1, 2, 3)
        ]
    assert written == sorted(set(written))


def test_a_trial_sees_what_was_not_written() -> None:
    """What an earlier launch left does not pass for the result of one that does nothing."""
    with Emulator("sm_90") as device:
        trial = trials_of("bank-conflicts", device)["plain"]
        assert trial.is_right()
        assert not replace(trial, launch=lambda: None).is_right()


def test_executed_wavefronts_are_those_predicted() -> None:
    """Each layout's conflicts by the rule, and by counting: two rounds of two blocks."""
    result = emulate_experiment(BankConflicts(), gpu_record("h200"))
    assert result.is_emulated
    for row in result.rows:
        assert row.emulation is not None and row.emulation.executed is not None
        assert row.prediction is not None
        assert row.emulation.passed
        assert row.measurement is None
        assert row.emulation.executed.shared_wavefronts == 4 * row.prediction.value
    ways = {row.variant: row.emulation.executed.worst_conflict_ways
            for row in result.rows if row.emulation and row.emulation.executed}  # fmt: skip
    assert ways["plain"] == 32
    assert ways["swizzled"] == 1


def test_what_is_found_and_what_is_wrong_is_shown() -> None:
    """A finding with its place, a wrong result and a launch that was stopped, by variant."""
    finding = Finding(
        FindingKind.RACE, "k", 0x40, "STS [R2], R0", None, (0, 0, 0), (5, 0, 0), 128, 3
    )
    done = emulate_experiment(BankConflicts(), gpu_record("h200"))
    first, second, third = (row.emulation for row in done.rows[:3])
    assert first and second and third
    emulations = (
        replace(first, findings=(finding,)),
        replace(second, correct=False),
        replace(third, executed=None, correct=False, stopped="an instruction"),
    )
    rows = tuple(
        replace(row, emulation=emulation)
        for row, emulation in zip(done.rows, emulations, strict=False)
    )
    text = shown(replace(done, rows=rows))
    assert "plain: race between warps" in text
    assert "padded: WRONG RESULT" in text
    assert "padded by 4: not run to its end: an instruction" in text
    assert not any(emulation.passed for emulation in emulations)


def test_a_launch_that_cannot_go_on_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant says why; those after it are run."""
    usual = BankConflicts.trials

    def stopping(self: BankConflicts, setup: Any) -> dict[str, Trial]:
        def stop() -> None:
            raise EmulationError("an instruction that nobody knows")

        trials = dict(usual(self, setup))
        return trials | {"plain": replace(trials["plain"], launch=stop)}

    monkeypatch.setattr(BankConflicts, "trials", stopping)
    first, *others = emulate_experiment(BankConflicts(), gpu_record("h200")).rows
    assert first.emulation is not None
    assert first.emulation.stopped == "an instruction that nobody knows"
    assert all(row.emulation and row.emulation.passed for row in others)


def test_architectures_beyond_the_emulator_are_only_predicted() -> None:
    """The reason stands where measurements would."""
    record = replace(gpu_record("b200"), capability_minor=3)
    result = emulate_experiment(BankConflicts(), record)
    assert not result.is_emulated
    assert "sm_103" in str(result.unmeasured)
    assert all(row.prediction for row in result.rows)
    too_old = emulate_experiment(find_experiment("clusters"), gpu_record("a100"))
    assert "9.0 or later" in str(too_old.unmeasured)


def test_the_command_emulates() -> None:
    """Counts beside predictions; that there is no time is said, and all is well."""
    done = CliRunner().invoke(app, ["lab", "bank-conflicts", "--device", "emulator"])
    assert done.exit_code == 0
    assert "not measured: the emulator counts and has no clock" in done.output
    assert "wavefronts" in done.output
    command = ["lab", "bank-conflicts", "--device", "emulator", "--gpu", "a100", "--json"]
    (data,) = json.loads(CliRunner().invoke(app, command).output)
    row = data["rows"][0]
    assert row["code"]["arch"] == "sm_80"
    assert row["emulation"]["correct"] is True
    assert row["emulation"]["executed"]["worst_conflict_ways"] == 32
    assert row["measurement"] is None


def test_the_command_fails_where_a_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script can rely on it, as on a GPU."""
    monkeypatch.setattr(Trial, "is_right", lambda self: bool(np.isnan(self.run()[0, 0, 0])))
    done = CliRunner().invoke(app, ["lab", "bank-conflicts", "--device", "emulator"])
    assert done.exit_code == 1
    assert "plain: WRONG RESULT" in done.output
