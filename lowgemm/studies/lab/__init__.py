"""The laboratory: for each claim about the machine a prediction, kernels and a measurement."""

from __future__ import annotations

from lowgemm.errors import UnknownExperimentError
from lowgemm.studies.lab.bank_camping import BankCamping
from lowgemm.studies.lab.bank_conflicts import BankConflicts
from lowgemm.studies.lab.clusters import Clusters
from lowgemm.studies.lab.cp_async import CpAsync
from lowgemm.studies.lab.energy import Energy
from lowgemm.studies.lab.experiment import (
    Emulation,
    Experiment,
    LabResult,
    LabRow,
    MachineCode,
    Measurement,
    Prediction,
    Variant,
)
from lowgemm.studies.lab.gemv import Gemv
from lowgemm.studies.lab.global_vectors import GlobalVectors
from lowgemm.studies.lab.memory_levels import MemoryLevels, measured_record
from lowgemm.studies.lab.outer_product import OuterProduct
from lowgemm.studies.lab.pipeline_depth import PipelineDepth
from lowgemm.studies.lab.rasterisation import Rasterisation
from lowgemm.studies.lab.register_banks import RegisterBanks
from lowgemm.studies.lab.run import compile_variants, emulate_experiment, run_experiment
from lowgemm.studies.lab.setup import Setup, SmallSetup
from lowgemm.studies.lab.shared_a_batch import SharedABatch
from lowgemm.studies.lab.shared_vectors import SharedVectors
from lowgemm.studies.lab.thread_tile import ThreadTile
from lowgemm.studies.lab.trial import Trial
from lowgemm.studies.lab.warp_tile import WarpTile

__all__ = [
    "EXPERIMENTS",
    "Emulation",
    "Experiment",
    "LabResult",
    "LabRow",
    "MachineCode",
    "Measurement",
    "Prediction",
    "Setup",
    "SmallSetup",
    "Trial",
    "Variant",
    "compile_variants",
    "emulate_experiment",
    "find_experiment",
    "measured_record",
    "run_experiment",
]

#: Every experiment, in the order in which they are told.
EXPERIMENTS: tuple[Experiment, ...] = (
    BankConflicts(),
    WarpTile(),
    OuterProduct(),
    ThreadTile(),
    SharedVectors(),
    GlobalVectors(),
    Rasterisation(),
    CpAsync(),
    Clusters(),
    Gemv(),
    SharedABatch(),
    RegisterBanks(),
    PipelineDepth(),
    MemoryLevels(),
    Energy(),
    BankCamping(),
)


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
