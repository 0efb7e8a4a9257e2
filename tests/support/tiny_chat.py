"""A tiny model that can chat: stories260K with a chat template beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.shared import shared_path

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def tiny_chat_model(folder: Path) -> Path:
    """A copy of stories260K with TEMPLATE below `folder`; its served name is "tiny-chat"."""
    model = folder / "tiny-chat"
    shutil.copytree(shared_path("models/stories260K/hf"), model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model
