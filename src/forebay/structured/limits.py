"""How large a spec may be before it is refused: what a hostile one can cost is bounded by these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarLimits:
    """Bounds on one spec.

    max_bytes         of its source, in UTF-8
    max_depth         JSON objects and arrays inside each other in a schema
    max_schemas       subschemas that are reached, each `$ref` target once
    max_enum_values   values in all `enum` together
    max_count         a number that items, properties or repetitions are counted by
    max_length        a number that the characters of a string are counted by
    max_unknown       different keywords of a schema that no standard knows
    max_regex_chars   of one pattern
    max_regex_size    characters of one pattern, those repeated counted as often as they may be
    max_regex_depth   groups inside each other in a pattern
    max_intersections patterns that one string must match all of; in a Lark grammar, all its `&`
    max_rules         of a Lark or GBNF grammar
    max_choices       strings of a choice, structures of a structural tag
    """

    max_bytes: int = 512 * 1024
    max_depth: int = 100
    max_schemas: int = 20_000
    max_enum_values: int = 20_000
    max_count: int = 100_000
    max_length: int = 2**31 - 1
    max_unknown: int = 500
    max_regex_chars: int = 4096
    max_regex_size: int = 200_000
    max_regex_depth: int = 32
    max_intersections: int = 8
    max_rules: int = 2000
    max_choices: int = 5000


DEFAULT_LIMITS = GrammarLimits()
