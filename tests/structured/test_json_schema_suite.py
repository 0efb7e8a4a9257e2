"""The JSON Schema Test Suite, beside what llguidance expects of itself: nothing invalid is accepted."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from tests.structured.harness import Case, checked, run_case, suite_cases
from tests.structured.support import encode, tiny_backend
from tests.support.shared import shared_path

# Where valid instances are not accepted: formats are asserted, not annotations, and are narrower than their standards
# (see docs/structured.md); what stands beside a $ref counts in draft 7 as well.
NARROWER = {
    "draft2020-12/format",
    "draft7/ref",
    "draft2020-12/optional/format/email",
    *(
        f"{draft}/optional/format/{name}"
        for draft in ("draft2020-12", "draft7")
        for name in ("date-time", "time", "hostname", "json-pointer")
    ),
}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return suite_cases(shared_path("structured/jsonschema-suite/json-schema-test-suite.tar.gz"))


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """draft -> file -> group -> test -> what llguidance makes of it."""
    path = shared_path("structured/jsonschema-suite/llguidance_expected.json.gz")
    with gzip.open(path, "rt") as file:
        loaded: dict[str, dict[str, dict[str, dict[str, str]]]] = json.load(file)
    return loaded


def test_nothing_invalid_is_accepted(
    cases: list[Case],
    expected: dict[str, dict[str, dict[str, dict[str, str]]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    wrong, missed = [], set()
    for case in cases:
        draft, _, file = case.group.partition("/")
        schema = case.schema
        if draft == "draft7" and isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
        outcome = run_case(checked(tiny_backend()), Case(case.name, case.group, schema, case.instances), encode)
        for instance in case.instances:
            theirs[expected.get(draft, {}).get(file, {}).get(case.name, {}).get(instance.name, "not known")] += 1
            accepted = outcome.accepted.get(instance.name) is not None
            verdict = "pass" if accepted == instance.valid else "false_negative"
            if outcome.refusal is not None:
                verdict = "refused"
            elif accepted and not instance.valid:
                verdict = "false_positive"
                wrong.append((case.group, case.name, instance.name))
            elif not accepted and instance.valid:
                missed.add(case.group)
            ours[verdict] += 1
    with capsys.disabled():
        print(f"\nJSON Schema Test Suite: here {dict(ours)}; llguidance by itself {dict(theirs)}")
    assert wrong == []
    assert not missed - NARROWER
    assert ours["pass"] > 2 * theirs["pass"]
