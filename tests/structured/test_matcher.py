"""The seam over llguidance: masks, end of sequence, taking back, forced tokens, wide output layers, limits met."""

from __future__ import annotations

import random

import numpy as np
import pytest

from forebay.core.grammar_spec import GrammarContract
from forebay.errors import InvalidValueError, UnsupportedModelError
from forebay.structured import llguidance_backend
from forebay.structured.grammar import Matcher, contract_of, mask_words
from forebay.structured.llguidance_backend import LLGuidanceBackend, LLGuidanceGrammar
from forebay.structured.token_table import TokenTable
from forebay.tokenizer import Tokenizer
from tests.structured.support import (
    CALL,
    EOS,
    PIECES,
    ROWS,
    TURN,
    VOCAB_SIZE,
    allowed,
    compiled,
    compiled_schema,
    encode,
    feed,
    generate,
    schema_spec,
    tiny_backend,
    tiny_tokenizer,
)
from tests.tokenizer.vocabularies import GGUF_NAMES, gguf_tokenizer, stories_tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "string"}]}}


def path(grammar: LLGuidanceGrammar, seed: int) -> list[int]:
    """The tokens of one random output, end included."""
    matcher, rng, ids = grammar.matcher(), random.Random(seed), []
    while not matcher.is_terminated:
        ids.append(rng.choice(sorted(allowed(matcher))))
        feed(matcher, ids[-1:])
        if len(ids) > 200:
            return ids
    return ids


def test_the_end_is_allowed_exactly_when_the_output_may_stop() -> None:
    matcher = compiled_schema(PERSON).matcher()
    for token in encode('{"name":"Jo","age":42}'):
        assert not matcher.is_complete
        assert not allowed(matcher) & {EOS, TURN}
        assert not matcher.accept(EOS)
        feed(matcher, [token])
    assert matcher.is_complete
    assert matcher.is_terminated  # nothing can follow
    assert allowed(matcher) == {EOS, TURN}
    feed(matcher, [TURN])
    assert matcher.is_terminated
    assert allowed(matcher) == {EOS, TURN}
    assert not matcher.accept(EOS)


def test_an_output_that_may_stop_may_also_go_on() -> None:
    matcher = compiled("regex", "a+").matcher()
    feed(matcher, b"a")
    assert matcher.is_complete
    assert not matcher.is_terminated
    assert allowed(matcher) == {EOS, TURN, ord("a")}


def test_every_token_of_the_mask_is_accepted_and_no_byte_beside_it() -> None:
    grammar = compiled_schema(LIST)
    for seed in range(5):
        matcher = grammar.matcher()
        for token in path(grammar, seed):
            mask = allowed(matcher)
            for i in range(256):
                taken = matcher.accept(i)
                if taken:
                    matcher.rollback(1)
                assert taken or i not in mask
            feed(matcher, [token])


def test_masks_depend_on_the_accepted_tokens_alone() -> None:
    """Not on masks asked for before, drafts taken back, forced tokens looked at, or what other requests have met."""
    for schema in (PERSON, LIST):
        shared = compiled_schema(schema)
        for seed in range(8):
            ids = path(shared, seed)
            plain, busy, fresh = shared.matcher(), shared.matcher(), compiled_schema(schema).matcher()
            rng = random.Random(seed)
            for token in ids:
                busy.forced_tokens()
                draft = [rng.choice(sorted(allowed(busy))) for _ in range(1)]
                taken = sum(busy.accept(i) for i in draft)
                if not busy.is_terminated and rng.random() < 0.5:
                    allowed(busy)
                busy.rollback(taken)
                assert allowed(busy) == allowed(plain) == allowed(fresh)
                for matcher in (plain, busy, fresh):
                    feed(matcher, [token])


def test_taking_back_restores_every_state() -> None:
    grammar = compiled_schema(PERSON)
    ids = [*encode('{"name":"Jo","age":42}'), EOS]
    matcher = grammar.matcher()
    states: list[tuple[set[int], bool, bool]] = []
    for token in ids:
        states.append((allowed(matcher), matcher.is_complete, matcher.is_terminated))
        feed(matcher, [token])
    for back in range(1, len(ids) + 1):
        matcher.rollback(back)
        assert (allowed(matcher), matcher.is_complete, matcher.is_terminated) == states[len(ids) - back]
        feed(matcher, ids[len(ids) - back :])
    with pytest.raises(ValueError, match="cannot take back"):
        matcher.rollback(len(ids) + 1)


def test_forced_tokens_are_what_must_follow() -> None:
    matcher = compiled_schema(PERSON).matcher()
    forced = matcher.forced_tokens()
    assert b"".join(PIECES[i] for i in forced).startswith(b'{"name')
    feed(matcher, forced)
    assert allowed(matcher)
    feed(matcher, [i for i in encode('":"x","age":') if i is not None])
    assert matcher.forced_tokens() == []
    feed(matcher, encode("1}"))
    assert matcher.forced_tokens() == []


def test_text_that_spells_a_special_token_is_never_that_token() -> None:
    matcher = compiled_schema({"const": "</s><|call|>"}).matcher()
    for _ in range(40):
        if matcher.is_terminated:
            break
        mask = allowed(matcher)
        assert not mask & {EOS, TURN, CALL}
        feed(matcher, [min(mask)])
    assert matcher.is_complete


def test_ids_without_a_token_are_never_allowed() -> None:
    matcher = compiled("regex", r"[\s\S]*").matcher()
    mask = allowed(matcher)
    assert mask & {EOS, TURN} == {EOS, TURN}
    assert not mask & set(range(VOCAB_SIZE, ROWS))
    assert not matcher.accept(VOCAB_SIZE)
    assert not matcher.accept(ROWS)
    assert not matcher.accept(-1)


def test_an_output_layer_narrower_than_the_vocabulary() -> None:
    backend = LLGuidanceBackend(tiny_tokenizer(), vocab_size=260, eos_token_ids=[ord("~")])
    matcher = backend.compile(schema_spec(PERSON)).matcher()
    feed(matcher, b'{"name":"x","age":1')
    assert allowed(matcher, rows=260) == {ord(c) for c in "0123456789}"}
    feed(matcher, b"}")
    assert allowed(matcher, rows=260) == {ord("~")}


def test_a_row_of_another_shape_is_refused() -> None:
    matcher = compiled("regex", "a").matcher()
    for row in (
        np.zeros(mask_words(ROWS) + 1, np.uint32),
        np.zeros(mask_words(ROWS), np.int64),
        np.zeros((mask_words(ROWS), 2), np.uint32)[:, 0],
    ):
        with pytest.raises(ValueError, match="mask row"):
            matcher.fill_mask(row)


def test_a_model_without_an_end_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="end-of-sequence"):
        LLGuidanceBackend(tiny_tokenizer(), vocab_size=ROWS, eos_token_ids=[])


def test_the_record_says_what_was_enforced_and_by_what() -> None:
    spec = schema_spec(PERSON, name="person")
    contract = contract_of(spec, tiny_backend())
    assert contract == GrammarContract(
        kind="json_schema", name="person", digest=spec.digest(), backend="llguidance", version=tiny_backend().version
    )
    assert len(spec.digest()) == 64
    assert schema_spec(PERSON, name="x", param="y").digest() == spec.digest()
    assert schema_spec(PERSON, strict=True).digest() != spec.digest()


@pytest.fixture
def few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lexer that may have so few states that a long string, or several outputs, meet the limit."""
    limits = llguidance_backend.llguidance.LLParserLimits(max_lexer_states=90, verbose_errors=False)
    monkeypatch.setattr(llguidance_backend, "_LIMITS", limits)


CHOICES = [f"{letter}{i:02}" for letter in "abcdefgh" for i in range(8)]


@pytest.mark.usefixtures("few_states")
def test_a_limit_that_others_have_used_up_does_not_end_a_request() -> None:
    """Requests share a lexer; each of these is within the limit by itself."""
    grammar = LLGuidanceGrammar(tiny_backend(), tiny_text({"enum": CHOICES}), "field")
    first: Matcher = grammar.matcher()
    feed(first, b'"')
    for choice in CHOICES:
        matcher = grammar.matcher()
        for byte in f'"{choice}"'.encode():
            assert byte in allowed(matcher)
            feed(matcher, [byte])
        assert matcher.is_complete
    assert allowed(first) >= {ord("a"), ord("h")}


@pytest.mark.usefixtures("few_states")
def test_a_grammar_that_meets_a_limit_by_itself_ends_with_an_error_not_with_a_short_output() -> None:
    grammar = LLGuidanceGrammar(tiny_backend(), tiny_text({"type": "string", "maxLength": 400}), "field")
    matcher = grammar.matcher()

    def write() -> None:
        for byte in b'"' + b"x" * 300:
            if not allowed(matcher) - {EOS, TURN}:
                break
            feed(matcher, [byte])

    with pytest.raises(InvalidValueError, match="too complex") as caught:
        write()
    assert caught.value.param == "response_format"


def tiny_text(schema: dict[str, object]) -> str:
    from forebay.structured.check import backend_text

    return backend_text(schema_spec(schema))


def test_random_outputs_end_and_are_whole() -> None:
    grammar = compiled_schema(PERSON)
    done = [generate(grammar.matcher(), random.Random(seed)) for seed in range(20)]
    assert sum(data is not None for data in done) >= 15


@pytest.mark.parametrize("name", [*GGUF_NAMES, "stories"])
def test_forced_text_is_tokenized_as_the_model_knows_it(name: str) -> None:
    """Real vocabularies: the ids of forced text spell it, and are the tokenizer's own where it keeps the text."""
    tokenizer: Tokenizer = stories_tokenizer() if name == "stories" else gguf_tokenizer(name)
    table = TokenTable(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids or [0])
    for text in (
        '{"name":"',
        '","age":',
        "orderId",
        " leading space",
        "é😀",
        "\n\t",
        "</s><|im_end|><|endoftext|>",
        "1",
    ):
        ids = table(text)
        assert b"".join(table.tokens[i] for i in ids) == text.encode()
        assert not set(ids) & set(table.special_token_ids)
        own = tokenizer.encode(text, add_special_tokens=False)
        if b"".join(tokenizer.token_bytes(i) for i in own) == text.encode() and not set(own) & set(
            table.special_token_ids
        ):
            assert ids == own
