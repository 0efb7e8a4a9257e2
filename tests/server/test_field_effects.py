"""What fields do that no other test over HTTP shows (tests/support/field_tests.py says which test shows which)."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

MODEL = "tiny-chat"
PROMPT = "Once upon a time"
EOS = 2


def ask(client: openai.OpenAI, stream: bool, **fields: Any) -> tuple[str, str | None]:
    """Text and finish reason of one completion."""
    made: Any = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=8, temperature=0, stream=stream, extra_body=fields
    )
    choices = [event.choices[0] for event in made] if stream else made.choices
    return "".join(choice.text for choice in choices), choices[-1].finish_reason


@pytest.mark.parametrize("stream", [False, True])
def test_ends_can_be_added_and_taken_away(client: openai.OpenAI, stream: bool) -> None:
    at_once = {"logit_bias": {str(EOS): 100}}
    assert ask(client, stream, **at_once) == ("", "stop")
    assert ask(client, stream, **at_once, ignore_eos=True) == ("", "length")
    assert ask(client, stream, **at_once, ignore_eos=True, skip_special_tokens=False) == ("</s>" * 8, "length")
    whole, _ = ask(client, stream)
    logprobs = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=8, temperature=0, logprobs=0)
    assert logprobs.choices[0].logprobs is not None
    pieces = logprobs.choices[0].logprobs.tokens or []
    found: Any = client.post(
        "/../tokenize", body={"prompt": pieces[3].strip(), "add_special_tokens": False}, cast_to=object
    )
    token = found["tokens"][-1]
    stopped = ask(client, stream, stop_token_ids=[token])
    shown = ask(client, stream, stop_token_ids=[token], include_stop_str_in_output=True)
    assert stopped[1] == shown[1] == "stop"
    assert whole.startswith(shown[0])
    assert shown[0].startswith(stopped[0])
    assert len(stopped[0]) < len(shown[0]) < len(whole)


def test_a_tiny_typical_mass_keeps_one_token(client: openai.OpenAI) -> None:
    def texts(**fields: Any) -> set[str]:
        made = [
            client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=12, seed=seed, extra_body=fields)
            for seed in range(4)
        ]
        return {answer.choices[0].text for answer in made}

    assert len(texts(typical_p=1e-6)) == 1
    assert len(texts(typical_p=1.0)) > 1


def test_objects_and_tags_hold_the_output(client: openai.OpenAI) -> None:
    def text(outputs: dict[str, Any], seed: int) -> str:
        made = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=40, seed=seed, extra_body={"structured_outputs": outputs}
        )
        return made.choices[0].text

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tag = {"structures": [{"begin": "the", "schema": schema, "end": "!"}], "triggers": ["the"]}
    for seed in range(2):
        assert text({"json_object": True}, seed).lstrip().startswith("{")
        _, _, behind = text({"structural_tag": {"type": "structural_tag", **tag}}, seed).partition("the")
        assert not behind or behind.lstrip().startswith("{")


def test_a_described_schema_is_the_same_schema(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "seed": 3, "max_tokens": 60}
    answers = []
    for extra in ({}, {"description": "for people"}):
        wanted: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema} | extra}
        made = client.chat.completions.create(**asked, response_format=wanted)
        answers.append(made.choices[0].message.content)
    assert answers[0] == answers[1]
    assert json.loads(answers[0])["a"] in (1, 2)
