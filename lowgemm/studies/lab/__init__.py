"""The laboratory: for each claim about the machine a prediction, kernels and a measurement."""

from __future__ import annotations

from lowgemm.errors import UnknownExperimentError
from lowgemm.studies.lab.bank_conflicts import BankConflicts
from lowgemm.studies.lab.experiment import (
    Experiment,
    LabResult,
    LabRow,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.run import compile_variants, run_experiment

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "LabResult",
    "LabRow",
    "MachineCode",
    "Measurement",
    "Prediction",
    "Variant",
    "compile_variants",
    "find_experiment",
    "run_experiment",
]

#: Every experiment, in the order in which they are told.
EXPERIMENTS: tuple[Experiment, ...] = (BankConflicts(),)


def find_experiment(name: str) -> Experiment:
    """An experiment by name.

    Raises
    ------
    UnknownExperimentError
        There is none of that name.
    """
    for experiment in EXPERIMENTS:
        if experiment.name == name.lower():
            return experiment
    known = ", ".join(experiment.name for experiment in EXPERIMENTS)
    raise UnknownExperimentError(f"no experiment is called {name!r}", f"there are {known}")
