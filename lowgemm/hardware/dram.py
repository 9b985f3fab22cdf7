"""Global memory: what of its peak a reader gets, bytes in flight, and the plain interleave."""

from __future__ import annotations

from lowgemm.errors import ArgumentValueError

__all__ = [
    "READ_SHARE",
    "bytes_per_cycle_per_sm",
    "channels_touched",
    "gb_per_s_by_flight",
    "gb_per_s_of_cycles",
]

#: Reading one large array in order gets about this share of the data sheet's peak; refresh,
#: activation and turn-around take the rest. Public read and copy benchmarks (BabelStream, RRZE's
#: gpu-benches) give 0.87 to 0.94 on GPUs from the A100 to the H100.
READ_SHARE = 0.92


def bytes_per_cycle_per_sm(gb_per_s: float, sms: int, clock_ghz: float) -> float:
    """A rate of the whole GPU as bytes per SM clock cycle for each SM.

    Examples
    --------
    >>> round(bytes_per_cycle_per_sm(2039, 108, 1.41), 2)
    13.39
    """
    _positive(gb_per_s=gb_per_s, sms=sms, clock_ghz=clock_ghz)
    return gb_per_s / (sms * clock_ghz)


def gb_per_s_of_cycles(bytes_per_cycle: float, sms: int, clock_ghz: float) -> float:
    """The inverse of :func:`bytes_per_cycle_per_sm`."""
    _positive(bytes_per_cycle=bytes_per_cycle, sms=sms, clock_ghz=clock_ghz)
    return bytes_per_cycle * sms * clock_ghz


def gb_per_s_by_flight(bytes_in_flight: float, latency_cycles: float, clock_ghz: float) -> float:
    """The rate that requests in flight sustain, by Little's law: bytes over latency.

    Parameters
    ----------
    bytes_in_flight
        Bytes asked for and not yet there, of the whole GPU.
    latency_cycles
        SM clock cycles from asking to having.
    clock_ghz
        The SM clock.

    Examples
    --------
    >>> round(gb_per_s_by_flight(132 * 13 * 1024, 688, 1.98))
    5057
    """
    _positive(bytes_in_flight=bytes_in_flight, latency_cycles=latency_cycles, clock_ghz=clock_ghz)
    return bytes_in_flight / latency_cycles * clock_ghz


def channels_touched(
    pitch_bytes: int, rows: int, *, channels: int = 32, interleave_bytes: int = 256
) -> int:
    """Memory channels in which one column's elements lie where addresses are dealt out plainly.

    A plain interleave gives each channel ``interleave_bytes`` in turn, as GPUs before Fermi did
    with their partitions of 256 bytes; later ones hash the address instead.

    Parameters
    ----------
    pitch_bytes
        From one row to the next.
    rows
        Rows of the column.
    channels, interleave_bytes
        How many channels take turns, and after how many bytes.

    Examples
    --------
    >>> channels_touched(32768, 4096)
    1
    >>> channels_touched(32768 + 128, 4096)
    32
    """
    _positive(
        pitch_bytes=pitch_bytes, rows=rows, channels=channels, interleave_bytes=interleave_bytes
    )
    return len({row * pitch_bytes // interleave_bytes % channels for row in range(rows)})


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ArgumentValueError(f"{name} = {value!r}", "give a number above 0")
