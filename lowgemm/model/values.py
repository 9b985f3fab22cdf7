"""What the functions of the model accept as numbers, in one place."""

from __future__ import annotations

import math
import operator

from lowgemm.errors import ArgumentValueError

__all__ = ["ceil_div", "count", "next_power_of_two", "positive", "share"]


def positive(name: str, value: object) -> float:
    """A finite number above zero.

    Raises
    ------
    ArgumentValueError
        It is zero, negative, infinite, NaN, a truth value, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentValueError(f"{name} = {value!r} is no number", "give a positive number")
    if not math.isfinite(value) or value <= 0:
        raise ArgumentValueError(f"{name} = {value}", "give a positive, finite number")
    return value


def count(name: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least ``least``.

    Raises
    ------
    ArgumentValueError
        It is smaller, a truth value, or no whole number.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentValueError(
            f"{name} = {value!r} is no whole number", f"give a whole number of {least} or more"
        ) from None
    if number < least:
        raise ArgumentValueError(f"{name} = {number}", f"give a whole number of {least} or more")
    return number


def share(name: str, value: object) -> float:
    """A number above 0 and at most 1.

    Raises
    ------
    ArgumentValueError
        It is none.
    """
    number = positive(name, value)
    if number > 1:
        raise ArgumentValueError(f"{name} = {number}", "give a share above 0 and at most 1")
    return number


def ceil_div(value: int, unit: int) -> int:
    """How many units hold a value."""
    return -(-value // unit)


def next_power_of_two(value: float) -> int:
    """The smallest power of two that is not below a value.

    Raises
    ------
    ArgumentValueError
        The value is not positive and finite.

    Examples
    --------
    >>> next_power_of_two(38.5)
    64
    """
    return 1 << (math.ceil(positive("value", value)) - 1).bit_length()
