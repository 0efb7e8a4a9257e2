"""The field tables of Messages and Responses: nothing documented is missing, nothing is dropped, nothing breaks."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import anthropic.types
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses.input_token_count_params import InputTokenCountParams

from forebay.errors import InvalidValueError, RequestError, UnknownFieldError, UnsupportedFieldError
from forebay.server.anthropic import fields as messages_fields
from forebay.server.anthropic import parse as messages_parse
from forebay.server.anthropic import requests as messages_requests
from forebay.server.anthropic.conversation import conversation as messages_conversation
from forebay.server.anthropic.messages import MESSAGES
from forebay.server.anthropic.messages import sampling as messages_sampling
from forebay.server.anthropic.requests import CountTokensBody, MessagesBody
from forebay.server.anthropic.thinking import check_thinking
from forebay.server.anthropic.tools import tool_request as messages_tools
from forebay.server.naming import naming
from forebay.server.openai.fields import FieldTable, Kind, check_fields
from forebay.server.openai.responses import fields as responses_fields
from forebay.server.openai.responses import parse as responses_parse
from forebay.server.openai.responses import requests as responses_requests
from forebay.server.openai.responses.conversation import conversation as responses_conversation
from forebay.server.openai.responses.create import RESPONSES
from forebay.server.openai.responses.requests import InputTokensBody, ResponseBody
from forebay.server.openai.responses.tools import tool_request as responses_tools
from tests.server.test_fields import properties
from tests.support.shared import shared_path

HELLO = [{"role": "user", "content": "hello"}]
OLDER = {"temperature", "top_p", "top_k"}  # than the client that is installed, which has no arguments for them
HEADERS = {"user_profile_id", "workspace_id"}
NEWER = {"access_programs", "background_options", "image"}  # than the stored document


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    with gzip.open(shared_path("openapi/openai/serving_subset.json.gz")) as file:
        found: dict[str, Any] = json.load(file)["components"]["schemas"]
        return found


def test_every_documented_field_of_responses_has_a_row(schemas: dict[str, Any]) -> None:
    table = documented(responses_fields.RESPONSE_FIELDS) - NEWER
    assert properties(schemas, "CreateResponse") == table
    assert names_of(InputTokenCountParams) == documented(responses_fields.INPUT_TOKENS_FIELDS)
    messages = ("EasyInputMessage", "InputMessage", "OutputMessage")
    assert set().union(*(properties(schemas, name) for name in messages)) == set(responses_fields.ITEM_FIELDS)
    parts = ("InputTextContent", "OutputTextContent")
    assert set().union(*(properties(schemas, name) for name in parts)) == set(responses_fields.PART_FIELDS)
    assert properties(schemas, "ResponseTextParam") == set(responses_fields.TEXT_FIELDS)
    assert properties(schemas, "ResponseStreamOptions") == set(responses_fields.STREAM_OPTIONS_FIELDS)
    assert properties(schemas, "FunctionTool") | {"async"} == set(responses_fields.TOOL_FIELDS)
    assert properties(schemas, "FunctionToolCall") | {"async"} == set(responses_fields.CALL_FIELDS)
    assert properties(schemas, "FunctionCallOutputItemParam") == set(responses_fields.OUTPUT_FIELDS)
    assert properties(schemas, "ReasoningItem") == set(responses_fields.REASONING_ITEM_FIELDS)
    assert properties(schemas, "ReasoningTextContent") == set(responses_fields.REASONING_PART_FIELDS)
    assert properties(schemas, "Reasoning") == set(responses_fields.REASONING_FIELDS)
    assert properties(schemas, "ToolChoiceFunction") == set(responses_fields.NAMED_FIELDS)
    assert properties(schemas, "ToolChoiceAllowed") == set(responses_fields.ALLOWED_FIELDS)
    assert properties(schemas, "TextResponseFormatJsonSchema") == set(responses_fields.FORMAT_FIELDS)
    assert set(schemas["IncludeEnum"]["enum"]) == {responses_fields.LOGPROBS, *responses_fields.ABSENT_OUTPUT}


def documented(table: FieldTable) -> set[str]:
    return {name for name, field in table.items() if not field.ours}


def names_of(*typed_dicts: Any) -> set[str]:
    """The names in the body."""
    return set().union(*(typed_dict.__annotations__ for typed_dict in typed_dicts)) - HEADERS


def test_every_documented_field_of_messages_has_a_row() -> None:
    created = names_of(anthropic.types.message_create_params.MessageCreateParamsBase) | {"stream"}
    assert created == documented(messages_fields.MESSAGES_FIELDS) - OLDER
    assert names_of(anthropic.types.MessageCountTokensParams) == documented(messages_fields.COUNT_TOKENS_FIELDS)
    assert names_of(*get_args(anthropic.types.MessageParam)) == set(messages_fields.MESSAGE_FIELDS)
    assert names_of(anthropic.types.TextBlockParam) == set(messages_fields.TEXT_BLOCK_FIELDS)
    assert names_of(anthropic.types.CacheControlEphemeralParam) == set(messages_fields.CACHE_CONTROL_FIELDS)
    assert names_of(anthropic.types.MetadataParam) == set(messages_fields.METADATA_FIELDS)
    assert names_of(anthropic.types.ToolParam) == set(messages_fields.TOOL_FIELDS)
    assert names_of(*get_args(anthropic.types.ToolChoiceParam)) == set(messages_fields.TOOL_CHOICE_FIELDS)
    assert names_of(*get_args(anthropic.types.ThinkingConfigParam)) == set(messages_fields.THINKING_FIELDS)
    assert names_of(anthropic.types.OutputConfigParam) == set(messages_fields.OUTPUT_CONFIG_FIELDS)
    assert names_of(anthropic.types.JSONOutputFormatParam) == set(messages_fields.OUTPUT_FORMAT_FIELDS)
    assert names_of(anthropic.types.ThinkingBlockParam) == set(messages_fields.THINKING_BLOCK_FIELDS)
    assert names_of(anthropic.types.ToolUseBlockParam) == set(messages_fields.TOOL_USE_FIELDS)
    assert names_of(anthropic.types.ToolResultBlockParam) == set(messages_fields.TOOL_RESULT_FIELDS)


def test_every_documented_block_has_a_row() -> None:
    assert kinds_of(anthropic.types.ContentBlockParam) == set(messages_fields.BLOCKS)
    assert kinds_of(anthropic.types.tool_result_block_param.Content) == set(messages_fields.RESULT_BLOCKS)


def kinds_of(blocks: Any) -> set[str]:
    """The values of `type` in a union of typed dictionaries."""
    kinds = set()
    for block in get_args(blocks):
        (required,) = get_args(get_type_hints(block)["type"])
        kinds.add(required)
    return kinds


@pytest.mark.parametrize(
    ("type_", "table"),
    [
        (MessagesBody, messages_fields.MESSAGES_FIELDS),
        (CountTokensBody, messages_fields.COUNT_TOKENS_FIELDS),
        (messages_requests.InputMessage, messages_fields.MESSAGE_FIELDS),
        (messages_requests.TextBlock, messages_fields.TEXT_BLOCK_FIELDS),
        (messages_requests.ThinkingBlock, messages_fields.THINKING_BLOCK_FIELDS),
        (messages_requests.ToolUseBlock, messages_fields.TOOL_USE_FIELDS),
        (messages_requests.ToolResultBlock, messages_fields.TOOL_RESULT_FIELDS),
        (messages_requests.ToolDefinition, messages_fields.TOOL_FIELDS),
        (messages_requests.ToolChoiceBody, messages_fields.TOOL_CHOICE_FIELDS),
        (messages_requests.ThinkingBody, messages_fields.THINKING_FIELDS),
        (messages_requests.OutputConfig, messages_fields.OUTPUT_CONFIG_FIELDS),
        (messages_requests.OutputFormat, messages_fields.OUTPUT_FORMAT_FIELDS),
        (messages_requests.CacheControl, messages_fields.CACHE_CONTROL_FIELDS),
        (messages_requests.UserMetadata, messages_fields.METADATA_FIELDS),
        (ResponseBody, responses_fields.RESPONSE_FIELDS),
        (InputTokensBody, responses_fields.INPUT_TOKENS_FIELDS),
        (responses_requests.InputItem, responses_fields.ITEM_FIELDS),
        (responses_requests.CallItem, responses_fields.CALL_FIELDS),
        (responses_requests.OutputItem, responses_fields.OUTPUT_FIELDS),
        (responses_requests.ReasoningItem, responses_fields.REASONING_ITEM_FIELDS),
        (responses_requests.ReasoningPart, responses_fields.REASONING_PART_FIELDS),
        (responses_requests.ReasoningConfig, responses_fields.REASONING_FIELDS),
        (responses_requests.FunctionDefinition, responses_fields.TOOL_FIELDS),
        (responses_requests.TextPart, responses_fields.PART_FIELDS),
    ],
)
def test_typed_bodies_have_the_used_and_noted_fields(type_: Any, table: FieldTable) -> None:
    assert set(type_.__struct_fields__) == {name for name, field in table.items() if field.kind is not Kind.REFUSED}


TABLES = {
    "messages": messages_fields.MESSAGES_FIELDS,
    "text_block": messages_fields.TEXT_BLOCK_FIELDS,
    "tool": messages_fields.TOOL_FIELDS,
    "thinking": messages_fields.THINKING_FIELDS,
    "tool_use": messages_fields.TOOL_USE_FIELDS,
    "tool_result": messages_fields.TOOL_RESULT_FIELDS,
    "reasoning": responses_fields.REASONING_FIELDS,
    "function": responses_fields.TOOL_FIELDS,
    "call": responses_fields.CALL_FIELDS,
    "output": responses_fields.OUTPUT_FIELDS,
    "reasoning_item": responses_fields.REASONING_ITEM_FIELDS,
    "responses": responses_fields.RESPONSE_FIELDS,
    "text": responses_fields.TEXT_FIELDS,
    "stream_options": responses_fields.STREAM_OPTIONS_FIELDS,
    "input_tokens": responses_fields.INPUT_TOKENS_FIELDS,
    "item": responses_fields.ITEM_FIELDS,
    "part": responses_fields.PART_FIELDS,
}
REFUSED = [
    pytest.param(table, name, id=f"{where}-{name}")
    for where, table in TABLES.items()
    for name, field in table.items()
    if field.kind is Kind.REFUSED
]


@pytest.mark.parametrize(("table", "name"), REFUSED)
def test_refused_fields_are_refused_by_name_unless_neutral(table: FieldTable, name: str) -> None:
    neutral = table[name].neutral
    for value in (None, *neutral):
        assert check_fields({name: value}, table) == {}
    for value in ("surely not", 0.5, 7, {"a": 1}, [1], True not in neutral):
        if value not in neutral:
            with pytest.raises(UnsupportedFieldError) as caught:
                check_fields({name: value}, table)
            assert caught.value.param == name


def read_messages(data: bytes) -> None:
    """Everything that can refuse a body of /v1/messages whatever the model."""
    with naming(MESSAGES.names, paths=MESSAGES.paths):
        body = messages_parse.parse_body(data, MessagesBody, messages_fields.MESSAGES_FIELDS)
        check_thinking(body.thinking, body.max_tokens)
        messages_sampling(body)
        messages_tools(body)
        messages_conversation(body)


def read_responses(data: bytes) -> None:
    """Everything that can refuse a body of /v1/responses whatever the model."""
    with naming(RESPONSES.names, paths=RESPONSES.paths):
        body = responses_parse.parse_body(data)
        responses_parse.sampling(body)
        responses_tools(body)
        responses_conversation(body)


READERS: dict[str, tuple[Callable[[bytes], None], dict[str, Any]]] = {
    "/v1/messages": (read_messages, {"model": "tiny-chat", "max_tokens": 1, "messages": HELLO}),
    "/v1/responses": (read_responses, {"model": "tiny-chat", "max_output_tokens": 1, "input": "hello"}),
}

CALL = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t"}
TOOL = {"name": "f", "input_schema": {}}
FUNCTION = {"type": "function", "name": "f"}
messages__body__param__message = [
    ({"max_tokens": None}, "max_tokens", "max_tokens is required"),
    ({"messages": None}, "messages", "messages is required"),
    ({"messages": []}, "messages", "at least one message"),
    ({"messages": "x"}, "messages", "messages must be an array"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "must be one of user, assistant, system"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "is required"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "must be a string or an array, got 5"),
    (
        {"messages": [*HELLO, {"role": "user", "content": [{"type": "image", "source": {}}]}]},
        "messages[1].content[0].type",
        "'image' is not supported: the model reads text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]},
        "messages[0].content[0].tool_use_id",
        'tool_use_id "t" is the id of no tool_use before it',
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]},
        "messages[0].content[0].type",
        "'tool_use' belongs to role assistant, got user",
    ),
    (
        {"messages": [*HELLO, {"role": "assistant", "content": [CALL | {"input": "x"}]}]},
        "messages[1].content[0].input",
        'must be an object, got "x"',
    ),
    (
        {"messages": [*HELLO, {"role": "assistant", "content": [CALL]}]},
        "messages[1]",
        "ends with a tool_use; send a message of the user's with its tool_result",
    ),
    (
        {
            "messages": [
                *HELLO,
                {"role": "assistant", "content": [CALL]},
                {"role": "user", "content": [RESULT | {"content": [{"type": "image", "source": {}}]}]},
            ]
        },
        "messages[2].content[0].content[0].type",
        "'image' is not supported: the model reads text",
    ),
    (
        {"messages": [*HELLO, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}]},
        "messages[1].content[0].type",
        "no reasoning is redacted here",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "txt", "text": "x"}]}]},
        "messages[0].content[0].type",
        "must be one of text, thinking, tool_use, tool_result, image",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
        "messages[0].content[0].text is required",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "citations": [{}]}]}]},
        "messages[0].content[0].citations",
        "citations are not implemented",
    ),
    ({"system": 5}, "system", "system must be a string or an array, got 5"),
    ({"system": [{"type": "text", "text": 5}]}, "system[0].text", "system[0].text must be a string, got 5"),
    ({"system": [{"type": "thinking"}]}, "system[0].type", "'thinking' belongs to role assistant, got system"),
    ({"stop_sequences": "x"}, "stop_sequences", 'stop_sequences must be an array, got "x"'),
    ({"cache_control": {"type": "forever"}}, "cache_control.type", 'must be one of ephemeral, got "forever"'),
    ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "cache_control.ttl", 'must be one of 5m, 1h, got "2h"'),
    ({"metadata": {"user": "x"}}, "metadata.user", "did you mean 'user_id'?"),
    ({"metadata": {"user_id": 5}}, "metadata.user_id", "metadata.user_id must be a string, got 5"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "is required with type enabled"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1}}, "thinking.budget_tokens", "must be less than max_tokens=1"),
    ({"thinking": {"type": "adaptive", "budget_tokens": 5}}, "thinking.budget_tokens", "needs type enabled"),
    ({"thinking": {"type": "between_tools"}}, "thinking.type", "must be one of enabled, adaptive, disabled"),
    ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display", "neither summarized nor left out"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "tools[0].input_schema is required"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name", "tools[0].name must be 1 to 64 letters"),
    (
        {"tools": [TOOL, TOOL]},
        "tools[1].name",
        "tools[1].name 'f' is also tools[0].name; give each tool its own name",
    ),
    ({"tools": [{"name": "f", "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type", 'must be "object"'),
    ({"tools": [TOOL | {"defer_loading": True}]}, "tools[0].defer_loading", "tool search is not implemented"),
    (
        {"tools": [{"type": "bash_20250124", "name": "bash"}]},
        "tools[0].type",
        "a name and an input_schema",
    ),
    ({"tools": [TOOL | {"parameters": {}}]}, "tools[0].parameters", "unknown field"),
    ({"tool_choice": {"type": "any"}}, "tool_choice.type", "there are no tools; add tools"),
    ({"tool_choice": {"type": "required"}}, "tool_choice.type", "must be one of auto, any, tool, none"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name", "is required with type tool"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name", "they are: f"),
    ({"tools": [TOOL], "tool_choice": {"type": "any", "name": "f"}}, "tool_choice.name", "needs type tool"),
    ({"output_config": {"format": {"type": "json"}}}, "output_config.format.schema", "is required"),
    ({"output_config": {"format": {"type": "json", "schema": {}}}}, "output_config.format.type", "json_schema"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"properties": {"a": {"not": {}}}}}}},
        "output_config.format.schema",
        "/properties/a/not",
    ),
    ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "structured_outputs.regex"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "must be a token id"),
    ({"stop_sequence": ["x"]}, "stop_sequence", "did you mean 'stop_sequences'"),
]
responses__body__param__message = [
    ({"input": None}, "input", "input is required"),
    ({"input": []}, "input", "at least one message"),
    ({"input": ["x"]}, "input[0]", 'input[0] must be an object, got "x"'),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type", "items are not stored"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id", "input[0].call_id is required"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        "input[0].call_id",
        "is the call_id of no function_call before it; send that item",
    ),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type", "built-in tools are not implemented"),
    (
        {"input": [{"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}]},
        "input[0].encrypted_content",
        "reasoning is not encrypted: send it as content",
    ),
    (
        {"input": [{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}]},
        "input[0].content[0].type",
        "must be reasoning_text",
    ),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "must be one of system, developer, user"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]},
        "input[0].content[0].type",
        "this model reads text",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "input[0].content[0].text",
        "input[0].content[0].text is required",
    ),
    ({"store": True}, "store", "responses are not stored; absent means false here"),
    ({"previous_response_id": "resp_1"}, "previous_response_id", "send the conversation as input"),
    ({"conversation": {"id": "c"}}, "conversation", "conversations are not stored"),
    ({"background": True}, "background", "none could be fetched later"),
    ({"text": {"format": {"type": "json"}}}, "text.format.type", "must be one of text, json_object, json_schema"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "is required"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", "is required"),
    ({"text": {"format": {"type": "json_object", "name": "n"}}}, "text.format.name", "needs type json_schema"),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"properties": {"a": {"not": {}}}}}}},
        "text.format.schema",
        "/properties/a/not",
    ),
    ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "reasoning is not summarized"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "only functions can be called"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "tools[0].name is required"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "tools[0].name must be 1 to 64 letters"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].function", "unknown field"),
    ({"tool_choice": "sometimes"}, "tool_choice", '{"type": "function", "name": ...}'),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name", "they are: f"),
    ({"tool_choice": {"type": "file_search"}}, "tool_choice.type", "only functions can be called"),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "mode": "any", "tools": []}},
        "tool_choice.mode",
        "tool_choice.mode must be",
    ),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}},
        "tool_choice.tools[0].type",
        "only functions can be called",
    ),
    ({"text": {"verbosity": "low"}}, "text.verbosity", "no verbosity setting"),
    ({"text": "json"}, "text", 'text must be an object, got "json"'),
    ({"include": ["everything"]}, "include[0]", "include[0] must be one of message.output_text.logprobs"),
    ({"top_logprobs": 21}, "top_logprobs", "top_logprobs must be an integer from 0 to 20, got 21"),
    ({"stream_options": {"include_obfuscation": False}}, "stream_options", "only allowed with stream: true"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
        "padding of events is not implemented",
    ),
    ({"metadata": {"a": 1}}, "metadata", "every value of metadata must be a string"),
    ({"max_tokens": 5}, "max_tokens", "unknown field 'max_tokens'"),
    ({"temperature": "hot"}, "temperature", 'temperature must be a number, got "hot"'),
]


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [("/v1/messages", *case) for case in messages__body__param__message]
    + [("/v1/responses", *case) for case in responses__body__param__message],
)
def test_wrong_bodies(path: str, body: dict[str, Any], param: str, message: str) -> None:
    read, valid = READERS[path]
    read(json.dumps(valid).encode())
    with pytest.raises(RequestError) as caught:
        read(json.dumps(valid | body).encode())
    assert (caught.value.param, caught.value.http_status) == (param, 400)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_errors_keep_their_kind() -> None:
    for body, kind in (({"speed": "fast"}, UnsupportedFieldError), ({"tool": 1}, UnknownFieldError)):
        with pytest.raises(kind):
            read_messages(json.dumps({"model": "m", "max_tokens": 1, "messages": HELLO} | body).encode())
    with pytest.raises(InvalidValueError):
        read_responses(b'{"model":"m","input":5}')


WRONG = ("x", "", -1, 0, 0.5, 10**6, 2**70, True, [], [1], [""], ["a"] * 17, [{}], {}, {"a": 1}, {"type": "x"}, None)
FIELDS = [
    pytest.param(path, name, id=f"{path.rpartition('/')[2]}-{name}")
    for path, table in (
        ("/v1/messages", messages_fields.MESSAGES_FIELDS),
        ("/v1/responses", responses_fields.RESPONSE_FIELDS),
    )
    for name in table
]


@pytest.mark.parametrize(("path", "name"), FIELDS)
def test_no_value_of_a_field_breaks_the_server(http: httpx.Client, path: str, name: str) -> None:
    """And what is refused names the field, in the error shape of the face."""
    statuses = []
    for value in WRONG:
        answer = http.post(path, json=READERS[path][1] | {name: value})
        statuses.append(answer.status_code)
        assert answer.status_code in (200, 400, 404), answer.text
        if answer.status_code != 200:
            error = answer.json()["error"]
            assert name in error["message"]
            assert error["type"] == ("not_found_error" if answer.status_code == 404 else "invalid_request_error")
            if path == "/v1/messages":
                assert answer.json().keys() == {"type", "error"}
                assert error.keys() == {"type", "message"}
            else:
                assert error["param"].startswith(name)
    assert 400 in statuses


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(
            ["text", "input_text", "reasoning_text", "image", "thinking", "tool_use", "tool_result"]
        )
        | JSON,
        "text": st.text(max_size=5) | JSON,
        "thinking": st.text(max_size=5) | JSON,
        "id": st.just("t") | JSON,
        "name": st.just("f") | JSON,
        "input": JSON,
        "tool_use_id": st.just("t") | JSON,
        "content": st.text(max_size=5) | JSON,
    },
)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "x"]) | JSON,
        "content": st.text(max_size=5) | st.lists(PARTS | JSON, max_size=3) | JSON,
        "type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output"]) | JSON,
        "call_id": st.just("c") | JSON,
        "name": st.just("f") | JSON,
        "arguments": st.just("{}") | JSON,
        "output": st.text(max_size=5) | st.lists(PARTS, max_size=2) | JSON,
    },
)
NAMES = st.sampled_from(sorted({*messages_fields.MESSAGES_FIELDS, *responses_fields.RESPONSE_FIELDS}))


@settings(max_examples=500, deadline=None)
@given(
    st.dictionaries(NAMES, JSON, max_size=4),
    st.none() | st.lists(ITEMS, max_size=3),
)
def test_any_json_is_typed_or_refused(body: dict[str, Any], messages: list[Any] | None) -> None:
    for read, valid in READERS.values():
        more = {} if messages is None else {"messages" if "messages" in valid else "input": messages}
        for whole in (body | more, valid | body | more):
            with contextlib.suppress(RequestError):  # any other exception fails the test
                read(json.dumps(whole).encode())
