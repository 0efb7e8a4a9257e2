"""From the bytes of a body to a typed request, or an error that names the field, the value and the remedy."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from forebay.errors import InvalidValueError, NotFoundError, RequestError
from forebay.server.json_shape import check_shape
from forebay.server.openai.fields import STREAM_OPTIONS_FIELDS, Field, FieldTable, Kind, check_fields
from forebay.server.openai.unreadable import unreadable

MAX_CHOICES = 128  # prompts * n of one HTTP request

T = TypeVar("T")
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
}
_PATH = re.compile(r" - at `(key` in `)?(\$.*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def decode_object(body: bytes) -> dict[str, Any]:
    """The body's one and only JSON parse. Raises RequestError for anything that is not a JSON object."""
    check_shape(body)
    try:
        value = msgspec.json.decode(body)
    except (RecursionError, ValueError) as error:  # the latter: msgspec's errors and UnicodeDecodeError
        raise unreadable(body, error) from None
    if not isinstance(value, dict):
        raise RequestError(f"the body must be a JSON object, got {shorten(value)}")
    return value


def parse(body: bytes, type_: type[T], table: FieldTable | None = None) -> T:
    """Parse a body into `type_`. Without a table the type's own fields are the known ones."""
    raw = decode_object(body)
    if table is None:
        table = {name: Field(Kind.USED, "") for name in type_.__struct_fields__}  # type: ignore[attr-defined]  # a Struct
    kept = check_fields(raw, table)
    if isinstance(options := kept.get("stream_options"), dict):
        kept["stream_options"] = check_fields(options, STREAM_OPTIONS_FIELDS, "stream_options")
    return convert(kept, type_)


def convert(value: Any, type_: type[T], where: str = "") -> T:
    """`msgspec.convert` with our error messages. `where`: path of `value` inside the body."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _explained(str(error), value, where) from None


def check_model(name: str | None, served: str) -> None:
    if name is not None and name != served:
        raise NotFoundError(f"model {shorten(name)} is not served here; use {served!r}", param="model")


def parse_prompts(prompt: str | list[str | int | list[int]], n: int) -> list[str | list[int]]:
    """The four shapes of `prompt` as a list of texts or token id lists, at least one and at most MAX_CHOICES / n."""
    prompts = prompt_list(prompt, "prompt")
    if len(prompts) * n > MAX_CHOICES:
        raise InvalidValueError(
            f"prompt has {len(prompts)} entries and n is {n}, more than {MAX_CHOICES} choices; send several requests",
            param="prompt",
        )
    return prompts


def prompt_list(prompt: str | list[str | int | list[int]], path: str) -> list[str | list[int]]:
    """A string, strings, token ids or lists of them as a list of texts or token id lists, at least one."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise InvalidValueError(f"{path} must not be an empty array; give text or token ids", param=path)
    kind = type(prompt[0])
    for i, item in enumerate(prompt):
        if type(item) is not kind:
            raise InvalidValueError(
                f"{path}[{i}] is {shorten(item)}, unlike {path}[0]; give only strings, token ids or lists of token ids",
                param=f"{path}[{i}]",
            )
    return [prompt] if kind is int else prompt  # type: ignore[list-item, return-value]  # the loop proved the type


def check_token_ids(ids: list[int], vocab_size: int, path: str) -> list[int]:
    """Token ids of a client: at least one, all in the vocabulary."""
    if not ids:
        raise InvalidValueError(f"{path} must hold at least one token", param=path)
    if min(ids) < 0 or max(ids) >= vocab_size:
        at = next(i for i, t in enumerate(ids) if not 0 <= t < vocab_size)
        raise InvalidValueError(
            f"{path}[{at}] must be a token id from 0 to {vocab_size - 1}, got {shorten(ids[at])}", param=f"{path}[{at}]"
        )
    return ids


def shorten(value: Any, limit: int = 60) -> str:
    """A value as JSON would show it, at most about `limit` characters; arrays and objects by name only."""
    if isinstance(value, str):
        text = msgspec.json.encode(value[:limit]).decode()
        return text if len(value) <= limit else text[:-1] + '..."'
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "an integer of over 60 digits"
    return msgspec.json.encode(value).decode()


def _explained(text: str, value: Any, where: str) -> InvalidValueError:
    """Our message for one of msgspec's: "Expected `int`, got `str` - at `$.n`"."""
    found = _PATH.search(text)
    path = (where + found[2][1:]).removeprefix(".") if found else where
    reason = text[: found.start()] if found else text
    if missing := re.match(r"Object missing required field `(.*)`", reason):
        path = f"{path}.{missing[1]}" if path else missing[1]
        return InvalidValueError(f"{path} is required", param=path)
    param, in_mapping, _ = path.partition("[...]")  # msgspec names a mapping, not the key at fault
    if found and found[1]:
        subject, shown = f"every key of {param}", ""
    elif in_mapping:
        subject, shown = f"every value of {param}", ""
    else:
        subject, shown = param, f", got {shorten(_value_at(value, found[2] if found else '$'))}"
    expected = re.match(r"Expected (.*?)(?:, got `.*`)?$", reason)
    wanted = _worded(expected[1]) if expected else f"valid ({reason})"
    return InvalidValueError(f"{subject} must be {wanted}{shown}", param=param or None)


def _worded(expected: str) -> str:
    """`int | null` -> "an integer"; "`int` >= 0" -> "an integer >= 0"."""
    names, rest = re.match(r"`(.*?)`(.*)", expected).groups()  # type: ignore[union-attr]  # msgspec always quotes it
    return " or ".join(_WORDS[name] for name in names.split(" | ") if name in _WORDS) + rest


def _value_at(value: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        value = value[int(index)] if index else value[name]
    return value
