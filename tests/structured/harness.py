"""Schemas with instances that match and that do not, held against grammars: for tests, and for benchmarks/maskbench.py.

An instance is written as a grammar would: compact, its keys in the order the grammar takes them. That order is found by
trying, as maskbench's own reorder.py does: a key is next if the grammar takes it and still takes all others it took
before.
"""

from __future__ import annotations

import gzip
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator

from forebay.errors import InvalidValueError
from forebay.structured.grammar import Matcher, mask_words
from forebay.structured.llguidance_backend import LLGuidanceBackend, LLGuidanceGrammar
from forebay.tokenizer import Tokenizer
from tests.structured.support import schema_spec

MAX_TRIES = 20_000  # texts offered to a matcher for one instance
_ECMA_SPACE = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


@dataclass(frozen=True, slots=True)
class Instance:
    name: str
    value: Any
    valid: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A schema with instances. group: what results are added up by."""

    name: str
    group: str
    schema: Any
    instances: tuple[Instance, ...]


def maskbench_cases(path: Path) -> list[Case]:
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Case(
            row["id"],
            row["category"],
            row["schema"],
            tuple(Instance(f"{i}: {t['description']}", t["data"], t["valid"]) for i, t in enumerate(row["tests"])),
        )
        for row in rows
    ]


def suite_cases(path: Path, drafts: tuple[str, ...] = ("draft2020-12", "draft7")) -> list[Case]:
    """The JSON Schema Test Suite: required tests and those of formats. group: "draft/file"."""
    found = []
    with tarfile.open(path) as archive:
        for member in sorted(archive.getnames()):
            match = re.fullmatch(rf"tests/({'|'.join(drafts)})/((?:optional/format/)?[\w-]+)\.json", member)
            if not match:
                continue
            file = archive.extractfile(member)
            assert file is not None
            for group in json.load(file):
                instances = tuple(Instance(t["description"], t["data"], t["valid"]) for t in group["tests"])
                found.append(Case(group["description"], f"{match[1]}/{match[2]}", group["schema"], instances))
    return found


class Follower:
    """Writes a value to a matcher, keys in the order it takes them."""

    def __init__(self, matcher: Matcher, encode: Callable[[str], list[int]]) -> None:
        self._matcher = matcher
        self._encode = encode
        self._taken: list[tuple[str, int]] = []  # each text, and how many tokens it was
        self._tries = 0

    def follow(self, value: Any) -> str | None:
        """The text of the value if it is a whole output, else None."""
        if self._value(value) and self._matcher.is_complete:
            return "".join(text for text, _ in self._taken)
        return None

    def _value(self, value: Any) -> bool:
        if isinstance(value, dict):
            return self._text("{") and self._members(dict(value)) and self._text("}")
        if isinstance(value, list):
            parts = (self._text(",") and self._value(v) if i else self._value(v) for i, v in enumerate(value))
            return self._text("[") and all(parts) and self._text("]")
        return any(map(self._scalar, spellings(value)))

    def _scalar(self, text: str) -> bool:
        """Taken whole: 2.0 may be the beginning of 2.00 only."""
        mark = len(self._taken)
        if self._text(text) and (self._matcher.is_complete or any(map(self._can, ",]}"))):
            return True
        self._back(mark)
        return False

    def _members(self, left: dict[str, Any]) -> bool:
        comma = ""
        while left:
            possible = [key for key in left if self._can(f"{comma}{_dumps(key)}:")]
            for key in possible:
                mark = len(self._taken)
                others = [f",{_dumps(other)}:" for other in possible if other != key]
                if (
                    self._text(f"{comma}{_dumps(key)}:") and self._value(left[key]) and all(map(self._can, others))
                ):  # fmt: skip
                    del left[key]
                    break
                self._back(mark)
            else:
                return False
            comma = ","
        return True

    def _text(self, text: str) -> bool:
        self._tries += 1
        if self._tries > MAX_TRIES:
            return False
        ids = self._encode(text)
        for count, i in enumerate(ids):
            if not self._matcher.accept(i):
                self._matcher.rollback(count)
                return False
        self._taken.append((text, len(ids)))
        return True

    def _can(self, text: str) -> bool:
        mark = len(self._taken)
        taken = self._text(text)
        self._back(mark)
        return taken

    def _back(self, mark: int) -> None:
        self._matcher.rollback(sum(count for _, count in self._taken[mark:]))
        del self._taken[mark:]


def spellings(value: Any) -> list[str]:
    """Texts of a scalar: as Python writes it; of a number also without exponent, without zero fraction, with zeros."""
    texts = [_dumps(value)]
    if isinstance(value, float) and value == int(value):
        texts.append(str(int(value)))
    elif isinstance(value, float):
        plain = np.format_float_positional(value)
        texts += [plain, *(plain + "0" * n for n in range(1, 4))]
    return texts


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(slots=True)
class Outcome:
    """Of one case: refused, or per instance what was accepted."""

    refusal: str | None = None
    compile_s: float = 0.0
    accepted: dict[str, str | None] = field(default_factory=dict)  # the text that was accepted
    failed: dict[str, str] = field(default_factory=dict)  # instances whose matcher met a limit
    masks_s: list[float] = field(default_factory=list)
    num_off_mask: int = 0  # tokens of accepted texts that the mask had left out for another spelling


def run_case(
    compile_schema: Callable[[Any], LLGuidanceGrammar], case: Case, encode: Callable[[str], list[int]]
) -> Outcome:
    """Compile, and follow every instance."""
    start = time.perf_counter()
    try:
        grammar = compile_schema(case.schema)
    except InvalidValueError as error:
        return Outcome(refusal=error.message, compile_s=time.perf_counter() - start)
    outcome = Outcome(compile_s=time.perf_counter() - start)
    for instance in case.instances:
        try:
            text = Follower(grammar.matcher(), encode).follow(instance.value)
            outcome.accepted[instance.name] = text
            if text is not None:
                time_masks(grammar, encode(text), outcome)
        except InvalidValueError as error:
            outcome.failed[instance.name] = error.message
    return outcome


def time_masks(grammar: LLGuidanceGrammar, ids: list[int], outcome: Outcome) -> None:
    """The mask before each token of an accepted output, as decoding would ask for it."""
    matcher = grammar.matcher()
    row = np.zeros(mask_words(grammar.backend.vocab_size), np.uint32)
    for i in ids:
        start = time.perf_counter()
        matcher.fill_mask(row)
        outcome.masks_s.append(time.perf_counter() - start)
        outcome.num_off_mask += not (int(row[i // 32]) >> (i % 32)) & 1
        if not matcher.accept(i):
            break


def wrong_accepts(case: Case, outcome: Outcome, *, by_label: bool = False) -> Iterator[tuple[Instance, str]]:
    """Accepted instances that should not be, each with jsonschema's reason.

    What is judged is the text that was accepted: 12.0, of which 12 is another spelling, is no integer in draft 4.
    Where the data set calls an instance invalid and jsonschema does not, it counts, unless its text was such another
    spelling. by_label: take the data set's word alone, as that of the standard's own suite.
    """
    validator = validator_of(case.schema) if any(outcome.accepted.values()) and not by_label else None
    for instance in case.instances:
        text = outcome.accepted.get(instance.name)
        if text is None:
            continue
        try:
            error = next(validator.iter_errors(json.loads(text)), None) if validator else None
        except Exception as problem:  # a schema that jsonschema cannot follow, such as one with remote references
            error = None if instance.valid else problem
        if error is not None:
            yield instance, str(getattr(error, "message", error))
        elif not instance.valid and same_text(json.loads(text), instance.value):
            yield instance, "the data set calls it invalid"


def same_text(left: Any, right: Any) -> bool:
    """Whether two values are written alike but for the order of keys."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def checked(backend: LLGuidanceBackend) -> Callable[[Any], LLGuidanceGrammar]:
    """Schemas through all checks."""
    return lambda schema: backend.compile(schema_spec(schema))


def unchecked(backend: LLGuidanceBackend) -> Callable[[Any], LLGuidanceGrammar]:
    """Schemas straight to llguidance, with its own options."""
    return lambda schema: LLGuidanceGrammar(backend, json.dumps({"grammars": [{"json_schema": schema}]}), "schema")


def plain_encode(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Ids of a text, no special tokens added; those that the text spells are not looked for."""
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def _python_form(pattern: str) -> str:
    """A pattern with ECMA-262's white space and end of text."""
    parts, in_class = [], False
    for token in re.findall(r"\\.|.", pattern, re.DOTALL):
        if token == r"\s":
            token = _ECMA_SPACE if in_class else f"[{_ECMA_SPACE}]"
        elif token == "$" and not in_class:
            token = r"\Z"
        in_class = token == "[" or (in_class and token != "]")
        parts.append(token)
    return "".join(parts)


def _ecma_pattern(validator: Validator, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Patterns as ECMA-262 reads them, as near as Python's re comes."""
    if isinstance(instance, str):
        try:
            found = re.search(_python_form(pattern), instance, re.ASCII)
        except re.error:
            return
        if not found:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")


def validator_of(schema: Any) -> Validator | None:
    """jsonschema's reading of a schema, formats asserted; None for one that is not valid as a schema."""
    base = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        base.check_schema(schema)
    except SchemaError:
        return None
    return validators.extend(base, {"pattern": _ecma_pattern})(schema, format_checker=base.FORMAT_CHECKER)
