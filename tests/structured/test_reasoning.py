from __future__ import annotations

from collections.abc import Iterable

import pytest

from forebay.errors import InvalidValueError
from forebay.structured.reasoning import REASONING_FORMATS, ReasoningFormat, ReasoningSplitter, detect_reasoning
from forebay.structured.tools.deltas import collect
from forebay.structured.tools.message import MessageFormat
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import Tool, parse_tool_choice
from tests.structured.tools.calls import RENDERERS

THINK = ReasoningFormat("<think>", "</think>")


def split(pieces: Iterable[str], *, inside: bool = False) -> tuple[str, str]:
    splitter = ReasoningSplitter(THINK, inside=inside)
    parts = [*map(splitter.push, pieces), splitter.finish()]
    return "".join(reasoning for reasoning, _ in parts), "".join(content for _, content in parts)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nTwo and two.\n</think>\n\nFour.", "Two and two.", "Four."),
        (" \n<think>a</think>b", "a", "b"),
        ("<think></think>b", "", "b"),
        ("<think>\n\n</think>\n\n", "", ""),
        ("<think>never closed ", "never closed ", ""),
        ("<think>a</thi", "a</thi", ""),
        ("Four.\n", "", "Four.\n"),
        ("  ", "", "  "),
        ("<thi", "", "<thi"),
        ("", "", ""),
        # markers later on are content: a text about them must stay whole
        ("Write <think>a</think>.", "", "Write <think>a</think>."),
        ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ],
)
def test_split(text: str, reasoning: str, content: str) -> None:
    assert split([text]) == split(text) == (reasoning, content)  # whole, and character by character


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("Two and two.\n</think>\n\nFour.", "Two and two.", "Four."),
        ("\n<think>\nagain</think>Four.", "again", "Four."),
        ("</think>Four.", "", "Four."),
        ("<thin", "<thin", ""),
    ],
)
def test_split_of_a_text_that_begins_inside(text: str, reasoning: str, content: str) -> None:
    assert split([text], inside=True) == split(text, inside=True) == (reasoning, content)


@pytest.mark.parametrize("known", REASONING_FORMATS, ids=lambda known: known.begin.strip())
def test_every_known_format(known: ReasoningFormat) -> None:
    splitter = ReasoningSplitter(known, inside=False)
    text = f"{known.begin}because{known.end}so"
    assert splitter.push(text) == ("because", "so")
    assert detect_reasoning(f"{{{{ '{known.begin}' + text + '{known.end}' }}}}".replace("\n", "\\n")) == known


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|Assistant|><think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_whether_the_prompt_opened_the_reasoning(prompt: str, inside: bool) -> None:
    assert THINK.begins_inside(prompt) is inside


def test_budget_counts_tokens_of_reasoning_and_says_when_it_is_spent() -> None:
    splitter = ReasoningSplitter(THINK, inside=False, budget=3)
    seen = []
    for token in ["<think>", "one", " two", " three", " four"]:
        splitter.push(token, 1)
        seen.append((splitter.num_tokens, splitter.spent))
    assert seen == [(0, False), (1, False), (2, False), (3, True), (4, True)]
    assert splitter.push(splitter.closing_text + "So.", 3) == ("", "So.")
    assert not splitter.spent
    splitter.push(" More.", 1)
    assert splitter.num_tokens == 7


def test_budget_of_a_text_that_begins_inside() -> None:
    assert ReasoningSplitter(THINK, inside=True, budget=0).spent
    assert not ReasoningSplitter(THINK, inside=True).spent
    with pytest.raises(InvalidValueError, match="0 or more"):
        ReasoningSplitter(THINK, inside=True, budget=-1)


@pytest.mark.parametrize(("begin", "end"), [("", "</think>"), ("<think>", " "), ("x", "x")])
def test_markers_must_differ(begin: str, end: str) -> None:
    with pytest.raises(InvalidValueError, match="reasoning_markers"):
        ReasoningFormat(begin, end)


def test_a_message_with_reasoning_content_and_calls() -> None:
    tools = (Tool("f"),)
    speaks = MessageFormat(FORMATS["hermes"], THINK)
    assert speaks.markers == ("<think>", "</think>", "<tool_call>", "</tool_call>")
    parser = speaks.parser("...<think>\n", parse_tool_choice("auto", tools), "request-1")
    text = "Ask f.\n</think>\n\nLet me see.\n" + RENDERERS["hermes"]([("f", {"a": 1})])
    message = collect([*parser.push(text), *parser.finish()])
    assert (message.reasoning, message.content) == ("Ask f.", "Let me see.")
    assert [call.arguments for call in message.calls] == ['{"a": 1}']


def test_without_tools_a_call_is_content_but_channels_are_always_read() -> None:
    text = RENDERERS["hermes"]([("f", {})])
    none = parse_tool_choice(None, ())
    plain = MessageFormat(FORMATS["hermes"], None).parser("", none, "request-1")
    assert collect([*plain.push(text), *plain.finish()]).content == text
    channels = MessageFormat(FORMATS["harmony"], None).parser("", none, "request-1")
    text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b"
    message = collect([*channels.push(text), *channels.finish()])
    assert (message.reasoning, message.content) == ("a", "b")
