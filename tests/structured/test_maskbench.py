"""A sample of maskbench: nothing that a schema forbids is accepted, most of what it allows is."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from forebay.structured.llguidance_backend import LLGuidanceBackend
from tests.structured.harness import Case, checked, maskbench_cases, plain_encode, run_case, wrong_accepts
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import gguf_tokenizer

EVERY = int(os.environ.get("FOREBAY_MASKBENCH_EVERY", "8"))  # all of them: benchmarks/maskbench.py


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return maskbench_cases(shared_path("structured/maskbench/maskbench_dev.jsonl.gz"))[::EVERY]


def test_no_forbidden_instance_is_accepted_and_allowed_ones_are(
    cases: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = gguf_tokenizer("gpt-2")
    backend = LLGuidanceBackend(tokenizer, vocab_size=tokenizer.vocab_size)
    counts: Counter[str] = Counter()
    wrong = []
    for case in cases:
        outcome = run_case(checked(backend), case, plain_encode(tokenizer))
        counts["refused" if outcome.refusal else "compiled"] += 1
        assert outcome.failed == {}, case.name
        wrong += [(case.name, instance.name, said) for instance, said in wrong_accepts(case, outcome)]
        for instance in case.instances if outcome.refusal is None else ():
            accepted = outcome.accepted[instance.name] is not None
            counts[f"{'valid' if instance.valid else 'invalid'} {'accepted' if accepted else 'rejected'}"] += 1
    with capsys.disabled():
        print(f"\nmaskbench, every {EVERY}th: {dict(counts)}")
    assert wrong == []
    assert counts["compiled"] > 0.5 * len(cases)
    assert counts["valid accepted"] > 0.97 * (counts["valid accepted"] + counts["valid rejected"])
