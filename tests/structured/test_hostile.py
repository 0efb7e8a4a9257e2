"""Specs made to cost much: each ends, in bounded time and memory, and never takes the process with it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.errors import GrammarError
from forebay.structured import check

DEEP_ANY = '{"anyOf":[' * 48 + "{}" + "]}" * 48
HOSTILE = {
    "nested": ("json_schema", '{"items":' * 98 + "{}" + "}" * 98),
    "nested anyOf": ("json_schema", DEEP_ANY),
    "chain of references": (
        "json_schema",
        json.dumps({"$ref": "#/$defs/a0",
            "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(5000)} | {"a5000": {}}}),
    ),
    "product of alternatives": ("json_schema",
        json.dumps({"allOf": [{"anyOf": [{"minimum": i}, {"maximum": i}]} for i in range(24)]})),
    "wide intersection": ("json_schema",
        json.dumps({"allOf": [{"properties": {f"p{i}": {"minimum": j} for i in range(60)}} for j in range(60)]})),
    "patterns of one string": ("json_schema",
        json.dumps({"allOf": [{"pattern": f"(a|b)*a(a|b){{{n}}}"} for n in range(10, 60)]})),
    "patterns of one item": ("json_schema", json.dumps({"allOf": [
        {"items": {"properties": {"k": {"pattern": f"(a|b)*a(a|b){{{n}}}"}}}} for n in range(10, 60)]})),
    "patterns by reference": ("json_schema", json.dumps({"$ref": "#/$defs/a0", "$defs": {
        f"a{n}": {"pattern": f"(a|b)*a(a|b){{{n}}}"} | ({"$ref": f"#/$defs/a{n + 1}"} if n < 40 else {})
        for n in range(41)}})),
    "intersections": ("grammar", "start: A\nA: " + " & ".join(f"/(.*x.{{{n}}}y.*)/" for n in range(30)) + "\n"),
    "nested repetition": ("regex", "((((a{1000}){1000}){1000}){1000})"),
    "alternatives of repetition": ("regex", "(" + "|".join(f"a{{{n}}}b*" for n in range(300)) + ")*"),
    "many optional properties": ("json_schema", json.dumps({"properties": {f"p{i}": {} for i in range(8000)}})),
    "long enum": ("json_schema", json.dumps({"enum": [f"value {i}" * 3 for i in range(15_000)]})),
    "long array": ("json_schema", json.dumps({"type": "array", "minItems": 90_000, "maxItems": 100_000})),
    "long string": ("json_schema", json.dumps({"type": "string", "minLength": 90_000, "pattern": "a*b"})),
    "chain of rules": ("grammar",
        "start: r0\n" + "".join(f"r{i}: r{i + 1} | \"a\"\n" for i in range(1990)) + 'r1990: "b"\n'),
    "nested groups": ("grammar", "start: " + "(" * 200 + '"a"' + ")" * 200),
    "ambiguous": ("grammar", 'start: a\na: a a a | a a | "x" | \n'),
    "gbnf chain": ("grammar",
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} \"a\"\n" for i in range(1990)) + 'r1990 ::= "b"\n'),
}  # fmt: skip
# what takes long before anything is compiled: fields sent as text, so that they reach the check as they are
CHECKED = {
    "a key twice": (GrammarKind.JSON_SCHEMA, "{" + ",".join(f'"a{n}":1' for n in range(40_000)) + ',"z":1,"z":2}'),
    "names of properties": (GrammarKind.JSON_SCHEMA, json.dumps({
        "properties": {f"p{n}": True for n in range(15_000)},
        "propertyNames": {"enum": [f"q{n}" for n in range(25_000)]}})),
    "pairs of long lists": (GrammarKind.JSON_SCHEMA, json.dumps({"oneOf": [
        {"type": ["object", "integer"], "required": ["k"], "minimum": 2 * n, "maximum": 2 * n,
         "properties": {"k": {"enum": [f"{n}_{m}" for m in range(75)]}}} for n in range(245)]})),
    "alternatives that double": (GrammarKind.JSON_SCHEMA, json.dumps({
        "oneOf": [{"$ref": "#/$defs/d0"}, {"type": "integer"}],
        "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(28)}
        | {"d28": {"type": "string"}}})),
    "rules of gbnf": (GrammarKind.GRAMMAR, "root ::= r0\n"
        + "".join(f'r{n} ::= "a" r{n + 1}?\n' for n in range(1990)) + 'r1990 ::= "a"\n'),
}  # fmt: skip
SCRIPT = """
import json, resource, sys, time
import numpy as np
from forebay.errors import ForebayError
from forebay.structured import CompileLimits, CompilePool
from forebay.structured.grammar import mask_words
from tests.structured.support import ROWS, feed, spec, tiny_backend
pool = CompilePool(tiny_backend(), CompileLimits(timeout_s=30))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.monotonic()
error = pool.submit(spec(sys.argv[1], sys.stdin.read())).exception(60)
took = time.monotonic() - start
assert error is None or isinstance(error, ForebayError), error
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"took": took, "grown_mb": grown / 1024, "error": str(error)[:100]}))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_ends_in_bounded_time_and_memory(name: str) -> None:
    kind, source = HOSTILE[name]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind],
        input=source, capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found = json.loads(done.stdout)
    assert found["took"] < 20, found
    assert found["grown_mb"] < 1500, found


@pytest.mark.parametrize("name", CHECKED)
def test_a_check_is_quick(name: str) -> None:
    kind, source = CHECKED[name]
    start = time.process_time()
    with contextlib.suppress(GrammarError):
        check(GrammarSpec(kind=kind, source=source))
    assert time.process_time() - start < 1.5
