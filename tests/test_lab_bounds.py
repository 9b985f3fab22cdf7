"""What the pipes of an SM need for a loop."""

from __future__ import annotations

from lowgemm.hardware import gpu_record
from lowgemm.studies.lab import MachineCode
from lowgemm.studies.lab.bounds import issue_cycles_per_ffma


def test_an_ffma_takes_its_share_of_the_loop() -> None:
    """Where it takes a slot a cycle; on 64 lanes its pipe is slower than the rest."""
    code = MachineCode("sm_90", 127, 0, 0, 1140, {"FFMA": 1024}, 251)
    assert issue_cycles_per_ffma(gpu_record("h200"), code) == (1140 + 251) / 1024
    assert issue_cycles_per_ffma(gpu_record("a100"), code) == 2
    assert issue_cycles_per_ffma(gpu_record("h200"), None) == 1
