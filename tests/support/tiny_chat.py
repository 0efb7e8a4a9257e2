"""A tiny model that can chat: stories260K with a chat template beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.shared import shared_path

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


# as in Qwen 3, where the markers of reasoning are not special, but for those of calls, which are
MARKERS = {508: ("<think>", False), 509: ("</think>", False), 500: ("<tool_call>", True), 502: ("</tool_call>", True)}
AGENT_TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% if open_thinking or enable_thinking %}<think>\n{% endif %}{% endif %}"
    '{# <think> </think> <tool_call>{"name": "...", "arguments": {}}</tool_call> #}'
)


def tiny_chat_model(folder: Path) -> Path:
    """A copy of stories260K with TEMPLATE below `folder`; its served name is "tiny-chat"."""
    model = folder / "tiny-chat"
    shutil.copytree(shared_path("models/stories260K/hf"), model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


def tiny_agent_model(folder: Path) -> Path:
    """The same with a template that offers tools (hermes) and reasons, whose markers are single tokens of the model."""
    model = folder / "tiny-agent"
    shutil.copytree(shared_path("models/stories260K/hf"), model)
    (model / "chat_template.jinja").write_text(AGENT_TEMPLATE)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    for token, (text, special) in MARKERS.items():
        old = next(piece for piece, i in vocabulary.items() if i == token)
        del vocabulary[old]
        vocabulary[text] = token
        added = {"id": token, "content": text, "special": special}
        tokenizer["added_tokens"].append(
            added | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        )
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model
