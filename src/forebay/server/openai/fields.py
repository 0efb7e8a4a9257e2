"""Every field of OpenAI's endpoints that we serve, in tables: used, noted or refused.

used     the field has its documented effect
noted    checked and accepted; it changes nothing about the output by its own documentation
refused  not implemented; only the values that change nothing (`neutral`) pass, all others are refused by name

Source: OpenAI's OpenAPI document 2.3.0, CreateCompletionRequest, CreateChatCompletionRequest and
CreateEmbeddingRequest; those marked (ours) are additions, under vLLM's names where it has them. A null in an optional
field means the field was not given.
"""

from __future__ import annotations

import difflib
import enum
from typing import Any

import msgspec

from forebay.errors import UnknownFieldError, UnsupportedFieldError


class Kind(enum.StrEnum):
    USED = "used"
    NOTED = "noted"
    REFUSED = "refused"


class Field(msgspec.Struct, frozen=True):
    """One row: what we do with a field, why, the values of a refused field that change nothing, and whether OpenAI's
    document does not have it."""

    kind: Kind
    why: str
    neutral: tuple[Any, ...] = ()
    ours: bool = False


FieldTable = dict[str, Field]


def used(why: str) -> Field:
    return Field(Kind.USED, why)


def ours(why: str) -> Field:
    return Field(Kind.USED, f"{why} (ours)", ours=True)


def noted(why: str) -> Field:
    return Field(Kind.NOTED, why)


def refused(why: str, *neutral: Any, ours: bool = False) -> Field:
    return Field(Kind.REFUSED, why, neutral, ours)


SAMPLING_FIELDS: FieldTable = {
    "model": used("must be the name of the served model"),
    "max_tokens": used(
        "most tokens to generate (completions: 0 for the prompt's log-probabilities alone); absent: min(context left, "
        "profile default), reported in a header"
    ),
    "temperature": used("0 is greedy; absent: 1"),
    "top_p": used("nucleus sampling"),
    "top_k": ours("keep the k best tokens; 0 keeps all"),
    "min_p": ours("drop tokens below min_p times the best one's probability"),
    "typical_p": ours("keep the tokens of most typical information up to this mass"),
    "presence_penalty": used("taken from the logit of every token in the output"),
    "frequency_penalty": used("taken from the logit of a token for each time it is in the output"),
    "repetition_penalty": ours("divides positive and multiplies negative logits of tokens seen so far"),
    "logit_bias": used("token id to what is added to its logit, -100 to 100"),
    "allowed_token_ids": ours("nothing else is generated"),
    "bad_token_ids": ours("never generated"),
    "min_tokens": ours("no end, stop token or stop string before so many tokens"),
    "ignore_eos": ours("generate up to max_tokens whatever the model says"),
    "seed": used("the same seed gives the same tokens; drawn and reported when absent"),
    "stop": used("up to 16 strings that end the text and are not part of it"),
    "structured_outputs": ours("what the output must be: one of json, regex, choice, grammar, structural_tag"),
    "guided_json": ours("older name of structured_outputs.json"),
    "guided_regex": ours("older name of structured_outputs.regex"),
    "guided_choice": ours("older name of structured_outputs.choice"),
    "guided_grammar": ours("older name of structured_outputs.grammar"),
    "stop_token_ids": ours("tokens that end the text"),
    "include_stop_str_in_output": ours("the stop string or stop token is part of the text"),
    "skip_special_tokens": ours("special tokens are not part of the text; absent: true"),
    "n": used("completions per prompt"),
    "logprobs": used("log-probabilities of the model's own distribution"),
    "stream": used("server-sent events"),
    "stream_options": used("include_usage"),
    "cache_salt": ours("only requests with an equal one reuse each other's cached prefix, within one tenant"),
    "user": noted("names the end user; no effect on the output"),
}

COMPLETION_FIELDS: FieldTable = SAMPLING_FIELDS | {
    "response_format": ours("as in chat completions"),
    "prompt": used("a string, token ids, or a list of either"),
    "best_of": used("generate so many and give the n with the highest mean log-probability; not with stream"),
    "echo": used("the text begins with the prompt, logprobs with those of the prompt"),
    "suffix": refused("insertion before a suffix is not implemented", ""),
}

CHAT_FIELDS: FieldTable = SAMPLING_FIELDS | {
    "response_format": used("text, json_object or json_schema: the output is held to it"),
    "messages": used("the conversation, rendered with the model's chat template"),
    "max_completion_tokens": used("the newer name of max_tokens"),
    "top_logprobs": used("how many alternatives per token; needs logprobs: true"),
    "metadata": noted("labels for a stored completion; nothing is stored"),
    "safety_identifier": noted("names the end user; no effect on the output"),
    "prompt_cache_key": noted("a routing hint for a fleet of caches; one server has one cache"),
    "store": refused("completions are not stored", False),
    "prompt_cache_retention": refused("cached prefixes live in memory until they are evicted", "in_memory"),
    "prompt_cache_options": refused("cache breakpoints and lifetimes are not implemented"),
    "service_tier": refused("there is one service tier", "auto", "default"),
    "modalities": refused("only text is generated", ["text"]),
    "verbosity": refused("the model has no verbosity setting", "medium"),
    "reasoning_effort": used("handed to the chat template; refused if that does not use it"),
    "thinking_token_budget": ours("most tokens of reasoning; then it is ended"),
    "add_generation_prompt": ours("begin the assistant's turn; absent: true"),
    "continue_final_message": ours("go on from the last message instead of answering it"),
    "tools": used("functions the model may call; docs/tools.md has the formats of calls"),
    "tool_choice": used("none, auto, required, a function, or allowed_tools"),
    "parallel_tool_calls": used("false: at most one call"),
    "functions": refused("function calls are not implemented"),
    "function_call": refused("function calls are not implemented", "none", "auto"),
    "audio": refused("audio output is not implemented"),
    "prediction": refused("predicted outputs are not implemented"),
    "web_search_options": refused("web search is not implemented"),
    "moderation": refused("moderation is not implemented"),
    "chat_template": refused(
        "a template is code, so it comes from the operator, with the model (chat_template.jinja in its folder)",
        ours=True,
    ),
    "chat_template_kwargs": ours("further variables of the chat template, such as enable_thinking"),
}

EMBEDDING_FIELDS: FieldTable = {
    "model": used("must be the name of the served model"),
    "input": used("a string, token ids, or a list of either: up to 2048 inputs, each as long as the context"),
    "encoding_format": used("float, or base64 of little-endian float32; absent: float"),
    "dimensions": used("the first so many of the hidden state, 1 to its size; absent: all"),
    "user": noted("names the end user; no effect on the output"),
}

STREAM_OPTIONS_FIELDS: FieldTable = {
    "include_usage": used("a last chunk with the token counts"),
    "include_obfuscation": refused("padding of events is not implemented", False),
}

RESPONSE_FORMAT_FIELDS: FieldTable = {
    "type": used("text, json_object or json_schema"),
    "json_schema": used("the schema, with its name"),
}

JSON_SCHEMA_FIELDS: FieldTable = {
    "name": used("names the schema in the record of the request"),
    "description": noted("for people"),
    "schema": used("a JSON Schema; a keyword that cannot be enforced is refused by its JSON pointer"),
    "strict": used("hold the schema to OpenAI's rules for strict ones; the output is held to it either way"),
}

STRUCTURED_FIELDS: FieldTable = {
    "json": used("a JSON Schema, as an object or as text"),
    "regex": used("a pattern that the whole output matches"),
    "choice": used("the output is one of these strings"),
    "grammar": used("a Lark grammar, or GBNF"),
    "json_object": used("true: any JSON object"),
    "structural_tag": used("free text with constrained parts"),
    "disable_fallback": refused("there is one backend, and nothing falls back", False),
    "disable_any_whitespace": refused("whitespace is as docs/structured.md says", True),
    "disable_additional_properties": refused("additionalProperties says it in the schema", False),
    "whitespace_pattern": refused("whitespace is as docs/structured.md says"),
}

MESSAGE_FIELDS: FieldTable = {
    "role": used("system, developer (rendered as system), user, assistant or tool"),
    "content": used("a string or a list of text parts; may be absent beside tool_calls"),
    "name": used("handed to the chat template"),
    "refusal": refused("refusal messages are not implemented"),
    "audio": refused("audio is not implemented"),
    "tool_calls": used("what the assistant called; arguments are JSON text"),
    "tool_call_id": used("of a tool's message: which call it answers"),
    "reasoning_content": ours("what the assistant thought; whether it is shown is the chat template's choice"),
    "function_call": refused("function calls are not implemented"),
}

CALL_FIELDS: FieldTable = {
    "id": used("what the tool's message answers"),
    "type": used("function"),
    "function": used("what was called"),
}

FUNCTION_FIELDS: FieldTable = {
    "name": used("of the function"),
    "arguments": used("JSON text; handed to the chat template as an object, if it is one"),
}

TEXT_PART_FIELDS: FieldTable = {
    "type": used("text"),
    "text": used("the text"),
    "prompt_cache_breakpoint": refused("cache breakpoints are not implemented"),
}


def check_fields(given: dict[str, Any], table: FieldTable, where: str = "") -> dict[str, Any]:
    """The fields of `given` that matter: used and noted ones that are not null.

    where: path of the object for error messages, such as "messages[0]".
    Raises UnknownFieldError and UnsupportedFieldError.
    """
    kept: dict[str, Any] = {}
    for name, value in given.items():
        field = table.get(name)
        path = f"{where}.{name}" if where else name
        if field is None:
            raise UnknownFieldError(f"unknown field {path[:100]!r}{_nearest(name, table)}", param=path[:100])
        if value is None:
            continue
        if field.kind is not Kind.REFUSED:
            kept[name] = value
        elif not any(_same(value, neutral) for neutral in field.neutral):
            raise UnsupportedFieldError(refusal(path, field), param=path)
    return kept


def refusal(path: str, field: Field) -> str:
    """The message for a refused field with another value than those that pass."""
    return f"{path} is not supported: {field.why}; {_remedy(field)}"


def _nearest(name: str, table: FieldTable) -> str:
    close = difflib.get_close_matches(name[:100], table, n=1)
    return f"; did you mean {close[0]!r}?" if close else "; remove it"


def _remedy(field: Field) -> str:
    if not field.neutral:
        return "leave it out"
    return "leave it out or set it to " + " or ".join(msgspec.json.encode(v).decode() for v in field.neutral)


def _same(value: Any, neutral: Any) -> bool:
    # In Python False == 0; in JSON a boolean is not a number.
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)
