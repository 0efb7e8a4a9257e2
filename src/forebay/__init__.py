"""Forebay: an LLM serving engine that gives one answer, keeps its promises and can explain itself.

from forebay import LLM, SamplingParams
with LLM("smollm2-135m") as llm:
    print(llm.generate("The capital of France is", SamplingParams(max_tokens=8))[0].text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.grammar_spec import GrammarKind, GrammarSpec
    from forebay.core.sampling_params import SamplingParams
    from forebay.llm import LLM, AsyncLLM
    from forebay.profile import Profile

__all__ = ["LLM", "AsyncLLM", "GrammarKind", "GrammarSpec", "Profile", "SamplingParams"]

# loaded on first use, so that `import forebay` costs nothing
_HOME = {
    "LLM": "forebay.llm",
    "AsyncLLM": "forebay.llm",
    "GrammarKind": "forebay.core.grammar_spec",
    "GrammarSpec": "forebay.core.grammar_spec",
    "Profile": "forebay.profile",
    "SamplingParams": "forebay.core.sampling_params",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
