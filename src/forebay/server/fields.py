"""Field tables of the other faces: what they share with that of chat. What a row means: openai/fields.py."""

from __future__ import annotations

from typing import Any

from forebay.server.openai.fields import CHAT_FIELDS, FieldTable, check_fields, noted, ours, refused, used

__all__ = ["SAMPLING", "as_in_chat", "check_object", "noted", "ours", "refused", "used"]

# Sampling that chat completions have, and every face: under vLLM's names, where it has them.
SAMPLING = (
    "typical_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_token_ids",
    "min_tokens",
    "structured_outputs",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "cache_salt",
    "chat_template_kwargs",
)


def as_in_chat(*names: str) -> FieldTable:
    """Fields of chat completions in a face whose API does not have them."""
    return {name: ours(CHAT_FIELDS[name].why.removesuffix(" (ours)")) for name in names}


def check_object(fields: dict[str, Any], name: str, table: FieldTable, where: str = "") -> None:
    """Check the object in `fields[name]`, if there is one, by a table of its own. where: path of `fields`."""
    if isinstance(value := fields.get(name), dict):
        fields[name] = check_fields(value, table, f"{where}.{name}" if where else name)
