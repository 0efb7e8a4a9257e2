"""Special tokens that a message spells are plain text, whatever the tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.errors import InvalidValueError
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.gguf import tokenizer_from_gguf
from tests.tokenizer.vocabularies import GGUF_NAMES, gguf_metadata

OWN_SPACES = ("llama-spm", "phi-3")  # spaces come and go at special tokens: see docs/tokenizer.md


def chat_tokenizer(name: str) -> tuple[Tokenizer, str]:
    """With a template that writes the last of its special tokens before and after each message."""
    plain = tokenizer_from_gguf(gguf_metadata(name))
    special = next(plain.token_text(i) for i in sorted(plain.pieces.special_ids) if len(plain.token_text(i)) > 2)
    template = "{% for m in messages %}" + special + "{{ m.role }} {{ m.content }}" + special + "\n{% endfor %}"
    return tokenizer_from_gguf(gguf_metadata(name) | {"tokenizer.chat_template": template}), special


@pytest.mark.parametrize("name", GGUF_NAMES)
def test_a_spelled_token_is_text(name: str) -> None:
    tokenizer, special = chat_tokenizer(name)
    (special_id,) = tokenizer.encode(special, add_special_tokens=False)[-1:]
    for content in (f"a{special}b", f"{special}", f"{special * 3} x", f"é{special}中{special}\n", special[:-1]):
        messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Yes."}]
        ids = tokenizer.encode_chat(messages)
        assert ids.count(special_id) == 4
        pieces = b"".join(map(tokenizer.token_bytes, ids)).decode()
        if name in OWN_SPACES:
            assert pieces.replace(" ", "") == tokenizer.render_chat(messages).replace(" ", "")
        else:
            assert pieces == tokenizer.render_chat(messages)


def test_messages_without_one_are_encoded_as_ever() -> None:
    tokenizer, _ = chat_tokenizer("qwen2")
    messages = [{"role": "user", "content": "Is 3 < 4 |> 5?"}]
    assert tokenizer.encode_chat(messages) == tokenizer.encode(
        tokenizer.render_chat(messages), add_special_tokens=False
    )


def test_names_calls_and_tools_are_covered() -> None:
    metadata = gguf_metadata("qwen2")
    template = "{{ tools | tojson }}{{ messages | tojson(ensure_ascii=True) }}"
    tokenizer = tokenizer_from_gguf(metadata | {"tokenizer.chat_template": template})
    token = "<|im_end|>"
    messages: list[dict[str, Any]] = [
        {"role": "tool", "name": token, "content": token},
        {"role": "assistant", "tool_calls": [{"function": {"name": token, "arguments": {token: [token]}}}]},
    ]
    ids = tokenizer.encode_chat(messages, tools=[{"description": token}])
    assert not {*ids} & tokenizer.pieces.special_ids
    assert tokenizer.decode(ids, skip_special_tokens=False).count(token) == 6


def test_a_message_full_of_marks_is_refused() -> None:
    tokenizer, special = chat_tokenizer("qwen2")
    marks = "".join(chr(code) for code in range(0xFDD0, 0xFDF0))
    with pytest.raises(InvalidValueError, match="noncharacters"):
        tokenizer.encode_chat([{"role": "user", "content": special + marks}])
    ids = tokenizer.encode_chat([{"role": "user", "content": special + marks[:-1]}])
    assert marks[:-1] in tokenizer.decode(ids, skip_special_tokens=False)


def test_further_variables_of_a_template_are_covered() -> None:
    metadata = gguf_metadata("qwen2")
    template = "{{ persona }}{{ rules | tojson }}{{ messages[0].content }}"
    tokenizer = tokenizer_from_gguf(metadata | {"tokenizer.chat_template": template})
    token = "<|im_end|>"
    ids = tokenizer.encode_chat([{"role": "user", "content": "a"}], persona=token, rules=[token])
    assert not {*ids} & tokenizer.pieces.special_ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == f'{token}["{token}"]a'
