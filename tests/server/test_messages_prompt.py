"""The prompt of a conversation whose last turn is the assistant's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.engine.frontend import TextModel
from forebay.errors import UnsupportedFieldError
from forebay.server.anthropic.conversation import render
from forebay.tokenizer import Tokenizer

TURNS = [{"role": "user", "content": "Tell me."}, {"role": "assistant", "content": " Once upon "}]


@pytest.fixture
def with_template(tiny_model: Path, tmp_path: Path) -> Callable[[str], Tokenizer]:
    def made(template: str) -> Tokenizer:
        model = shutil.copytree(tiny_model, tmp_path / "model")
        (model / "chat_template.jinja").write_text(template)
        return TextModel.load(model).tokenizer

    return made


@pytest.mark.parametrize(("shown", "end"), [("m.content", " Once upon "), ("m.content | trim", "Once upon ")])
def test_it_ends_where_that_turn_does(with_template: Callable[[str], Tokenizer], shown: str, end: str) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ " + shown + " }}[end]{% endfor %}[assistant]"
    assert render(with_template(template), TURNS).text == f"[user]Tell me.[end][assistant]{end}"


@pytest.mark.parametrize("shown", ["m.content | upper", "m.content[:3]"])
def test_a_template_that_changes_the_turn_is_refused(with_template: Callable[[str], Tokenizer], shown: str) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ " + shown + " }}[end]{% endfor %}"
    with pytest.raises(UnsupportedFieldError, match="end with a message of the user's") as caught:
        render(with_template(template), TURNS)
    assert caught.value.param == "messages"


def test_any_other_last_turn_is_answered(with_template: Callable[[str], Tokenizer]) -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    assert render(with_template(template), TURNS[:1]).text == "[user]Tell me.[assistant]"
