"""Parsing: every wrong body gives an error that names the field, the value and what to do."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core.sampling_params import SamplingParams
from forebay.errors import InvalidValueError, NotFoundError, RequestError
from forebay.server.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS
from forebay.server.openai.messages import parse_messages, template_arguments
from forebay.server.openai.parse import check_model, check_token_ids, parse, parse_prompts, shorten
from forebay.server.openai.requests import ChatBody, CompletionBody, DetokenizeBody
from forebay.server.openai.sampling import chat_sampling, completion_sampling, include_usage
from forebay.structured.tools.request import parse_tool_request

HELLO = [{"role": "user", "content": "hello"}]


def completion(**body: Any) -> CompletionBody:
    return parse(json.dumps({"model": "m", "prompt": "p"} | body).encode(), CompletionBody, COMPLETION_FIELDS)


def chat(**body: Any) -> ChatBody:
    return parse(json.dumps({"model": "m", "messages": HELLO} | body).encode(), ChatBody, CHAT_FIELDS)


def completion_params(**body: Any) -> SamplingParams:
    return completion_sampling(completion(**body))


def chat_params(**body: Any) -> SamplingParams:
    return chat_sampling(chat(**body))


def read_completion(body: bytes) -> None:
    """Everything that can refuse a completion body."""
    parsed = parse(body, CompletionBody, COMPLETION_FIELDS)
    include_usage(parsed)
    completion_sampling(parsed)
    parse_prompts(parsed.prompt, parsed.n)


def read_chat(body: bytes) -> None:
    """Everything that can refuse a chat body."""
    parsed = parse(body, ChatBody, CHAT_FIELDS)
    include_usage(parsed)
    chat_sampling(parsed)
    parse_messages(parsed.messages)
    template_arguments(parsed, "{{ messages }}")
    parse_tool_request(parsed.tools, parsed.tool_choice, parsed.parallel_tool_calls)


def test_sampling_fields_arrive() -> None:
    given: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": -3,
        "stop": "x",
        "n": 2,
        "max_tokens": 5,
    }
    expected = SamplingParams(**(given | {"stop": ("x",), "logprobs": 3, "ignore_eos": True}))
    assert completion_params(**given, logprobs=3, ignore_eos=True) == expected
    assert chat_params(**given, logprobs=True, top_logprobs=3, ignore_eos=True) == expected


def test_defaults_and_nulls_are_the_same() -> None:
    nothing = dict.fromkeys(
        (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "typical_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
            "allowed_token_ids",
            "bad_token_ids",
            "min_tokens",
            "stop_token_ids",
            "include_stop_str_in_output",
            "skip_special_tokens",
            "seed",
            "stop",
            "n",
            "max_tokens",
            "logprobs",
        )
    )
    assert completion_params(**nothing) == chat_params(**nothing) == completion_params() == SamplingParams()
    assert completion_params(stop=[]).stop == ()
    assert completion_params(stop=["a", "b"]).stop == ("a", "b")
    assert chat_params(logprobs=True).logprobs == 0
    assert chat_params(max_completion_tokens=9).max_tokens == chat_params(max_tokens=9).max_tokens == 9


completions__body__param__message = [
    ({"prompt": None}, "prompt", "prompt is required"),
    ({"model": None}, "model", "model is required"),
    ({"prompt": {}}, "prompt", "prompt must be a string or an array, got an object"),
    ({"prompt": [1, True]}, "prompt[1]", "prompt[1] must be an integer or a string or an array, got true"),
    ({"prompt": [1, "a"]}, "prompt[1]", 'prompt[1] is "a", unlike prompt[0]'),
    ({"prompt": [[1], [2.5]]}, "prompt[1][0]", "prompt[1][0] must be an integer, got 2.5"),
    ({"prompt": []}, "prompt", "prompt must not be an empty array"),
    ({"prompt": ["a"] * 100, "n": 2}, "prompt", "prompt has 100 entries and n is 2"),
    ({"temperature": "hot"}, "temperature", 'temperature must be a number, got "hot"'),
    ({"temperature": -1}, "temperature", "temperature must be a number from 0 to 100, got -1"),
    ({"top_p": 0}, "top_p", "top_p must be a number above 0"),
    ({"n": 1.5}, "n", "n must be an integer, got 1.5"),
    ({"n": 0}, "n", "n must be an integer from 1 to 128, got 0"),
    ({"n": 10**30}, "n", "n must be an integer <= 9223372036854775807"),
    ({"seed": 2**64}, "seed", "seed must be an integer <= 9223372036854775807, got 18446744073709551616"),
    ({"stop": [1]}, "stop[0]", "stop[0] must be a string, got 1"),
    ({"stop": [""]}, "stop", "stop must be at most 16 strings, none of them empty"),
    ({"stream": "yes"}, "stream", 'stream must be true or false, got "yes"'),
    ({"logprobs": True}, "logprobs", "logprobs must be an integer, got true"),
    ({"logprobs": 21}, "logprobs", "logprobs must be an integer from 0 to 20, got 21"),
    ({"user": 5}, "user", "user must be a string, got 5"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "must be true or false, got 1"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "stream_options is only allowed with stream: true"),
    ({"stream_options": {"incl": True}}, "stream_options.incl", "unknown field 'stream_options.incl'"),
    ({"best_of": 2, "n": 3}, "best_of", "best_of must be an integer from n=3 to 128, got 2"),
    ({"best_of": 129}, "best_of", "from n=1 to 128, got 129"),
    ({"best_of": 3, "stream": True}, "best_of", "cannot be streamed"),
    ({"best_of": 2.5}, "best_of", "best_of must be an integer, got 2.5"),
    ({"logit_bias": {"x": 1}}, "logit_bias", 'every key of logit_bias must be a token id, got "x"'),
    ({"logit_bias": {"-1": 1}}, "logit_bias", 'got "-1"'),
    ({"logit_bias": {"٣": 1}}, "logit_bias", "must be a token id"),
    ({"logit_bias": {"5": "1"}}, "logit_bias", "every value of logit_bias must be a number"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5", "from -100 to 100, got 101"),
    ({"logit_bias": []}, "logit_bias", "logit_bias must be an object, got an array"),
    ({"allowed_token_ids": []}, "allowed_token_ids", "must hold a token"),
    ({"stop_token_ids": [1.5]}, "stop_token_ids[0]", "stop_token_ids[0] must be an integer, got 1.5"),
    ({"bad_token_ids": [-7]}, "bad_token_ids", "a list of at most 1024 token ids, got [-7]"),
    ({"presence_penalty": 2.5}, "presence_penalty", "from -2 to 2, got 2.5"),
    ({"repetition_penalty": 0}, "repetition_penalty", "from 0.01 to 100"),
    ({"min_tokens": 3, "max_tokens": 2}, "min_tokens", "min_tokens is 3 and max_tokens is 2"),
    ({"skip_special_tokens": "no"}, "skip_special_tokens", 'must be true or false, got "no"'),
]


@pytest.mark.parametrize(("body", "param", "message"), completions__body__param__message)
def test_wrong_completion_bodies(body: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_completion(json.dumps({"model": "m", "prompt": "p"} | body).encode())
    assert (caught.value.param, caught.value.http_status) == (param, 400)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


CALL: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}

chat__body__param__message = [
    ({"messages": []}, "messages", "messages must hold at least one message"),
    ({"messages": [5]}, "messages[0]", "messages[0] must be an object, got 5"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "messages[0].role is required"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0].content is required"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "must be a string or an array, got 1"),
    ({"messages": [{"role": "owl", "content": "x"}]}, "messages[0].role", "must be one of system, developer, user"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "use 'tool'"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "is required with role tool"),
    ({"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]}, "messages[0].tool_call_id", "role tool"),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content", "messages[0].content is required"),
    ({"messages": [*HELLO, {"role": "user", "content": "x", "nam": "y"}]}, "messages[1].nam", "did you mean 'name'?"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
        "messages[0].tool_calls[0].type",
        "is required",
    ),
    (
        {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
        "messages[0].tool_calls",
        "belongs to role assistant, got user",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [CALL | {"function": {"name": "f", "arguments": {}}}]}]},
        "messages[0].tool_calls[0].function.arguments",
        "must be a string",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [CALL | {"function": {"nam": "f"}}]}]},
        "messages[0].tool_calls[0].function.nam",
        "did you mean 'name'?",
    ),
    ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools", "is set by the server"),
    ({"reasoning_effort": "high"}, "reasoning_effort", "chat template does not use it"),
    ({"thinking_token_budget": -1}, "thinking_token_budget", "must be an integer >= 0"),
    ({"chat_template": "{{ messages }}"}, "chat_template", "a template is code"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
        "messages[0].content[0].type",
        "send parts of type 'text'",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[0].content[0].text",
        "messages[0].content[0].text must be a string, got 1",
    ),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", 'must be an object, got "x"'),
    ({"logprobs": 1}, "logprobs", "logprobs must be true or false, got 1"),
    ({"top_logprobs": 2}, "top_logprobs", "top_logprobs needs logprobs: true"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20, got 21"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "give one of them"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "at least 1, got 0"),
    ({"metadata": {"a": 1}}, "metadata", "every value of metadata must be a string"),
    ({"metadata": {"a" * 65: "b"}}, "metadata", "every key of metadata must be a string of length <= 64"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "is required"),
    ({"tools": {}}, "tools", "must be an array"),
    ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "must be true or false"),
]


@pytest.mark.parametrize(("body", "param", "message"), chat__body__param__message)
def test_wrong_chat_bodies(body: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_chat(json.dumps({"model": "m", "messages": HELLO} | body).encode())
    assert (caught.value.param, caught.value.http_status) == (param, 400)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


not_json__message = [
    (b"", "not valid JSON"),
    (b"{", "not valid JSON"),
    (b"[]", "must be a JSON object, got an array"),
    (b"null", "must be a JSON object, got null"),
    (b'{"a":NaN}', "a has a number that is not finite or too large: NaN; .* send a finite number"),
    (b'{"b":1,"a":[-1e999]}', "a has a number that is not finite or too large: -1e999; "),
    (b'{"a":"\xff"}', "a has text that is not whole Unicode characters"),
    (b'{"a":"\\ud800"}', "a has text that is not whole Unicode characters"),
    (b'{"\\udc00":NaN}', "the name of a field has text that is not whole"),
    (b'{"a":tru}', r"a is not valid JSON: Expecting value \(character 5\)"),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nests JSON too deeply"),
    (b'{"model":"m","prompt":"p","n":' + b"9" * 10000 + b"}", r"n has a number .*: 99999999999999999999\.\.\.;"),
]


@pytest.mark.parametrize(("body", "message"), not_json__message)
def test_bodies_that_are_no_json_object(body: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse(body, CompletionBody, COMPLETION_FIELDS)


def test_messages_take_the_form_templates_expect() -> None:
    raw: list[dict[str, Any]] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
        {"role": "assistant", "content": "c", "tool_calls": [], "refusal": None},
        {"role": "assistant", "tool_calls": [CALL, CALL | {"function": {"name": "g", "arguments": '{"a":'}}]},
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
        {"role": "assistant", "content": "d", "reasoning_content": "so"},
    ]
    assert parse_messages(raw) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\nb", "name": "Ann"},
        {"role": "assistant", "content": "c"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}, "id": "1"},
                {"type": "function", "function": {"name": "g", "arguments": '{"a":'}, "id": "1"},
            ],
        },
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
        {"role": "assistant", "content": "d", "reasoning_content": "so"},
    ]


def test_reasoning_effort_reaches_a_template_that_uses_it() -> None:
    raw = json.dumps({"model": "m", "messages": HELLO, "reasoning_effort": "low", "chat_template_kwargs": {"a": 1}})
    body = parse(raw.encode(), ChatBody, CHAT_FIELDS)
    assert template_arguments(body, "{{ reasoning_effort }}") == {"a": 1, "reasoning_effort": "low"}


def test_prompt_shapes() -> None:
    assert parse_prompts("a", 1) == ["a"]
    assert parse_prompts(["a", "b"], 1) == ["a", "b"]
    assert parse_prompts([1, 2], 1) == [[1, 2]]
    assert parse_prompts([[1], [2, 3]], 1) == [[1], [2, 3]]


def test_token_ids_are_in_the_vocabulary() -> None:
    assert check_token_ids([0, 9], 10, "prompt") == [0, 9]
    for ids, param in (([], "prompt"), ([1, 10], "prompt[1]"), ([-1], "prompt[0]"), ([0, 10**99], "prompt[1]")):
        with pytest.raises(InvalidValueError) as caught:
            check_token_ids(ids, 10, "prompt")
        assert caught.value.param == param
    assert parse(b'{"tokens":[]}', DetokenizeBody).tokens == []


def test_the_model_must_be_the_served_one() -> None:
    check_model("m", "m")
    with pytest.raises(NotFoundError, match="model \"gpt-5\" is not served here; use 'm'") as caught:
        check_model("gpt-5", "m")
    assert (caught.value.param, caught.value.http_status) == ("model", 404)


def test_values_are_shown_short() -> None:
    assert shorten("x" * 1000) == '"' + "x" * 60 + '..."'
    assert shorten(10**5000) == "an integer of over 60 digits"
    assert shorten({"a": [1] * 1000}) == "an object"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted({*CHAT_FIELDS, *COMPLETION_FIELDS}))
MESSAGE_LIKE = st.dictionaries(st.sampled_from(["role", "content", "name", "audio", "text", "type"]), JSON, max_size=4)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(NAMES, JSON | st.lists(MESSAGE_LIKE, max_size=2), max_size=5))
def test_any_json_is_typed_or_refused(body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    for read in (read_completion, read_chat):
        with contextlib.suppress(RequestError):  # any other exception fails the test
            read(data)
