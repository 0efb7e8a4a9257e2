"""The special markers of DeepSeek.

deepseek_v3     V3, R1 and its distillates:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
    ```json
    {...}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

deepseek_v31    V3.1:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Source: the models' chat templates (DeepSeek-R1, DeepSeek-V3.1). One parser reads both.
"""

from __future__ import annotations

import re

from forebay.structured.tools.call_object import MAX_NAME_CHARS
from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.parser import ToolParser
from forebay.structured.tools.shape import CallShape

_BAR = "\uff5c"  # the full-width bar of the markers
CALLS_BEGIN = f"<{_BAR}tool▁calls▁begin{_BAR}>"
CALLS_END = f"<{_BAR}tool▁calls▁end{_BAR}>"
CALL_BEGIN = f"<{_BAR}tool▁call▁begin{_BAR}>"
CALL_END = f"<{_BAR}tool▁call▁end{_BAR}>"
SEPARATOR = f"<{_BAR}tool▁sep{_BAR}>"

_NAME = re.compile(rf"[^\s{{}}<>`]{{1,{MAX_NAME_CHARS}}}")
_FENCED = re.compile(rf"\s*({_NAME.pattern})\s*(?:```(?:json)?\s*)?(?=\{{)")


class DeepSeekParser(ToolParser):
    """What separates the two: with V3 the name stands after the separator, with V3.1 before it."""

    markers = (CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR)
    ends = (CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END)
    _head = ""  # text between the markers of a call's beginning

    def _outside(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, self.markers, final=final)
        self._write_content(text)
        self._at_end(marker)
        return bool(marker)

    def _at_end(self, marker: str) -> None:
        if marker == CALL_BEGIN:
            self._state = self._before_separator
        elif marker in (CALLS_BEGIN, CALL_END):
            self._state = self._between
        else:
            self._state = self._outside

    def _between(self, final: bool) -> bool:
        """Between the calls of a block; after a call the text may end here."""
        return self._skip() and self._ended(final, "text between the markers of tool calls")

    def _before_separator(self, final: bool) -> bool:
        text, marker, rest = split_at(self._buffer, (SEPARATOR, *self.ends), final=final)
        if marker == SEPARATOR:
            self._head, self._buffer = text.strip(), rest
            self._state = self._after_separator
        elif marker or final:
            self._begin_malformed("", f"a tool call without {SEPARATOR}")
        return bool(marker) or final

    def _after_separator(self, final: bool) -> bool:
        if not self._skip() and not final:
            return False
        if self._buffer.startswith("{") and _NAME.fullmatch(self._head):
            self._begin_arguments(self._head)
            return True
        if found := _FENCED.match(self._buffer):
            self._buffer = self._buffer[found.end() :]
            self._begin_arguments(found[1])
            return True
        broken = final or split_at(self._buffer, self.ends, final=False)[1]
        if broken:
            self._begin_malformed("", "a tool call without a name and a JSON object")
        return bool(broken)

    def _after_call(self, final: bool) -> bool:
        """Up to the call's end marker; with V3 the closing fence stands before it."""
        self._buffer = self._buffer.lstrip("` \t\r\n")
        return self._between(final)


DEEPSEEK_V3 = ToolFormat(
    name="deepseek_v3",
    markers=DeepSeekParser.markers,
    new_parser=DeepSeekParser,
    shape=CallShape(
        first=(CALLS_BEGIN, CALL_BEGIN + "function" + SEPARATOR + "{name}\n```json\n"),
        following=("\n" + CALL_BEGIN + "function" + SEPARATOR + "{name}\n```json\n",),
        close=("\n```" + CALL_END,),
        end=(CALLS_END,),
    ),
)
DEEPSEEK_V31 = ToolFormat(
    name="deepseek_v31",
    markers=DeepSeekParser.markers,
    new_parser=DeepSeekParser,
    shape=CallShape(
        first=(CALLS_BEGIN, CALL_BEGIN + "{name}" + SEPARATOR),
        following=(CALL_BEGIN + "{name}" + SEPARATOR,),
        close=(CALL_END,),
        end=(CALLS_END,),
    ),
)
