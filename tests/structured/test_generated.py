"""Whatever a grammar lets a model write is an instance of its schema, by jsonschema's reading with formats asserted."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from forebay.errors import InvalidValueError
from tests.structured.harness import maskbench_cases, validator_of
from tests.structured.support import compiled_schema, generate
from tests.support.shared import shared_path

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "pattern": "^[a-c]+$"}},
        "required": ["b"]},
    {"type": "array", "items": {"type": "number", "multipleOf": 0.25, "minimum": -2, "exclusiveMaximum": 3},
        "maxItems": 4},
    {"type": "object", "patternProperties": {"^x-": {"type": "boolean"}}, "additionalProperties": {"type": "null"},
        "minProperties": 1},
    {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "ipv6"},
        {"type": "string", "format": "uuid"}]},
    {"type": "object",
        "properties": {"k": {"enum": ["a", 2, None, [1]]}, "s": {"type": "string", "minLength": 1, "maxLength": 3}},
            "required": ["k", "s"], "additionalProperties": False},
    {"$ref": "#/$defs/t",
        "$defs": {"t": {"type": ["object", "null"], "properties": {"l": {"$ref": "#/$defs/t"}},
            "additionalProperties": False}}},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}},
        {"properties": {"a": {"maxLength": 2}, "b": {"type": "integer"}}, "required": ["b"]}]},
]  # fmt: skip


def wrong_outputs(schema: Any, seeds: range) -> tuple[list[str], int]:
    grammar, validator = compiled_schema(schema), validator_of(schema)
    assert validator is not None
    wrong, done = [], 0
    for seed in seeds:
        data = generate(grammar.matcher(), random.Random(seed))
        if data is None:
            continue
        done += 1
        if not validator.is_valid(json.loads(data)):
            wrong.append(data.decode())
    return wrong, done


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:40])
def test_random_outputs_are_instances(schema: Any) -> None:
    wrong, done = wrong_outputs(schema, range(60))
    assert wrong == []
    assert done >= 20


def test_random_outputs_of_real_schemas_are_instances(capsys: pytest.CaptureFixture[str]) -> None:
    cases = maskbench_cases(shared_path("structured/maskbench/maskbench_dev.jsonl.gz"))[3::16]
    total, wrong = 0, {}
    for case in cases:
        if validator_of(case.schema) is None:
            continue
        try:
            found, done = wrong_outputs(case.schema, range(4))
        except InvalidValueError:
            continue
        total += done
        if found:
            wrong[case.name] = found
    with capsys.disabled():
        print(f"\n{total} random outputs of maskbench schemas")
    assert wrong == {}
    assert total >= 20
