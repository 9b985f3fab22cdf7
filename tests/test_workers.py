"""Processes that work at the same time end with what they work for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lowgemm.studies.workers import worker_processes

#: Three tasks of minutes on two workers; each that begins leaves a file.
SLEEPERS = """
import signal, sys, time
from pathlib import Path
from lowgemm.studies.workers import worker_processes

def sleep(number):
    Path(sys.argv[1], str(number)).touch()
    time.sleep(300)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with worker_processes(2) as pool:
        list(pool.map(sleep, range(3)))
"""


def sleepers(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process whose two workers are at their tasks; its output ends when all three are gone."""
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS, encoding="utf-8")
    root = str(Path(__file__).resolve().parents[1])
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,
    )
    for _ in range(600):
        if (tmp_path / "0").exists() and (tmp_path / "1").exists():
            return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError("the workers have not begun")


def test_an_interrupt_ends_all_that_is_queued(tmp_path: Path) -> None:
    """^C, which goes to every process of a terminal, ends the workers and what waits for them."""
    process = sleepers(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert said.count(b"Traceback") == 1
    assert not (tmp_path / "2").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_when_their_parent_does(number: signal.Signals, tmp_path: Path) -> None:
    """Whatever ends the parent leaves no worker behind."""
    process = sleepers(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == -number


def test_workers_give_their_results() -> None:
    """The results come in the order of the tasks."""
    with worker_processes(2) as pool:
        assert list(pool.map(abs, [-3, 2, -1])) == [3, 2, 1]
