"""The seam of structured output: a backend compiles a spec to a Grammar, which makes a Matcher for each request."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.core.grammar_spec import GrammarContract, GrammarSpec

MaskRow = NDArray[np.uint32]


def mask_words(vocab_size: int) -> int:
    """32-bit words of one row of a mask: token i is bit i % 32 of word i // 32, set where it is allowed."""
    return (vocab_size + 31) // 32


class Matcher(Protocol):
    """How far one output has followed its grammar. The allowed tokens depend on the accepted tokens alone.

    Not for two threads at once. Any method but the properties raises GrammarError, naming the request's field,
    when the grammar needs more work at this point than the backend's limits allow; the request ends there.
    """

    def fill_mask(self, row: MaskRow) -> None:
        """Write the allowed tokens into `row`: shape (mask_words(vocab_size),), uint32, contiguous; all of it is set.

        End-of-sequence tokens are allowed exactly when `is_complete`. ValueError: a row of another shape or type.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Move on by one token. False: the grammar does not allow it here, and nothing has changed.

        Every token of the mask is accepted. So is another spelling of the same bytes, where the mask names one only.
        """
        ...

    def rollback(self, num_tokens: int) -> None:
        """Take back the last accepted tokens, an end-of-sequence token included. ValueError: more than there are."""
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that must come next whatever the model says, most likely none; they are only good as drafts."""
        ...

    @property
    def is_complete(self) -> bool:
        """The output may stop here."""
        ...

    @property
    def is_terminated(self) -> bool:
        """The output must stop here: an end-of-sequence token was accepted, or nothing can follow."""
        ...


class Grammar(Protocol):
    """A compiled spec. Immutable to its users; matchers of one grammar share what the backend has worked out."""

    @property
    def num_bytes(self) -> int:
        """Memory it takes, estimated."""
        ...

    def matcher(self, param: str = "response_format") -> Matcher:
        """A new one, at the start of an output. param: the field of the request that its errors name."""
        ...


class GrammarBackend(Protocol):
    """What compiles, for one tokenizer."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Changes whenever a spec may allow other tokens."""
        ...

    def compile(self, spec: GrammarSpec) -> Grammar:
        """May take seconds, with the GIL released. GrammarError: what of the spec cannot be enforced."""
        ...


def contract_of(spec: GrammarSpec, backend: GrammarBackend) -> GrammarContract:
    """The record of an enforced spec."""
    return GrammarContract(
        kind=spec.kind.value, name=spec.name, digest=spec.digest(), backend=backend.name, version=backend.version
    )
