"""{"name": ..., "parameters": {...}}, bare or after <|python_tag|>: Llama 3.1, 3.2 and 3.3.

Source: the models' chat templates, and Meta's prompt format of Llama 3.1 (JSON based tool calling). Several calls are
separated by semicolons or line breaks. Python code after <|python_tag|> calls built-in tools, which are not offered
here.
"""

from __future__ import annotations

from forebay.structured.tools.call_object import CallObject
from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.parser import ToolParser
from forebay.structured.tools.shape import CallShape, Regex

PYTHON_TAG = "<|python_tag|>"


class Llama3JsonParser(ToolParser):
    """A bare object anywhere in the text is a call if it is unmistakable (CallObject, bare), otherwise content."""

    markers = (PYTHON_TAG,)
    ends = markers
    gap = " \t\r\n;,"

    def _outside(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, (PYTHON_TAG, "{"), final=final)
        self._write_content(text)
        if marker == PYTHON_TAG:
            self._state = self._tagged
        elif marker:
            self._buffer = "{" + self._buffer
            self._object = CallObject(bare=self._tools)
            self._state = self._in_object
        return bool(marker)

    def _at_end(self, marker: str) -> None:
        self._state = self._tagged if marker else self._outside

    def _after_call(self, final: bool) -> bool:
        self._state = self._outside
        return bool(self._buffer)

    def _tagged(self, final: bool) -> bool:
        if not self._skip():
            if final:
                self._begin_malformed("", f"the text ends after {PYTHON_TAG}")
            return final
        if self._buffer.startswith("{"):
            self._begin_object()
        else:
            self._begin_malformed("", f"no JSON object after {PYTHON_TAG}")
        return True

    def _rejected(self, call: CallObject) -> None:
        if not call.is_bare:
            super()._rejected(call)
            return
        self._write_content(call.raw[0])
        self._buffer = call.raw[1:] + self._buffer  # a call may still begin inside
        self._state = self._outside


_TRIGGER = Regex(r'\{[ \t\r\n]*("type"[ \t\r\n]*:[ \t\r\n]*"function"[ \t\r\n]*,[ \t\r\n]*)?"name"', usual='{"name"')
LLAMA3_JSON = ToolFormat(
    name="llama3_json",
    markers=Llama3JsonParser.markers,
    new_parser=Llama3JsonParser,
    shape=CallShape(
        first=(_TRIGGER, ': "{name}", "parameters": '),
        following=('; {"name": "{name}", "parameters": ',),
        close=("}",),
    ),
)
