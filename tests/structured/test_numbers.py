"""A number is in the grammar of its bounds exactly when it is between them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.errors import InvalidValueError
from tests.structured.support import accepts, compiled_schema

BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def halves(limit: int) -> st.SearchStrategy[int | float]:
    """Integers, and numbers of a few decimals, near zero and near each other."""
    decimals = st.tuples(st.integers(-limit * 100, limit * 100), st.sampled_from([1, 10, 100])).map(
        lambda t: t[0] / t[1]
    )
    return st.one_of(st.integers(-limit, limit), decimals)


def texts_near(values: list[int | float]) -> list[str]:
    """Numbers around bounds, as JSON writes them without an exponent."""
    steps = [
        Decimal(s) for s in ("0", "1", "-1", "0.1", "-0.1", "0.01", "-0.01", "0.001", "-0.001", "0.5", "10", "-10")
    ]
    near = {Decimal(repr(v)) + step for v in values for step in steps} | {Decimal(0), Decimal("0.05"), Decimal(-3)}
    plain = {f"{n:f}" for n in near}
    shorter = {t.rstrip("0").rstrip(".") if "." in t else t for t in plain}
    return sorted(t for t in plain | shorter if t not in ("-0", ""))


def holds(schema: dict[str, Any], text: str) -> bool:
    value = Decimal(text)
    limits = {name: Decimal(repr(schema[name])) for name in BOUNDS if name in schema}
    return (
        value >= limits.get("minimum", value)
        and value <= limits.get("maximum", value)
        and not value <= limits.get("exclusiveMinimum", value - 1)
        and not value >= limits.get("exclusiveMaximum", value + 1)
        and ("multipleOf" not in schema or value % Decimal(repr(schema["multipleOf"])) == 0)
        and (schema["type"] == "number" or value == int(value))
    )


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["number", "integer"]),
    st.dictionaries(st.sampled_from(BOUNDS), halves(12), min_size=1, max_size=3),
    st.sampled_from([None, None, 1, 3, 0.5, 0.25, 0.01, 7]),
)
def test_what_is_accepted_is_between_the_bounds(kind: str, bounds: dict[str, Any], multiple: float | None) -> None:
    schema = {"type": kind, **bounds} | ({"multipleOf": multiple} if multiple else {})
    try:
        grammar = compiled_schema(schema)
    except InvalidValueError:
        assert len(bounds) > 1 or multiple, schema  # nothing may be between them, or no multiple
        return
    texts = texts_near(list(bounds.values()))
    assert [t for t in texts if accepts(grammar, t) and not holds(schema, t)] == [], schema


@settings(max_examples=150, deadline=None)
@given(st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_integers_between_integers_are_all_accepted(low: int, high: int) -> None:
    low, high = min(low, high), max(low, high)
    grammar = compiled_schema({"type": "integer", "minimum": low, "maximum": high})
    for value in (low - 1, low, (low + high) // 2, high, high + 1):
        assert accepts(grammar, str(value)) == (low <= value <= high)


def test_large_integers_are_exact() -> None:
    grammar = compiled_schema({"type": "integer", "minimum": 2**53 - 1, "maximum": 2**53})
    assert [n for n in range(2**53 - 3, 2**53 + 3) if accepts(grammar, str(n))] == [2**53 - 1, 2**53]
