"""Finding stop strings in text that arrives in pieces."""

from __future__ import annotations


class StopStrings:
    """Passes text on until one of `stops` is complete; a piece of a match never leaks.

    show_match: the match itself is the last that is shown.
    The match that is complete first, character by character, wins (of those that end together the longest), so the
    result does not depend on how the text was cut into pieces.
    """

    def __init__(self, stops: tuple[str, ...], *, show_match: bool = False) -> None:
        self._stops = stops
        self._show_match = show_match
        self._held = ""
        self.matched: str | None = None

    @property
    def sought(self) -> bool:
        """Whether there are any."""
        return bool(self._stops)

    def push(self, text: str) -> str:
        """New text in, text that is safe to show out. Once `matched` is set, the rest of the text is dropped."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        self._held += text
        matches = [(at + len(s), at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if matches:
            end, at, self.matched = min(matches)
            keep = end if self._show_match else at
        else:
            keep = self._safe_length()
        shown, self._held = self._held[:keep], self._held[keep:]
        return shown

    def finish(self) -> str:
        """What was held back because it could still have become a stop string."""
        rest, self._held = ("" if self.matched is not None else self._held), ""
        return rest

    def _safe_length(self) -> int:
        """Where the first suffix begins that is a proper prefix of a stop string."""
        held, safe = self._held, len(self._held)
        for stop in self._stops:
            at = held.find(stop[0], max(0, len(held) - len(stop) + 1))
            while 0 <= at < safe:
                if stop.startswith(held[at:]):
                    safe = at
                at = held.find(stop[0], at + 1)
        return safe
