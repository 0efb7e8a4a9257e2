"""SamplingParams is checked whole when it is made: what it lets through, the engine process can read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forebay import SamplingParams
from forebay.errors import InvalidValueError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 2.5),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", True),
        ("temperature", None),
        ("top_p", 0.0),
        ("top_p", "0.5"),
        ("top_k", 1.5),
        ("min_p", 1.0),
        ("seed", 1.5),
        ("seed", 2**63),
        ("stop", "END"),
        ("stop", (1,)),
        ("stop", ("",)),
        ("stop", ("x",) * 17),
        ("n", 2.0),
        ("n", 129),
        ("logprobs", True),
        ("logprobs", 21),
        ("ignore_eos", 1),
    ],
)
def test_a_wrong_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=f"^{name} must be ") as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    "given", [{}, {"temperature": 1, "top_p": 1}, {"stop": ["a", "b"]}, {"seed": -(2**63), "max_tokens": 1, "n": 128}]
)
def test_what_is_accepted_crosses_the_wire(given: dict[str, Any]) -> None:
    sampling = SamplingParams(**given)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(sampling), type=SamplingParams)
    for name, value in given.items():
        assert getattr(back, name) == (tuple(value) if name == "stop" else value)
