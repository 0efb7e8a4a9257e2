"""[f(a=1, b='x'), g()]: calls written as in Python.

pythonic       bare, or between <|python_start|> and <|python_end|>: Llama 3.2 and 4
pythonic_tagged  between <|tool_call_start|> and <|tool_call_end|>: LFM2

Source: Meta's prompt formats of Llama 3.2 and 4, and the chat template of LFM2.5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.structured.tools.call_object import MAX_BARE_CHARS, MAX_NAME_CHARS
from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.parser import NewId, ToolParser
from forebay.structured.tools.python_arguments import PythonArguments
from forebay.structured.tools.request import Tool
from forebay.structured.tools.shape import CallShape, Regex

PYTHON_START, PYTHON_END = "<|python_start|>", "<|python_end|>"
TAG_START, TAG_END = "<|tool_call_start|>", "<|tool_call_end|>"

_SPACE = " \t\r\n"
_NAME = re.compile(rf"[\w.\-]{{1,{MAX_NAME_CHARS}}}")
_HEAD = re.compile(rf"({_NAME.pattern})[ \t\r\n]*\(")
_HEAD_BEGUN = re.compile(rf"(?:{_NAME.pattern}[ \t\r\n]*)?")


class PythonicParser(ToolParser):
    """A bare list anywhere in the text is a list of calls if it begins with `[`, the name of a tool and `(`."""

    markers = (PYTHON_START, PYTHON_END, TAG_START, TAG_END)
    ends = markers
    openings: tuple[str, ...] = ("[",)  # what may begin calls, besides the start markers

    def __init__(self, tools: Sequence[Tool], new_id: NewId) -> None:
        super().__init__(tools, new_id)
        self._arguments = PythonArguments()

    def _outside(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, (*self.markers, *self.openings), final=final)
        self._write_content(text)
        if marker == "[":
            self._buffer = "[" + self._buffer
            self._state = self._maybe_list
        else:
            self._at_end(marker)
        return bool(marker)

    def _at_end(self, marker: str) -> None:
        self._state = self._tagged if marker in (PYTHON_START, TAG_START) else self._outside

    def _maybe_list(self, final: bool) -> bool:
        """At a bracket in free text."""
        inside = self._buffer[1:].lstrip(_SPACE)
        head = _HEAD.match(inside)
        length = len(self._buffer) - len(inside) + (head.end() if head else len(inside))
        if head and head[1] in self._tools and length <= MAX_BARE_CHARS:
            self._buffer = self._buffer[1:]
            self._state = self._before_call
        elif not final and not head and _HEAD_BEGUN.fullmatch(inside) and length <= MAX_BARE_CHARS:
            return False
        else:
            self._write_content("[")
            self._buffer = self._buffer[1:]
            self._state = self._outside
        return True

    def _tagged(self, final: bool) -> bool:
        """After a start marker. The bracket may be missing around a single call."""
        if not self._skip():
            if final:
                self._begin_malformed("", "the text ends after the opening marker of tool calls")
            return final
        self._buffer = self._buffer.removeprefix("[")
        self._state = self._before_call
        return True

    def _before_call(self, final: bool) -> bool:
        self._skip()
        head = _HEAD.match(self._buffer)
        if head:
            self._buffer = self._buffer[head.end() :]
            self._start_call(head[1])
            tool = self._tools.get(head[1])
            self._arguments = PythonArguments(tool.parameter_names if tool else ())
            self._state = self._in_python
            return True
        if not final and _HEAD_BEGUN.fullmatch(self._buffer):
            return False
        if self._buffer.startswith("]"):
            return self._after_call(final)
        self._begin_malformed("", "no call where one should begin")
        return True

    def _in_python(self, final: bool) -> bool:
        used = self._arguments.feed(self._buffer)
        self._buffer = self._buffer[used:]
        self._write_arguments(self._arguments.take())
        if self._arguments.done:
            self._end_call(complete=True)
            self._state = self._after_call
            return True
        if self._arguments.broken:
            self._end_call(complete=False)
            self._begin_malformed("", "arguments that cannot be written as JSON")
            return True
        if final:
            self._end_call(complete=False)
            self._state = self._outside
        return False

    def _after_call(self, final: bool) -> bool:
        """A comma and the next call, the closing bracket, or an end marker."""
        if not self._skip():
            return False
        if self._buffer.startswith("]"):
            self._buffer = self._buffer[1:]
            self._space, self._after_block = "", True
            self._state = self._outside
            return True
        if self._buffer.startswith(","):
            self._buffer = self._buffer[1:]
            self._state = self._before_call
            return True
        return self._ended(final, "text after a call")


class TaggedPythonicParser(PythonicParser):
    """Brackets in free text mean nothing here."""

    openings = ()


PYTHONIC = ToolFormat(
    name="pythonic",
    markers=PythonicParser.markers,
    new_parser=PythonicParser,
    shape=CallShape(
        first=(Regex(r"\[[ \t\r\n]*{name}[ \t\r\n]*\(", usual="[{name}("),),
        following=(", {name}(",),
        close=(")",),
        end=("]",),
        python=True,
    ),
)
PYTHONIC_TAGGED = ToolFormat(
    name="pythonic_tagged",
    markers=TaggedPythonicParser.markers,
    new_parser=TaggedPythonicParser,
    shape=CallShape(
        first=(TAG_START, "[{name}("),
        following=(", {name}(",),
        close=(")",),
        end=("]" + TAG_END,),
        python=True,
    ),
)
