"""Grammars by llguidance: an Earley parser over lexemes of regular-expression derivatives, a trie of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import llguidance
import numpy as np

from forebay.core.grammar_spec import GrammarKind, GrammarSpec, grammar_version
from forebay.errors import GrammarError, UnsupportedModelError
from forebay.structured.check import backend_text
from forebay.structured.grammar import MaskRow, mask_words
from forebay.structured.limits import DEFAULT_LIMITS, GrammarLimits
from forebay.structured.refusal import shown
from forebay.structured.token_table import TokenTable
from forebay.tokenizer import Tokenizer

# What one mask and one grammar may cost. llguidance's own defaults, but for the lexer's states, of which each takes a
# kilobyte or two and all requests of a grammar share one set.
_LIMITS: Final = llguidance.LLParserLimits(max_lexer_states=50_000, verbose_errors=False)
_ROW_LIMIT: Final = "Parser Error: Current row has "  # the parser's own: a new lexer does not lift it
_BYTES_PER_GRAMMAR: Final = 64 * 1024
_BYTES_PER_CHARACTER: Final = 40


class LLGuidanceBackend:
    """Compiles for one tokenizer and one width of logits. Safe to share between threads."""

    name = "llguidance"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        eos_token_ids: Iterable[int] | None = None,
        limits: GrammarLimits = DEFAULT_LIMITS,
    ) -> None:
        """vocab_size: rows of the model's output layer, be they more or fewer than the tokenizer's ids.

        eos_token_ids: the ids that end an output, by default the tokenizer's. Takes about a second for a large
        vocabulary. UnsupportedModelError: there is no such id, so an output could not end.
        """
        table = TokenTable(tokenizer, vocab_size, tokenizer.eos_token_ids if eos_token_ids is None else eos_token_ids)
        if not table.eos_token_ids:
            raise UnsupportedModelError(
                "structured output needs an end-of-sequence token, and this model's tokenizer names none", param="model"
            )
        self.vocab_size = vocab_size
        self.version = grammar_version()
        self.eos_token_ids = frozenset(table.eos_token_ids)
        self.end_row = np.zeros(mask_words(vocab_size), np.uint32)
        for i in table.eos_token_ids:
            self.end_row[i // 32] |= np.uint32(1 << i % 32)
        self._limits = limits
        self._special = table.special_tokens()
        self._tokenizer = llguidance.LLTokenizer(table, eos_token=table.eos_token_ids)  # type: ignore[arg-type]  # a protocol

    def compile(self, spec: GrammarSpec) -> LLGuidanceGrammar:
        """The grammar, its first mask worked out. GrammarError: what of the spec cannot be enforced."""
        text = backend_text(spec, self._limits, self._special)
        grammar = LLGuidanceGrammar(self, text, _place(spec))
        grammar.matcher(spec.param).fill_mask(np.empty(mask_words(self.vocab_size), np.uint32))
        return grammar

    def start(self, text: str, place: str) -> llguidance.LLMatcher:
        """A matcher of llguidance at the start of `text`, with a lexer of its own. place: a field, for the error."""
        matcher = llguidance.LLMatcher(self._tokenizer, text, log_level=0, limits=_LIMITS)
        problems = [matcher.get_error()] if matcher.is_error() else matcher.get_grammar_warnings()
        if problems:
            param = place.partition(":")[0]
            raise GrammarError(f"{place}: this cannot be enforced: {_reason(problems[0])}", param=param)
        return matcher


class LLGuidanceGrammar:
    """A compiled text. Its matchers share one lexer, which grows with what they meet; a mask does not depend on it."""

    def __init__(self, backend: LLGuidanceBackend, text: str, place: str) -> None:
        self.backend = backend
        self._text = text
        self._first = backend.start(text, place)

    @property
    def num_bytes(self) -> int:
        return _BYTES_PER_GRAMMAR + _BYTES_PER_CHARACTER * len(self._text)

    def matcher(self, param: str = "response_format") -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self, param)

    def start(self) -> llguidance.LLMatcher:
        return self._first.deep_copy()

    def restart(self, param: str) -> llguidance.LLMatcher:
        """As `start`, with a new lexer for this matcher and all to come.

        A lexer that has met a limit is of no more use to any matcher that shares it, though the request of each may be
        well within the limits by itself.
        """
        self._first = self.backend.start(self._text, param)
        return self.start()


class LLGuidanceMatcher:
    """One output. llguidance never sees end-of-sequence tokens: it takes them back as no others, not when stopped."""

    __slots__ = ("_backend", "_ended", "_grammar", "_inner", "_param", "_tokens")

    def __init__(self, grammar: LLGuidanceGrammar, param: str) -> None:
        self._grammar = grammar
        self._param = param
        self._backend = grammar.backend
        self._inner = grammar.start()
        self._tokens: list[int] = []
        self._ended = False

    def fill_mask(self, row: MaskRow) -> None:
        if row.shape != self._backend.end_row.shape or row.dtype != np.uint32 or not row.flags.c_contiguous:
            raise ValueError(f"a mask row is uint32, contiguous, of shape {self._backend.end_row.shape}")
        if self._ended:
            row[:] = self._backend.end_row
            return
        address, size = row.ctypes.data, row.nbytes
        self._inner.unsafe_compute_mask_ptr(address, size)
        if self._inner.is_error():  # llguidance has then written a mask that lets the output end
            self._restart()
            self._inner.unsafe_compute_mask_ptr(address, size)
            self._check()

    def accept(self, token_id: int) -> bool:
        if self._ended:
            return False
        if token_id in self._backend.eos_token_ids:
            self._ended = self.is_complete
            return self._ended
        if not 0 <= token_id < self._backend.vocab_size:
            return False
        taken = self._inner.try_consume_tokens([token_id])
        if self._inner.is_error():
            self._restart()
            taken = self._inner.try_consume_tokens([token_id])
            self._check()
        if taken:
            self._tokens.append(token_id)
        return taken == 1

    def rollback(self, num_tokens: int) -> None:
        if not 0 <= num_tokens <= len(self._tokens) + self._ended:
            raise ValueError(f"cannot take back {num_tokens} of {len(self._tokens) + self._ended} tokens")
        if not num_tokens:
            return
        num_tokens -= self._ended
        self._ended = False
        if not num_tokens:
            return
        del self._tokens[len(self._tokens) - num_tokens :]
        if not self._inner.rollback(num_tokens):
            self._restart()

    def forced_tokens(self) -> list[int]:
        return [] if self.is_terminated else self._inner.compute_ff_tokens()

    @property
    def is_complete(self) -> bool:
        return self._ended or self._inner.is_accepting()

    @property
    def is_terminated(self) -> bool:
        return self._ended or (self._inner.is_stopped() and not self._inner.is_error())

    def _restart(self) -> None:
        """Go on with a new lexer from the tokens so far, where that may help: it takes as long as compiling did."""
        if self._inner.get_error().startswith(_ROW_LIMIT):
            self._check()
        self._inner = self._grammar.restart(self._param)
        if self._tokens:
            self._inner.consume_tokens(self._tokens)
        self._check()

    def _check(self) -> None:
        if self._inner.is_error():
            param, position = self._param, len(self._tokens)
            raise GrammarError(
                f"{param}: the grammar is too complex at output token {position}: {_reason(self._inner.get_error())}",
                param=param,
            )


def _place(spec: GrammarSpec) -> str:
    """The field, and for a schema the pointer to all of it: which of its parts do not go together is not known here."""
    return f"{spec.param}: at /" if spec.kind is GrammarKind.JSON_SCHEMA else spec.param


def _reason(message: str) -> str:
    """The first line of a message of llguidance."""
    return shown(message.strip().partition("\n")[0])
