"""What a hostile client may put into every field: raw JSON values, and a specification of those that fit each field.

The places are made from the server's own field tables, so a field without a line in `FITS` fails a test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.server.openai import fields
from forebay.server.openai.fields import Field, FieldTable, Kind
from forebay.server.openai.requests import DetokenizeBody, TokenizeBody

MODEL = "tiny-chat"
VOCAB = 512
CONTEXT = 512
LONG = "Z" * 4000  # whatever of it an error shows must be short

NOT_JSON = {  # no JSON, or JSON that no number or text of ours can hold
    "nan": b"NaN",
    "infinity": b"Infinity",
    "-infinity": b"-Infinity",
    "1e999": b"1e999",
    "-1e999": b"-1e999",
    "10^5000": b"1" + b"0" * 5000,
    "[nan]": b"[NaN]",
    "[1e999]": b"[1e999]",
    "{nan}": b'{"0":NaN}',
    "{1e999}": b'{"0":1e999}',
    "lone high": rb'"\ud800"',
    "lone low": rb'"a\udfffb"',
    "swapped pair": rb'"\udc00\ud83d"',
    "[lone]": rb'["\ud800x"]',
    "{lone}": rb'{"\ud800":1}',
    "raw surrogate": b'"\xed\xa0\x80"',
    "raw pair": b'"\xed\xa0\xbd\xed\xb8\x80"',
    "no utf-8": b'"\xff"',
    "overlong": b'"\xc0\xaf"',
    "half a character": b'"\xe2\x82"',
    "raw NUL": b'"\x00"',
    "deep array": b"[" * 5000 + b"]" * 5000,
    "deep object": b'{"a":' * 5000 + b"1" + b"}" * 5000,
}
IDS = {"-1": -1, "vocab": VOCAB, "2^31": 2**31, "2^32": 2**32, "2^63": 2**63, "2^64": 2**64, "10^30": 10**30}
JSON_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "0": 0,
    "1": 1,
    "3": 3,
    "2^31-1": 2**31 - 1,
    "2^53": 2**53,
    "2^63-1": 2**63 - 1,
    "-2^63": -(2**63),
    "-2^63-1": -(2**63) - 1,
    "10^400": 10**400,
    **IDS,
    "0.5": 0.5,
    "1.0": 1.0,
    "1.5": 1.5,
    "-0.0": -0.0,
    "-0.5": -0.5,
    "5e-324": 5e-324,
    "1e308": 1e308,
    "empty text": "",
    "x": "x",
    "digit": "1",
    "special": "<s></s>",
    "escaped NUL": "a\0b",
    "long text": LONG,
    "[]": [],
    "{}": {},
    "[[]]": [[]],
    "[null]": [None],
    "[true]": [True],
    "[1.0]": [1.0],
    "[empty text]": [""],
    "[x]": ["x"],
    "[x,1]": ["x", 1],
    "[1,x]": [1, "x"],
    "[1,[1]]": [1, [1]],
    "[[1]]": [[1]],
    "[{}]": [{}],
    "[5]": [5],
    "many ids": [5] * 2000,
    "many texts": ["Z"] * 2000,
    "a long text": [LONG],
    **{f"[5,{name}]": [5, value] for name, value in IDS.items()},
    **{f"[[5,{name}]]": [[5, value]] for name, value in IDS.items()},
    "{x:x}": {"x": "x"},
    "{long}": {LONG: LONG},
    "{5:1}": {"5": 1},
    "{5:true}": {"5": True},
    "{5:x}": {"5": "x"},
    "{5:101}": {"5": 101},
    "{05:1}": {"05": 1},
    "{+5:1}": {"+5": 1},
    "{5.0:1}": {"5.0": 1},
    **{f"{{{name}:1}}": {str(value): 1} for name, value in IDS.items()},
    "nested": json.loads("[" * 50 + "]" * 50),
}
VALUES: dict[str, bytes] = NOT_JSON | {name: json.dumps(value).encode() for name, value in JSON_VALUES.items()}

Fits = Callable[[Any], bool]


def integer(low: int, high: int) -> Fits:
    return lambda v: type(v) is int and low <= v <= high


def number(low: float, high: float, *, above: bool = False, below: bool = False) -> Fits:
    """A number in a range; above, below: without its ends."""
    return lambda v: type(v) in (int, float) and (low < v if above else low <= v) and (v < high if below else v <= high)


def text(longest: int = 2**20, shortest: int = 0) -> Fits:
    return lambda v: isinstance(v, str) and shortest <= len(v) <= longest


def ids(least: int = 0, most: int = 1024, vocab: int = VOCAB) -> Fits:
    return lambda v: isinstance(v, list) and least <= len(v) <= most and all(map(integer(0, vocab - 1), v))


def mapping(key: Fits, value: Fits, most: int = 1024) -> Fits:
    return lambda v: isinstance(v, dict) and len(v) <= most and all(key(k) and value(w) for k, w in v.items())


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def nothing(value: Any) -> bool:
    return False


def _texts(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 16 and all(map(text(10_000, 1), value))


def _prompt(value: Any) -> bool:
    """One text or list of ids, or a list of either, that has room in the context."""
    fits = ids(1, CONTEXT - 2)
    if isinstance(value, str):
        return len(value) < 1000
    short = isinstance(value, list) and 1 <= len(value) <= 32
    return fits(value) or (short and (all(map(text(1000), value)) or all(map(fits, value))))


def _content(value: Any) -> bool:
    return value == [] or (isinstance(value, str) and len(value) < 1000)


def _token_id(key: str) -> bool:
    return key.isdigit() and int(key) < VOCAB


MAX_TOKENS = integer(1, 60)
INT64 = integer(-(2**63), 2**63 - 1)

# What fits beyond a null, by the name of the place and the field; or by the field alone, for all places.
FITS: Mapping[str, Fits] = {
    "model": lambda v: v == MODEL,
    "prompt": _prompt,
    "messages": nothing,
    "max_tokens": MAX_TOKENS,
    "completions.max_tokens": integer(0, 60),
    "max_completion_tokens": MAX_TOKENS,
    "temperature": number(0, 100),
    "top_p": number(0, 1, above=True),
    "top_k": integer(0, 2**31 - 1),
    "min_p": number(0, 1, below=True),
    "typical_p": number(0, 1, above=True),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "repetition_penalty": number(0.01, 100),
    "logit_bias": mapping(_token_id, number(-100, 100)),
    "allowed_token_ids": ids(1),
    "bad_token_ids": ids(),
    "stop_token_ids": ids(),
    "min_tokens": integer(0, 1),
    "ignore_eos": flag,
    "include_stop_str_in_output": flag,
    "skip_special_tokens": flag,
    "seed": INT64,
    "stop": lambda v: v == [] or text(10_000, 1)(v) or _texts(v),
    "n": integer(1, 32),
    "best_of": integer(1, 32),
    "echo": flag,
    "logprobs": integer(0, 20),
    "chat.logprobs": flag,
    "top_logprobs": integer(0, 20),
    "stream": flag,
    "stream_options": lambda v: v == {},
    "user": text(512),
    "metadata": mapping(text(64), text(512), 16),
    "safety_identifier": text(64),
    "prompt_cache_key": text(512),
    "cache_salt": text(512, 1),
    "tools": lambda v: v == [],
    "tool_choice": lambda v: v in ("none", "auto"),
    "parallel_tool_calls": flag,
    "reasoning_effort": nothing,
    "thinking_token_budget": nothing,
    "add_generation_prompt": flag,
    "continue_final_message": flag,
    "chat_template_kwargs": lambda v: isinstance(v, dict),
    "message.tool_calls": lambda v: v == [],
    "message.tool_call_id": nothing,
    "message.reasoning_content": nothing,
    "response_format": nothing,
    "structured_outputs": nothing,
    "guided_json": lambda v: isinstance(v, dict),
    "guided_regex": text(),
    "guided_choice": lambda v: isinstance(v, list) and bool(v) and all(map(text(10_000, 1), v)),
    "guided_grammar": nothing,
    "include_usage": flag,
    "response_format.type": nothing,
    "response_format.json_schema": nothing,
    "json_schema.name": lambda v: v in ("x", "1"),
    "json_schema.description": text(),
    "json_schema.schema": lambda v: isinstance(v, dict),
    "json_schema.strict": flag,
    "structured_outputs.json": lambda v: isinstance(v, dict),
    "structured_outputs.regex": text(),
    "structured_outputs.choice": lambda v: FITS["guided_choice"](v),
    "structured_outputs.grammar": nothing,
    "structured_outputs.json_object": lambda v: v is True,
    "structured_outputs.structural_tag": nothing,
    "message.role": nothing,
    "message.content": _content,
    "message.name": text(512),
    "part.type": nothing,
    "part.text": text(1000),
    "tokenize.prompt": text(),
    "tokenize.tools": nothing,
    "tokenize.add_special_tokens": flag,
    "tokenize.add_generation_prompt": lambda v: v is True,
    "tokenize.continue_final_message": lambda v: v is False,
    "tokenize.chat_template_kwargs": lambda v: v == {},
    "detokenize.tokens": ids(0, 2**20),
}


@dataclass(frozen=True)
class Place:
    """Where fields stand. steps: from the body to the object that has them; base: fields that go along with one of it,
    by its name ("" for all); required: fields that cannot be null."""

    name: str
    path: str
    table: FieldTable
    body: dict[str, Any]
    steps: tuple[str | int, ...] = ()
    base: dict[str, dict[str, Any]] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    absent: str = ""  # the field that an error names when a required one is null, if it is another

    def param(self, name: str) -> str:
        """How errors name a field of this place."""
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)
        return f"{where}.{name}".removeprefix(".")

    def blamed(self, name: str, label: str) -> str:
        """The field that the error for a value names."""
        if label in NOT_JSON:  # nothing inside it can be seen
            return str((*self.steps, name)[0])
        return self.absent if self.absent and label == "null" else self.param(name)

    def raw(self, name: str, value: bytes) -> bytes:
        """The body with the raw bytes of `value` in the field `name`."""
        body = json.loads(json.dumps(self.body))
        target: Any = body
        for step in self.steps:
            target = target[step]
        target |= self.base.get(name, {})
        target[name] = "<here>"
        return json.dumps(body).encode().replace(b'"<here>"', value)

    def fits(self, name: str, value: Any) -> bool:
        """Whether the specification takes a value."""
        row = self.table[name]
        if value is None:
            return name not in self.required
        if row.kind is Kind.REFUSED:
            return any(type(value) is type(neutral) and value == neutral for neutral in row.neutral)
        return FITS.get(f"{self.name}.{name}", FITS.get(name, nothing))(value)


COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "Once", "max_tokens": 1, "seed": 1}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "seed": 1}
_OBJECT = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": _OBJECT}}
_PARTS = CHAT | {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
_BESIDE: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
    "max_tokens": {"stop": ["a", "e"]},
}


def _taken(names: tuple[str, ...]) -> FieldTable:
    return {name: Field(Kind.USED, "") for name in names}


PLACES = [
    Place(
        "completions",
        "/v1/completions",
        fields.COMPLETION_FIELDS,
        COMPLETION,
        (),
        _BESIDE,
        frozenset({"model", "prompt"}),
    ),
    Place(
        "chat",
        "/v1/chat/completions",
        fields.CHAT_FIELDS,
        CHAT,
        (),
        _BESIDE | {"max_completion_tokens": {"max_tokens": None, "stop": ["a", "e"]}},
        frozenset({"model", "messages"}),
    ),
    Place(
        "stream_options",
        "/v1/completions",
        fields.STREAM_OPTIONS_FIELDS,
        COMPLETION | {"stream": True, "stream_options": {}},
        ("stream_options",),
    ),
    Place(
        "response_format",
        "/v1/chat/completions",
        fields.RESPONSE_FORMAT_FIELDS,
        CHAT | {"response_format": _FORMAT},
        ("response_format",),
        required=frozenset({"type", "json_schema"}),
    ),
    Place(
        "json_schema",
        "/v1/chat/completions",
        fields.JSON_SCHEMA_FIELDS,
        CHAT | {"response_format": _FORMAT},
        ("response_format", "json_schema"),
        required=frozenset({"name"}),
    ),
    Place(
        "structured_outputs",
        "/v1/completions",
        fields.STRUCTURED_FIELDS,
        COMPLETION | {"structured_outputs": {}},
        ("structured_outputs",),
        {name: {} if f.kind is Kind.USED else {"choice": ["a"]} for name, f in fields.STRUCTURED_FIELDS.items()},
        frozenset(name for name, f in fields.STRUCTURED_FIELDS.items() if f.kind is Kind.USED),
        absent="structured_outputs",
    ),
    Place(
        "message",
        "/v1/chat/completions",
        fields.MESSAGE_FIELDS,
        CHAT,
        ("messages", 0),
        required=frozenset({"role", "content"}),
    ),
    Place(
        "part",
        "/v1/chat/completions",
        fields.TEXT_PART_FIELDS,
        _PARTS,
        ("messages", 0, "content", 0),
        required=frozenset({"type", "text"}),
    ),
    Place(
        "tokenize",
        "/tokenize",
        _taken(TokenizeBody.__struct_fields__),
        {"prompt": "Once"},
        base={"messages": {"prompt": None}},
        required=frozenset({"prompt", "messages"}),
        absent="prompt",
    ),
    Place(
        "detokenize",
        "/detokenize",
        _taken(DetokenizeBody.__struct_fields__),
        {"tokens": [5]},
        required=frozenset({"tokens"}),
    ),
]
