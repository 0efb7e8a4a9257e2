"""Which numbers of a schema a grammar enforces exactly: the backend computes in float64 and in 32-bit decimals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, TypeGuard

from forebay.structured.refusal import Pointer, Refusal

LARGEST: Final = 2**53  # integers up to here are float64 values
LARGEST_INTEGER: Final = 2**63 - 1024  # the last float64 below 2^63; integers of the backend have 64 bits
_MAX_DIGITS: Final = 20  # before and behind the point
_MAX_COEFFICIENT: Final = 2**32 - 1
_SURE_DIGITS: Final = 15


def is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def exact_number(value: Any, at: Pointer, *, integers: bool = False) -> int | float:
    """The number. Refusal: not one, or one that float64 or a pattern of reasonable length cannot hold.

    integers: of a schema of integers only, whose bounds may be any float64 of 64-bit integers.
    """
    if not is_number(value):
        raise Refusal("must be a number", at)
    if integers and abs(value) <= LARGEST_INTEGER and value == int(value) == int(float(value)):
        return int(value)
    if not abs(value) <= LARGEST:  # NaN as well
        raise Refusal(f"must be from -2^53 to 2^53, where every integer is exact, got {value}", at)
    if isinstance(value, float) and len(positional(value)) > _MAX_DIGITS:
        raise Refusal(f"{value} has more than {_MAX_DIGITS} digits when written without an exponent", at)
    return value


def positional(value: float) -> str:
    """Decimal digits without an exponent."""
    return f"{Decimal(repr(value)):f}".lstrip("-").removesuffix(".0")


def exact_multiple(value: Any, at: Pointer) -> tuple[int, int]:
    """(coefficient, exponent): `value` = coefficient / 10^exponent, in lowest terms, as the backend will compute it."""
    if exact_number(value, at) <= 0:
        raise Refusal(f"must be above 0, got {value}", at)
    scaled, exponent = float(value), 0
    while scaled != math.floor(scaled) and scaled <= _MAX_COEFFICIENT:
        scaled, exponent = scaled * 10, exponent + 1
    if scaled > _MAX_COEFFICIENT or Decimal(int(scaled)).scaleb(-exponent) != Decimal(repr(value)):
        raise Refusal(f"{value} has too many digits", at)
    coefficient = int(scaled)
    while exponent and coefficient % 10 == 0:
        coefficient, exponent = coefficient // 10, exponent - 1
    return coefficient, exponent


def multiples_combine(multiples: Iterable[tuple[int, int]]) -> bool:
    """Whether the least common multiple of any of them fits what the backend computes it in."""
    distinct = set(multiples)
    exponent = max((e for _, e in distinct), default=0)
    return len(distinct) < 2 or math.prod(c * 10 ** (exponent - e) for c, e in distinct) <= _MAX_COEFFICIENT


def check_range(schema: dict[str, Any], at: Pointer) -> None:
    """Refusal: bounds that no number is between."""
    low = max((schema[k] for k in ("minimum", "exclusiveMinimum") if k in schema), default=-math.inf)
    high = min((schema[k] for k in ("maximum", "exclusiveMaximum") if k in schema), default=math.inf)
    open_end = schema.get("exclusiveMinimum") == low or schema.get("exclusiveMaximum") == high
    if low > high or (low == high and open_end):
        raise Refusal(f"no number is between its bounds, {low} and {high}", at)


def open_bound(bound: int | float, at: Pointer, *, upper: bool) -> int | float:
    """The exclusive bound to give the backend: itself, or for some whole numbers a decimal just inside.

    Where a range lies between a whole number and the next one away from zero, the backend takes the first one in though
    it is excluded. The step is the last digit that float64 holds for sure; what is lost lies nearer to the bound.
    """
    away_from_zero = bound <= 0 if upper else bound >= 0
    if bound != int(bound) or not away_from_zero:
        return bound
    digits = len(str(abs(int(bound))))
    if digits >= _SURE_DIGITS:
        raise Refusal(f"{bound} has too many digits for an exclusive bound of numbers", at)
    step = Decimal(1).scaleb(digits - _SURE_DIGITS)
    return float(int(bound) + (-step if upper else step))
