"""Named kinds of requests, each with the sizes and the answer that make it what it is.

A bucket says how many tokens of text it has (`whole`: tokens of the whole prompt) and how long its answers may be.
Where the model's context is too short, both shrink alike.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.bench.plan import Turn
from forebay.bench.workload.bucket_parts import CHAT_QUESTIONS, CITIES, NEEDLE_WORDS, RAG_QUESTIONS, SCHEMAS, TOOLS
from forebay.bench.workload.prompts import body, user
from forebay.bench.workload.text import TextSource, count_chat
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer

_JOINTS = 4  # tokens that may come to be where a passage meets the words before it
LEAST_TEXT = 8  # tokens of text below which a bucket would not be what its name says

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What a bucket works with. fixed_output: answers whose length is the point go on to max_tokens."""

    tokenizer: Tokenizer
    source: TextSource
    rng: np.random.Generator
    max_model_len: int | None = None
    fixed_output: bool = True

    def between(self, bounds: Range) -> int:
        return int(self.rng.integers(*bounds, endpoint=True))

    def one_of(self, things: tuple[Any, ...]) -> Any:
        return things[int(self.rng.integers(len(things)))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """text, output: fewest and most tokens. whole: `text` counts the whole prompt, not only what fills it."""

    name: str
    about: str
    text: Range
    output: Range
    make: Callable[[Bucket, Desk], Turn]
    whole: bool = False

    def sizes(self, desk: Desk, fixed: int) -> tuple[int, int]:
        """Tokens of the prompt and of the answer, drawn. fixed: the prompt's tokens without its text.
        BenchError if max_model_len leaves less than LEAST_TEXT tokens of text."""
        outside = 0 if self.whole else fixed
        share = self._share(desk, outside)
        text = math.floor(desk.between(self.text) * share)
        output = math.floor(desk.between(self.output) * share)
        prompt = max(text + outside, fixed + LEAST_TEXT)
        self.check(desk, prompt, max(1, output))
        return prompt, max(1, output)

    def check(self, desk: Desk, prompt: int, output: int) -> None:
        if desk.max_model_len is not None and prompt + output > desk.max_model_len:
            raise BenchError(
                f"mix: bucket {self.name!r} needs {prompt} + {output} tokens at the least, and max_model_len is "
                f"{desk.max_model_len}; leave it out or serve a longer context"
            )

    def _share(self, desk: Desk, outside: int) -> float:
        """By how much all lengths shrink so that the longest fit."""
        if desk.max_model_len is None:
            return 1.0
        return min(1.0, max(0, desk.max_model_len - outside) / (self.text[1] + self.output[1]))


def _chat(
    bucket: Bucket,
    desk: Desk,
    place: Callable[[str], str],
    *,
    fields: dict[str, Any],
    tools: list[dict[str, Any]] | None = None,
    expected: str | None = None,
) -> Turn:
    """One user message: text put in its place."""

    def count(content: str) -> int:
        return count_chat(desk.tokenizer, user(content), tools)

    prompt_tokens, output = bucket.sizes(desk, count(place("")))
    content = desk.source.cut_text(prompt_tokens, place=place, count=count)
    return Turn(
        prompt=user(content),
        prompt_tokens=prompt_tokens,
        max_tokens=output,
        bucket=bucket.name,
        body=fields,
        expected=expected,
    )


def _before(question: str) -> Callable[[str], str]:
    return lambda text: f"{text.strip()}\n\n{question}"


def _ask(questions: tuple[str, ...], bucket: Bucket, desk: Desk) -> Turn:
    return _chat(bucket, desk, _before(desk.one_of(questions)), fields=body(ignore_eos=desk.fixed_output))


def _streaming_heavy(bucket: Bucket, desk: Desk) -> Turn:
    prompt_tokens, output = bucket.sizes(desk, 0)
    return Turn(
        prompt=desk.source.cut(prompt_tokens),
        prompt_tokens=prompt_tokens,
        max_tokens=output,
        bucket=bucket.name,
        body=body(ignore_eos=True),
    )


def _exact_copy(bucket: Bucket, desk: Desk) -> Turn:
    """The passage stands in the prompt and comes back as the answer, so it takes its room twice."""

    def plain(text: str) -> int:
        return len(desk.tokenizer.encode(text, add_special_tokens=False))

    def whole(passage: str) -> str:
        return f"Repeat exactly: {passage}"

    fixed = count_chat(desk.tokenizer, user(whole(""))) + _JOINTS
    prompt, _ = bucket.sizes(desk, fixed)
    passage = desk.source.cut_text(prompt - fixed, place=str.strip, count=plain)
    content = whole(passage)
    prompt_tokens = count_chat(desk.tokenizer, user(content))
    bucket.check(desk, prompt_tokens, prompt - fixed)
    return Turn(
        prompt=user(content),
        prompt_tokens=prompt_tokens,
        max_tokens=prompt - fixed,
        bucket=bucket.name,
        body=body(),
        expected=passage,
    )


def _needle(bucket: Bucket, desk: Desk) -> Turn:
    word, digits = desk.one_of(NEEDLE_WORDS), str(desk.between((1_000_000, 9_999_999)))
    needle, depth = f"The secret number of {word} is {digits}.", float(desk.rng.random())

    def place(text: str) -> str:
        text = text.strip()
        at = max(text.find(" ", int(depth * len(text))), 0)  # between two words, or in front of all
        return f"{text[:at]} {needle} {text[at:].lstrip()}\n\nWhat is the secret number of {word}?".lstrip()

    return _chat(bucket, desk, place, fields=body(), expected=digits)


def _tools(bucket: Bucket, desk: Desk) -> Turn:
    order = [int(i) for i in desk.rng.permutation(len(TOOLS))[: desk.between((2, 3))]]
    question = TOOLS[order[0]][0].format(city=desk.one_of(CITIES))
    tools = [TOOLS[i][1] for i in sorted(order)]
    fields = body(tools=tools, tool_choice="required")
    return _chat(bucket, desk, _before(question), fields=fields, tools=tools)


def _structured(bucket: Bucket, desk: Desk) -> Turn:
    name, schema = desk.one_of(SCHEMAS)
    required = schema["required"]
    question = f"Describe the text above as a JSON object with the fields {', '.join(required)}."
    form = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
    return _chat(bucket, desk, _before(question), fields=body(response_format=form), expected=f'"{required[0]}"')


BUCKETS = (
    Bucket(
        name="short_chat",
        about="a short message and a short answer",
        text=(64, 256),
        output=(64, 128),
        whole=True,
        make=partial(_ask, CHAT_QUESTIONS),
    ),
    Bucket(
        name="long_rag",
        about="a long passage and a question about it",
        text=(1000, 3000),
        output=(128, 128),
        make=partial(_ask, RAG_QUESTIONS),
    ),
    Bucket(
        name="streaming_heavy",
        about="a few words in, 512 tokens out",
        text=(32, 96),
        output=(512, 512),
        whole=True,
        make=_streaming_heavy,
    ),
    Bucket(
        name="exact_copy",
        about="a passage that is to be repeated",
        text=(100, 300),
        output=(300, 300),
        make=_exact_copy,
    ),
    Bucket(
        name="needle",
        about="one sentence to be found in a long text",
        text=(500, 3000),
        output=(32, 32),
        make=_needle,
    ),
    Bucket(
        name="tools",
        about="a question that one of two or three functions answers",
        text=(32, 96),
        output=(64, 64),
        make=_tools,
    ),
    Bucket(
        name="structured",
        about="an answer that must follow a JSON schema",
        text=(64, 192),
        output=(128, 128),
        make=_structured,
    ),
)


def parse_mix(text: str) -> list[tuple[Bucket, float]]:
    """ "short_chat=0.7,long_rag=0.3" -> buckets and their shares, which need not add up to 1. A name alone counts 1."""
    known = {bucket.name: bucket for bucket in BUCKETS}
    mix: list[tuple[Bucket, float]] = []
    for part in text.split(","):
        name, equals, share = (piece.strip() for piece in part.partition("="))
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise BenchError(f"mix {text!r}: unknown bucket {name!r}; {hint}")
        if any(bucket.name == name for bucket, _ in mix):
            raise BenchError(f"mix {text!r}: bucket {name!r} stands there twice; add its shares up")
        mix.append((known[name], _share_of(share if equals else "1", name, text)))
    return mix


def mixed(mix: list[tuple[Bucket, float]], count: int, rng: np.random.Generator) -> list[Bucket]:
    """`count` buckets in random order, each as often as its share says, to within one (largest remainders)."""
    total = sum(share for _, share in mix)
    wanted = [share / total * count for _, share in mix]
    whole = [math.floor(number) for number in wanted]
    by_rest = sorted(range(len(mix)), key=lambda i: (whole[i] - wanted[i], i))
    for i in by_rest[: count - sum(whole)]:
        whole[i] += 1
    buckets = [bucket for (bucket, _), times in zip(mix, whole, strict=True) for _ in range(times)]
    return [buckets[int(i)] for i in rng.permutation(count)]


def _share_of(text: str, name: str, mix: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1e6:
        raise BenchError(f"mix {mix!r}: share {text!r} of bucket {name!r} must be a number above 0")
    return share
