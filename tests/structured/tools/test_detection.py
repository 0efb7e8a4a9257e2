from __future__ import annotations

from pathlib import Path

import pytest

from forebay.errors import InvalidValueError
from forebay.structured.reasoning import detect_reasoning
from forebay.structured.tools.message import message_format
from forebay.structured.tools.registry import FORMATS, detect_tool_format, no_tool_format, tool_format
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.pieces import Pieces
from forebay.tokenizer.tokenizer import SpecialTokens
from tests.structured.tools.grammars import marked_tokenizer, tokenizer_named
from tests.support.shared import shared_path

# the 70 templates of the data set; those not listed write calls in ways that have no format here
TOOL_FORMATS = {
    "hermes": {
        "Bielik-11B-v3.0-Instruct",
        "MiMo-VL",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-QwQ-32B",
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "Reka-Edge",
        "ibm-granite-granite-4.0",
        "ibm-granite-granite-4.1",
    },
    "llama3_json": {
        "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.2-3B-Instruct",
        "meta-llama-Llama-3.3-70B-Instruct",
    },
    "mistral": {"mistralai-Mistral-Nemo-Instruct-2407"},
    "mistral_id": {"Mistral-Small-3.2-24B-Instruct-2506"},
    "mistral_args": {"mistralai-Ministral-3-14B-Reasoning-2512", "unsloth-mistral-Devstral-Small-2507"},
    "pythonic_tagged": {"LFM2.5-8B-A1B"},
    "deepseek_v3": {
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "llama-cpp-deepseek-r1",
    },
    "deepseek_v31": {"deepseek-ai-DeepSeek-V3.1"},
    "harmony": {"openai-gpt-oss-120b"},
}
REASONING = {
    "[THINK]": {"mistralai-Ministral-3-14B-Reasoning-2512"},
    "<seed:think>": {"ByteDance-Seed-OSS"},
    "<|START_THINKING|>": {"Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use"},
    "<mm:think>": {"MiniMax-M3"},
    "<|channel>thought\n": {"google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"},
}


def templates() -> dict[str, str]:
    folder: Path = shared_path("chat/templates")
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))}


def test_every_template_of_the_data_set() -> None:
    found: dict[str, set[str]] = {}
    for model, template in templates().items():
        if known := detect_tool_format(template):
            found.setdefault(known.name, set()).add(model)
    assert found == TOOL_FORMATS


def test_the_reasoning_of_every_template_of_the_data_set() -> None:
    found: dict[str, set[str]] = {}
    for model, template in templates().items():
        if known := detect_reasoning(template):
            found.setdefault(known.begin, set()).add(model)
    usual = found.pop("<think>")
    assert found == REASONING
    assert {"Qwen-Qwen3-0.6B", "Qwen-QwQ-32B", "deepseek-ai-DeepSeek-V3.1", "HuggingFaceTB-SmolLM3-3B"} <= usual
    assert not usual & {"Qwen-Qwen2.5-7B-Instruct", "openai-gpt-oss-120b", "google-gemma-2-2b-it"}


def test_special_tokens_tell_where_the_template_does_not() -> None:
    template = templates()["LFM2-8B-A1B"]
    assert detect_tool_format(template) is None
    assert detect_tool_format(template, {"<|tool_call_start|>", "<|tool_call_end|>"}) is FORMATS["pythonic_tagged"]


def test_a_template_that_asks_for_python() -> None:
    template = "Use exact format: [func_name1(param1=value1), func_name2(...)]"
    assert detect_tool_format(template) is FORMATS["pythonic"]


@pytest.mark.parametrize("template", [None, "", "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"])
def test_an_unknown_template_has_no_format(template: str | None) -> None:
    assert detect_tool_format(template) is None


def test_the_error_names_what_is_known() -> None:
    error = no_tool_format()
    assert [name for name in FORMATS if name not in error.message] == []
    assert error.param == "tools"


def test_formats_by_name() -> None:
    assert [tool_format(name).name for name in FORMATS] == list(FORMATS)
    with pytest.raises(InvalidValueError, match=r"did you mean 'hermes'.*known: hermes, llama3_json") as caught:
        tool_format("hermess")
    assert caught.value.param == "tool_format"


def test_no_template_has_no_reasoning() -> None:
    assert detect_reasoning(None) is None
    assert detect_reasoning("<think> alone") is None


def test_the_format_of_a_model() -> None:
    """Tokens of which markers are made are named, whole or in part, if they are special."""
    qwen = message_format(templates()["Qwen-Qwen3-0.6B"], marked_tokenizer())
    assert (qwen.tools, qwen.reasoning) == (FORMATS["hermes"], detect_reasoning("<think></think>"))
    assert set(qwen.token_ids) == {"<tool_call>", "</tool_call>", "<think>", "</think>"}
    plain = message_format(templates()["Qwen-Qwen3-0.6B"], tokenizer_named("gpt-2"))
    assert plain.token_ids == {}
    gemma = message_format(templates()["google-gemma-4-31B-it"], with_special("<|channel>", "<channel|>", "<bos>"))
    assert gemma.tools is None
    assert set(gemma.token_ids) == {"<|channel>", "<channel|>"}
    assert message_format(None, marked_tokenizer(), "mistral").tools is FORMATS["mistral"]


def with_special(*texts: str) -> Tokenizer:
    pieces = {i: text.encode() for i, text in enumerate(texts)}
    return Tokenizer(
        lambda text: [],
        Pieces(pieces.get, frozenset(pieces)),
        SpecialTokens(),
        vocab_size=len(pieces),
        templates={},
        identity=[b"special"],
    )
