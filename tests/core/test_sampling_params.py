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
        ("typical_p", 0.0),
        ("typical_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", float("inf")),
        ("presence_penalty", 2.1),
        ("frequency_penalty", float("nan")),
        ("min_tokens", -1),
        ("min_tokens", 1.0),
        ("stop_token_ids", (-1,)),
        ("stop_token_ids", (2**31,)),
        ("bad_token_ids", 5),
        ("bad_token_ids", tuple(range(1025))),
        ("allowed_token_ids", (True,)),
        ("allowed_token_ids", ()),
        ("logit_bias", [1]),
        ("logit_bias", {"1": 2.0}),
        ("logit_bias", {-1: 2.0}),
        ("include_stop_str_in_output", None),
        ("skip_special_tokens", 0),
    ],
)
def test_a_wrong_value_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=f"^{name} must (be|hold) ") as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 1, "top_p": 1},
        {"stop": ["a", "b"]},
        {"seed": -(2**63), "max_tokens": 1, "n": 128},
        {"logit_bias": {5: -100, 7: 0.5}},
        {"allowed_token_ids": (3,)},
    ],
)
def test_what_is_accepted_crosses_the_wire(given: dict[str, Any]) -> None:
    sampling = SamplingParams(**given)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(sampling), type=SamplingParams)
    for name, value in given.items():
        assert getattr(back, name) == (tuple(value) if name == "stop" else value)


def test_a_wrong_bias_is_named_by_its_token() -> None:
    for bias in (100.5, float("nan"), "1", True):
        with pytest.raises(InvalidValueError, match=r"^logit_bias\.7 must be a number from -100 to 100") as caught:
            SamplingParams(logit_bias={3: 1.0, 7: bias})  # type: ignore[dict-item]  # that is the point
        assert caught.value.param == "logit_bias.7"


def test_parameters_that_leave_nothing_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="that bad_token_ids does not") as caught:
        SamplingParams(allowed_token_ids=(1, 2), bad_token_ids=(2, 3, 1))
    assert caught.value.param == "allowed_token_ids"
    with pytest.raises(InvalidValueError, match="min_tokens is 5 and max_tokens is 4") as caught:
        SamplingParams(min_tokens=5, max_tokens=4)
    assert caught.value.param == "min_tokens"
