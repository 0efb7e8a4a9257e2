"""<tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes 2 Pro, Qwen 2.5 and 3, Granite 4.

Source: the models' chat templates (NousResearch Hermes-2-Pro, Qwen2.5-Instruct, granite-4.0).
"""

from __future__ import annotations

from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.parser import ToolParser
from forebay.structured.tools.shape import CallShape

BEGIN = "<tool_call>"
END = "</tool_call>"


class HermesParser(ToolParser):
    """A block holds one object; several, one after another, are as many calls. The end marker may be missing."""

    markers = (BEGIN, END)
    ends = markers

    def _outside(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, self.ends, final=final)
        self._write_content(text)
        self._at_end(marker)
        return bool(marker)

    def _at_end(self, marker: str) -> None:
        self._state = self._opened if marker == BEGIN else self._outside

    def _opened(self, final: bool) -> bool:
        if not self._skip():
            if final:
                self._begin_malformed("", "the text ends after the opening marker of a tool call")
            return final
        if self._buffer.startswith("{"):
            self._begin_object()
        else:
            self._begin_malformed("", "no JSON object between the markers of a tool call")
        return True

    def _after_call(self, final: bool) -> bool:
        if not self._skip():
            return False
        if self._buffer.startswith("{"):
            self._begin_object()
            return True
        return self._ended(final, "text after the call between its markers")


HERMES = ToolFormat(
    name="hermes",
    markers=HermesParser.markers,
    new_parser=HermesParser,
    shape=CallShape(
        first=(BEGIN, '\n{"name": "{name}", "arguments": '),
        following=("\n" + BEGIN + '\n{"name": "{name}", "arguments": ',),
        close=("}\n" + END,),
    ),
)
