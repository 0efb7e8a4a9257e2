"""How many patterns one string must match: the backend's time to intersect them grows exponentially, and unbounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forebay.structured.json_schema.cycles import INSIDE, subschemas
from forebay.structured.refusal import Pointer, Refusal

_PREFIX: Final = "#/$defs/"


def check_intersections(definitions: dict[str, Any], places: Mapping[str, Pointer], most: int) -> None:
    """definitions, places: as in `check_cycles`, which comes first. Refusal: a string that may have to match more than
    `most` patterns."""
    counter = _Counter(definitions)
    for name in reversed(definitions):  # mostly referred to by those before
        try:
            found = counter.patterns(definitions[name])
        except RecursionError:
            raise Refusal("references lead on from each other too often", places[name]) from None
        if found > most:
            raise Refusal(
                f"a string that may have to match more than {most} patterns and formats at once", places[name]
            )


class _Counter:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[int, int] = {}

    def patterns(self, schema: Any) -> int:
        """The most for one string, at most: of all that `allOf` and `$ref` put together, whatever part of a value it is
        for, and of alternatives and of parts of a value the one with most."""
        if not isinstance(schema, dict):
            return 0
        if id(schema) not in self._known:
            self._known[id(schema)] = 0  # a schema inside itself adds nothing
            found = max(map(self.patterns, subschemas(schema, *INSIDE)), default=0) or int("pattern" in schema)
            found += sum(map(self.patterns, schema.get("allOf", ())))
            found += sum(max(map(self.patterns, schema[k])) for k in ("anyOf", "oneOf") if k in schema)
            if "$ref" in schema:
                found += self.patterns(self._definitions[schema["$ref"].removeprefix(_PREFIX)])
            self._known[id(schema)] = found
        return self._known[id(schema)]
