"""Outputs held to a grammar, in the engine: alone, in a batch, beside others, and when the grammar is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from forebay import LLM, SamplingParams
from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.errors import InvalidValueError
from tests.engine.conftest import stories_profile

PROMPTS = ["Once upon a time", "Lily and Tom", "The dog", "One day, a big"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(profile=stories_profile(**{"backend.name": "native", "max_model_len": 512})) as made:
        yield made


def spec(kind: GrammarKind, source: Any = "") -> GrammarSpec:
    return GrammarSpec(kind=kind, source=source if isinstance(source, str) else json.dumps(source))


def asked(grammar: GrammarSpec, **more: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 200, "temperature": 1.0, "seed": 3, "grammar": grammar} | more)


def test_each_kind_holds_the_output(llm: LLM) -> None:
    grammar = 'start: "<" WORD ">"\nWORD: /[a-z]{3,6}/'
    for one, fits in [
        (spec(GrammarKind.CHOICE, ["yes", "no", "maybe"]), r"yes|no|maybe"),
        (spec(GrammarKind.REGEX, r"[0-9]{3}-[a-f]{2}"), r"[0-9]{3}-[a-f]{2}"),
        (spec(GrammarKind.GRAMMAR, grammar), r"<[a-z]{3,6}>"),
    ]:
        for result in llm.generate(PROMPTS, asked(one)):
            (completion,) = result.completions
            assert re.fullmatch(fits, completion.text), completion.text
            assert completion.finish_reason == "stop"


def test_json_in_a_batch_equals_json_alone(llm: LLM) -> None:
    schema = asked(spec(GrammarKind.JSON_SCHEMA, SCHEMA), n=3)
    together = llm.generate([*PROMPTS, *PROMPTS], [schema] * 4 + [SamplingParams(max_tokens=60, seed=1)] * 4)
    finished = 0
    for prompt, result in zip(PROMPTS, together, strict=False):
        alone = llm.generate(prompt, schema)[0]
        assert [c.token_ids for c in result.completions] == [c.token_ids for c in alone.completions]
        for completion in result.completions:
            if completion.finish_reason == "stop":
                finished += 1
                value = json.loads(completion.text)
                assert {*value} == {"name", "age", "tags"}
                assert 0 <= value["age"] <= 99
                assert len(value["name"]) <= 8
    assert finished > 6


def test_a_cut_output_says_so(llm: LLM) -> None:
    long = asked(spec(GrammarKind.REGEX, "[a-z]{200}"), max_tokens=8)
    (completion,) = llm.generate(PROMPTS[0], long)[0].completions
    assert completion.finish_reason == "length"
    assert re.fullmatch("[a-z]+", completion.text)


def test_the_contract_stands_in_the_events(llm: LLM) -> None:
    one = spec(GrammarKind.CHOICE, ["yes", "no"])
    (completion,) = llm.generate(PROMPTS[0], asked(one))[0].completions
    (event,) = [event for event in completion.events if event.kind == "grammar"]
    kind, _, digest, backend, version = event.detail.split(" ")
    assert (kind, digest, backend) == ("choice", one.digest(), "llguidance")
    assert re.fullmatch(r"[0-9.]+\+[0-9]+", version)


def test_what_cannot_be_enforced_is_refused_and_disturbs_nobody(llm: LLM) -> None:
    neighbour = llm.stream(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=20))
    first = next(neighbour)
    wrong = spec(GrammarKind.JSON_SCHEMA, {"not": {"type": "string"}})
    with pytest.raises(InvalidValueError, match="/not") as caught:
        llm.generate(PROMPTS[1], asked(wrong))
    assert caught.value.param == "response_format"
    text = first.text + "".join(chunk.text for chunk in neighbour)
    assert text == llm.generate(PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=20))[0].text
    assert llm.stats()["blocks"]["used"] == 0


def test_a_grammar_and_other_bars_that_leave_nothing(llm: LLM) -> None:
    one = spec(GrammarKind.CHOICE, ["a", "b"])
    with pytest.raises(InvalidValueError, match="and the grammar leave none"):
        llm.generate(PROMPTS[0], asked(one, min_tokens=9))
    with pytest.raises(InvalidValueError, match="exclude each other"):
        asked(one, ignore_eos=True)


def test_grammars_are_counted(llm: LLM) -> None:
    before = {result: llm.metrics.value("forebay_grammar_outputs", result) for result in ("parsed", "truncated")}
    compiled = sum(llm.metrics.histograms["forebay_grammar_seconds"].counts)
    llm.generate(PROMPTS[:3], asked(spec(GrammarKind.CHOICE, ["yes", "no"])))
    llm.generate(PROMPTS[0], asked(spec(GrammarKind.REGEX, "[a-z]{200}"), max_tokens=8))
    assert llm.metrics.value("forebay_grammar_outputs", "parsed") == before["parsed"] + 3
    assert llm.metrics.value("forebay_grammar_outputs", "truncated") == before["truncated"] + 1
    assert sum(llm.metrics.histograms["forebay_grammar_seconds"].counts) == compiled + 4
