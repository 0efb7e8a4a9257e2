"""Real prompts of mixed length, from the shared data."""

from __future__ import annotations

import gzip
import json

from tests.support.shared import shared_path


def mixed_prompts(count: int) -> list[str]:
    """Questions (short), grade-school problems (middle) and passages of a novel (long), in turn."""
    questions = [json.loads(line)["turns"][0] for line in shared_path("prompts/spec_bench_question.jsonl").open()]
    with gzip.open(shared_path("prompts/gsm8k_test_dev.jsonl.gz"), "rt") as lines:
        problems = [json.loads(line)["question"] for line in lines]
    with gzip.open(shared_path("prompts/ulysses.md.gz"), "rt") as file:
        novel = file.read()
    lengths = (200, 900, 2500, 450)
    passages = [novel[20000 + 5000 * i :][: lengths[i % 4]] for i in range(count)]
    sources = (questions, problems, passages)
    return [sources[i % 3][i // 3] for i in range(count)]
