"""What an output must look like, as a value that crosses processes: the noun of structured output."""

from __future__ import annotations

import enum
import hashlib
from functools import cache
from importlib.metadata import version
from typing import Final

import msgspec

GRAMMAR_VERSION: Final = 1  # goes up whenever a spec may allow other tokens


@cache
def grammar_version() -> str:
    """That of the library that holds outputs to grammars, and of what is made of specs before; in the answer class."""
    return f"{version('llguidance')}+{GRAMMAR_VERSION}"


class GrammarKind(enum.StrEnum):
    JSON_OBJECT = "json_object"  # any JSON object; no source
    JSON_SCHEMA = "json_schema"  # source: the schema, as JSON text
    REGEX = "regex"  # source: a pattern that the whole output matches
    CHOICE = "choice"  # source: a JSON list of strings
    GRAMMAR = "grammar"  # source: a Lark grammar, or GBNF
    TOOL_CALLS = "tool_calls"  # source: Lark that structured/tools has written; never a client's
    STRUCTURAL_TAG = "structural_tag"  # source: JSON with "structures" and "triggers"


class GrammarSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One constraint as a client gave it.

    strict: of a JSON schema, hold it to OpenAI's rules for strict schemas as well; enforcement is exact either way.
    name: the client's name for it, for the record only.  param: the field of the request that errors name.
    """

    kind: GrammarKind
    source: str = ""
    strict: bool = False
    name: str = ""
    param: str = "response_format"

    def digest(self) -> str:
        """sha256 (hex) of what is enforced; neither the name nor the field is part of it."""
        parts = (self.kind.value, "strict" if self.strict else "", self.source)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


class GrammarContract(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which constraint an output was held to, and by what: goes into the events of its request."""

    kind: str
    name: str
    digest: str
    backend: str
    version: str
