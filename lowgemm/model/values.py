"""What the functions of the model accept as numbers, in one place."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TypeVar

from lowgemm.errors import ArgumentValueError

__all__ = [
    "LARGEST_COUNT",
    "LARGEST_RATE",
    "SMALLEST_RATE",
    "ceil_div",
    "count",
    "next_power_of_two",
    "positive",
    "positive_or_zero",
    "several",
    "share",
]

_Item = TypeVar("_Item")

#: Sizes beyond this are no problem's. Products of a few still are floating-point numbers.
LARGEST_COUNT = 2**40
#: Rates, times and factors lie between these; so do their quotients within what a float holds.
SMALLEST_RATE, LARGEST_RATE = 1e-9, 1e15
# A quotient of the two, with room: what a tile's side may come to.
_LARGEST_SIDE = 1e30
_SHOWN = 40


def _shown(value: object) -> str:
    """A value for a message, however long it is."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def positive(name: str, value: object, *, most: float = LARGEST_RATE) -> float:
    """A number from :data:`SMALLEST_RATE` to ``most``.

    Raises
    ------
    ArgumentValueError
        It is zero, negative, infinite, NaN, too small or too large, a truth value, or no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentValueError(f"{name} = {_shown(value)} is no number", "give a positive number")
    if not SMALLEST_RATE <= value <= most:
        raise ArgumentValueError(
            f"{name} = {_shown(value)}", f"give a number from {SMALLEST_RATE:g} to {most:g}"
        )
    return value


def positive_or_zero(name: str, value: object) -> float:
    """Zero, or what :func:`positive` accepts.

    Raises
    ------
    ArgumentValueError
        It is neither.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        return 0.0
    return positive(name, value)


def count(name: str, value: object, *, least: int = 1) -> int:
    """A whole number from ``least`` to :data:`LARGEST_COUNT`.

    Raises
    ------
    ArgumentValueError
        It is smaller or larger, a truth value, or no whole number.
    """
    remedy = f"give a whole number of {least} or more"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentValueError(f"{name} = {_shown(value)} is no whole number", remedy) from None
    if not least <= number <= LARGEST_COUNT:
        raise ArgumentValueError(f"{name} = {_shown(number)}", f"{remedy}, at most {LARGEST_COUNT}")
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


def several(name: str, values: Iterable[_Item]) -> tuple[_Item, ...]:
    """At least one thing to choose from.

    Raises
    ------
    ArgumentValueError
        There is none, or it is no list.
    """
    try:
        found = tuple(values)
    except TypeError:
        raise ArgumentValueError(f"{name} = {_shown(values)}", "give a list") from None
    if not found:
        raise ArgumentValueError(f"no {name} to choose from", "name at least one")
    return found


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
    return 1 << (math.ceil(positive("value", value, most=_LARGEST_SIDE)) - 1).bit_length()
