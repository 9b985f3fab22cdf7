"""Power and energy of launches, on a clock and a counter that the test moves."""

from __future__ import annotations

import pytest
from fakes import TimedEvent, TimedStream

from lowgemm.errors import MeasurementError, UnmeasurableError
from lowgemm.measure import PowerMeter, PowerRun, measure_power, power_of


class Machine:
    """A GPU that draws 500 W at work, and whose counter moves every 100 ms."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.launches = 0

    def launch(self) -> None:
        """Take 3 ms."""
        self.launches += 1
        self.now_us += 3000

    def now_s(self) -> float:
        """The host's time."""
        return self.now_us / 1e6

    def joules(self) -> float:
        """What the counter shows: the state at its last step."""
        return 500.0 * (self.now_us // 100_000) * 0.1

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_us += seconds * 1e6


def run(machine: Machine, meter: PowerMeter) -> PowerRun:
    """A measurement on the machine's time."""
    return measure_power(
        machine.launch,
        stream=TimedStream(),
        new_event=lambda: TimedEvent(machine),
        meter=meter,
        now_s=machine.now_s,
    )


def test_power_and_time_give_the_energy_of_a_launch() -> None:
    """500 W for 3 ms are 1.5 J, though the counter moves in steps of 50 J."""
    machine = Machine()
    seen = run(machine, PowerMeter(machine.joules, lambda: None, lambda: 1980))
    assert seen.time_us == pytest.approx(3000)
    assert seen.power_w == pytest.approx(500, rel=0.02)
    assert seen.joules == pytest.approx(1.5, rel=0.02)
    assert seen.clock_mhz == 1980
    assert 1.5 <= machine.now_s() <= 2.1
    assert seen.launches < machine.launches


def test_without_a_counter_the_last_reading_of_power_counts() -> None:
    """NVML's power is a mean of the last second: the first readings still hold what was before."""
    machine = Machine()
    seen = run(machine, PowerMeter(lambda: None, lambda: 100 + 100 * machine.now_s()))
    assert seen.power_w == pytest.approx(100 + 100 * machine.now_s(), rel=0.05)
    assert seen.clock_mhz is None


def test_no_reading_at_all_is_told() -> None:
    """A typed error, which the laboratory shows as the reason for what is missing."""
    machine = Machine()
    with pytest.raises(UnmeasurableError, match="NVML tells neither") as caught:
        run(machine, PowerMeter(lambda: None, lambda: None))
    assert isinstance(caught.value, MeasurementError)


def test_idle_power_is_read_while_nothing_runs() -> None:
    """The same counter, with nothing launched."""
    machine = Machine()
    meter = PowerMeter(machine.joules, lambda: None)
    idle = power_of(meter, now_s=machine.now_s, sleep_s=machine.sleep)
    assert idle == pytest.approx(500, rel=0.02)
    assert machine.launches == 0
