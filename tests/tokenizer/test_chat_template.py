"""Renderings equal those of transformers, for real templates and llama.cpp's collection; and the sandbox holds."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.tokenizer import template_sandbox
from forebay.tokenizer.chat_template import ChatTemplate, plain_json, template_messages
from tests.support.shared import shared_path, shared_root

NOW = datetime(2026, 11, 29, 12, 0, 0)

# Renderings that are known to differ: (template, case) -> reason. A listed one that passes fails the test. None are.
OUT_OF_SCOPE: dict[tuple[str, str], str] = {}


def _golden() -> list[dict[str, Any]]:
    root = shared_root()
    path = None if root is None else root / "chat/chat_golden_dev.jsonl.gz"
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


@cache
def _cases() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = json.loads(shared_path("chat/chat_cases_dev.json").read_text())["cases"]
    return cases


@cache
def _template(name: str) -> ChatTemplate:
    return ChatTemplate(shared_path(f"chat/templates/{name}").read_text())


def render(template: ChatTemplate, messages: list[dict[str, Any]], **variables: Any) -> str:
    given = {"tools": None, "documents": None, "add_generation_prompt": True, **variables}
    return template.render({**given, "messages": template_messages(messages)}, NOW)


def test_the_golden_set_is_there() -> None:
    shared_path("chat/chat_golden_dev.jsonl.gz")
    assert len(_golden()) == 420


@pytest.mark.parametrize("row", _golden(), ids=lambda row: f"{row['template']}-{row['case']}")
def test_golden_rendering(row: dict[str, Any]) -> None:
    case = dict(_cases()[row["case"]])
    messages = case.pop("messages")
    template = _template(row["template"])
    listed = (row["template"], row["case"]) in OUT_OF_SCOPE
    try:
        text: str | None = render(template, messages, bos_token="<BOS>", eos_token="<EOS>", **case)
    except InvalidValueError:
        text = None
    assert (text == row.get("expected")) is not listed


def test_llama_cpp_cases_render_as_jinja_does() -> None:
    cases = json.loads(shared_path("chat/llamacpp_template_cases.json").read_text())
    assert len(cases) == 36
    for case in cases:
        template = ChatTemplate(case["template"])
        variables = {key: case[key] for key in ("bos_token", "eos_token", "add_generation_prompt")}
        if "hf_jinja2" in case:
            assert render(template, case["messages"], **variables) == case["hf_jinja2"], case["name"]
        else:
            with pytest.raises((InvalidValueError, UnsupportedFieldError)):
                render(template, case["messages"], **variables)


HELLO = [{"role": "user", "content": "hello"}]


def test_raise_exception_names_the_messages() -> None:
    with pytest.raises(InvalidValueError, match="chat template refuses them: roles must alternate") as caught:
        render(ChatTemplate("{{ raise_exception('roles must alternate') }}"), HELLO)
    assert caught.value.param == "messages"
    assert caught.value.http_status == 400


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0]['content'] + 1 }}",
        "{{ missing.attribute }}",
        "{{ 1 // 0 }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ 'x' * 100000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ [0] * 100000000000 }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ lipsum(100000) }}",
        "{% include 'file' %}",
        "{{ undefined | tojson }}",
        "{{ '\\ud800' }}" + "{{ raise_exception('\\ud800') }}",
    ],
)
def test_whatever_fails_inside_is_the_message_s_fault(source: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^messages: the chat template (fails|refuses)") as caught:
        render(ChatTemplate(source), HELLO)
    assert caught.value.param == "messages"
    assert len(caught.value.message) < 500


X = "{% set x = 'x' * 25000 %}"
DOUBLING = "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        X + "{{ " + "~".join(["x"] * 200) + " }}",
        X + "{{ " + "+".join(["x"] * 100) + " }}",
        "{{ 'x'.ljust(900000000) }}",
        "{{ 'x'.center(900000000) }}",
        "{{ 'x' | center(900000000) }}",
        "{{ ['x'] | map('center', 900000000) | first }}",
        X + "{{ x.replace('x', 'y' * 1000) }}",
        X + "{{ x | replace('x', 'y' * 1000) }}",
        X + "{{ x.join(x) }}",
        X + "{{ x | join(x) }}",
        "{{ '{:900000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 900000000) }}",
        X + "{{ ('{0}' * 1000).format(x) }}",
        "{{ '%900000000d' % 1 }}",
        "{{ '%*d' % (900000000, 1) }}",
        "{{ '%900000000d' | format(1) }}",
        "{{ ('\\t' * 1000).expandtabs(900000) }}",
        "{{ 'x' | indent(900000000, first=true) }}",
        X + "{{ x.translate({120: x}) }}",
        "{{ [1] | batch(900000000, 0) | first }}",
        DOUBLING + "{{ n.x }}",
        DOUBLING + "{{ n.x | string }}",
        DOUBLING + "{{ n.x | tojson(indent=2) }}",
        "{% set s %}{% for i in range(99999) %}" + "x" * 2000 + "{% endfor %}{% endset %}",
        X + "{% set n = namespace(x=[]) %}{% for i in range(900) %}{% set n.x = n.x + [x[1:]] %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    ],
)
def test_little_does_not_become_much(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_CHARS", 1 << 20)
    template = ChatTemplate(source)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidValueError, match=r"the chat template (fails|refuses)"):
            render(template, HELLO)
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "MAX_CPU_SECONDS", 0.01)
    with pytest.raises(InvalidValueError, match=r"it takes more than 0.01 seconds"):
        render(ChatTemplate("{% for i in range(99999) %}{{ range(9999) | sum }}{% endfor %}"), HELLO)


def test_a_long_conversation_is_within_the_budget() -> None:
    source = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' + m.content.strip() | trim }}\n{% endfor %}"
    messages = [{"role": "user", "content": "x" * 1000}] * 4000
    assert len(render(ChatTemplate(source), messages)) == 4000 * 1009


def test_a_template_that_does_not_compile_says_where() -> None:
    template = ChatTemplate("fine\n{% for %}")
    for _ in range(2):
        with pytest.raises(UnsupportedFieldError, match=r"does not compile \(line 2\)"):
            render(template, HELLO)


def test_a_template_nested_too_deeply_does_not_compile() -> None:
    with pytest.raises(UnsupportedFieldError, match="does not compile"):
        render(ChatTemplate("{{ " + "+".join(["1"] * 500) + " }}"), HELLO)


def test_generation_blocks_and_loop_controls() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %};{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}"
    )
    messages = [{"role": role, "content": content} for role, content in (("user", "a"), ("user", "b"), ("user", "c"))]
    assert render(ChatTemplate(source), messages) == "a;b;"


def test_tojson_is_that_of_hugging_face() -> None:
    source = "{{ messages[0].content | tojson }} {{ messages[0].content | tojson(indent=1, sort_keys=true) }}"
    content = {"b": "<é>", "a": 1}
    assert render(ChatTemplate(source), [{"role": "user", "content": content}]) == (
        '{"b": "<é>", "a": 1} {\n "a": 1,\n "b": "<é>"\n}'
    )


def test_blocks_leave_no_blank_lines_behind() -> None:
    assert render(ChatTemplate("a\n    {% if true %}\nb\n    {% endif %}\nc"), HELLO) == "a\nb\nc"


def test_messages_are_normalized() -> None:
    messages = [{"role": "assistant", "content": None, "tool_calls": None, "reasoning": "because"}]
    assert template_messages(messages) == [
        {"role": "assistant", "reasoning": "because", "thinking": "because", "reasoning_content": "because"}
    ]


@pytest.mark.parametrize("messages", [None, {}, [], "hello", ["hello"], [[]], [{"role": object()}], [{1: "x"}]])
def test_messages_that_are_none(messages: Any) -> None:
    with pytest.raises(InvalidValueError) as caught:
        template_messages(messages)
    assert caught.value.param == "messages"


def test_deep_nesting_is_refused() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidValueError, match="nested more than 64 deep") as caught:
        plain_json({"x": deep}, "tools")
    assert caught.value.param == "tools"
