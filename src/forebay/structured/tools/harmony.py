"""Channels, as in gpt-oss: every message has a header that says where it goes.

<|channel|>analysis<|message|>...<|end|>                                            reasoning
<|start|>assistant<|channel|>commentary<|message|>...<|end|>                        content: a preamble before calls
<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>     a call
<|start|>assistant<|channel|>final<|message|>...<|return|>                          content

Source: openai/harmony, docs/format.md. The recipient may stand in the role or in the channel part of the header. The
prompt ends with <|start|>assistant, so the text begins inside a header. <|call|> and <|return|> end a generation, so
the engine drops them; the text then just ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forebay.structured.tools.deltas import ReasoningDelta
from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.json_scanner import JsonScanner
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.parser import NewId, ToolParser
from forebay.structured.tools.request import Tool
from forebay.structured.tools.shape import CallShape, Span

START = "<|start|>"
END = "<|end|>"
MESSAGE = "<|message|>"
CHANNEL = "<|channel|>"
CONSTRAIN = "<|constrain|>"
CALL = "<|call|>"
RETURN = "<|return|>"

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL_NAME = re.compile(re.escape(CHANNEL) + r"\s*([A-Za-z_]+)")
_NAMESPACE = "functions."


class HarmonyParser(ToolParser):
    """Two messages of one kind are joined by a line break. A text without a single marker is content.

    A recipient outside the namespace `functions` counts as a function of that full name.
    """

    markers = (START, END, MESSAGE, CHANNEL, CONSTRAIN, CALL, RETURN)
    ends = (START, END, CALL, RETURN)

    def __init__(self, tools: Sequence[Tool], new_id: NewId) -> None:
        super().__init__(tools, new_id)
        self._header = "assistant"
        self._state = self._in_header
        self._kind = "final"  # of the message at hand
        self._written: set[str] = set()  # kinds that have text
        self._joint = ""  # to write before the first text of this message

    def _outside(self, final: bool) -> bool:
        """Between messages: only a new one can come."""
        text, marker, self._buffer = split_at(self._buffer, self.markers, final=final)
        if text.strip():
            self._begin_malformed(text, "text between two messages")
            self._buffer = marker + self._buffer
            return True
        if marker == START:
            self._header = ""
            self._state = self._in_header
        elif marker == CHANNEL:
            self._header = "assistant" + CHANNEL
            self._state = self._in_header
        return bool(marker)

    def _at_end(self, marker: str) -> None:
        self._header = ""
        self._state = self._in_header if marker == START else self._outside

    def _after_call(self, final: bool) -> bool:
        """White space, then the end of the message."""
        return self._skip() and self._ended(final, "text after the arguments of a call")

    def _in_header(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, (MESSAGE, *self.ends), final=final)
        self._header += text
        if marker == MESSAGE:
            self._open_message()
        elif marker or final:
            self._no_message(marker)
        return bool(marker)

    def _no_message(self, marker: str) -> None:
        """A header without a message: what is left of a text that was cut short, or of a model that does not speak
        this.
        """
        header, self._header = self._header, ""
        bare = not any(m in header for m in self.markers) and " to=" not in header
        if header.startswith("assistant") and bare:
            if written := header.removeprefix("assistant"):
                self._write_content(written)
        else:
            self._report("", f"a message header without {MESSAGE}")
        self._at_end(marker)

    def _open_message(self) -> None:
        header = self._header
        role = header.split(CHANNEL)[0].split()
        recipient = _RECIPIENT.search(header)
        channel = _CHANNEL_NAME.search(header)
        if not role or role[0] != "assistant":
            self._begin_malformed("", "a message of another role than the assistant's")
        elif recipient:
            self._open_call(recipient[1].removeprefix(_NAMESPACE))
        else:
            self._kind = "analysis" if channel and channel[1] == "analysis" else "final"
            self._joint = "\n" if self._kind in self._written else ""
            self._state = self._in_text

    def _open_call(self, name: str) -> None:
        if not name:
            self._begin_malformed("", "a call without a name")
            return
        self._start_call(name)
        self._scanner = JsonScanner()
        self._state = self._before_arguments

    def _before_arguments(self, final: bool) -> bool:
        """Nothing at all stands for {}."""
        if not self._skip() and not final:
            return False
        marker = self._next_marker(self.ends, final)
        if marker is None:
            return False
        if marker or not self._buffer:
            self._write_arguments("{}")
            self._end_call(complete=True)
            self._at_end(marker)
            return bool(marker)
        self._state = self._in_arguments if self._buffer.startswith("{") else self._in_broken_arguments
        return True

    def _in_text(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, self.markers, final=final)
        self._write_text(text)
        if marker in self.ends:
            self._at_end(marker)
        return bool(marker)

    def _write_text(self, text: str) -> None:
        if not text:
            return
        text, self._joint = self._joint + text, ""
        self._written.add(self._kind)
        if self._kind == "analysis":
            self._deltas.append(ReasoningDelta(text))
        else:
            self._write_content(text)


HARMONY = ToolFormat(
    name="harmony",
    markers=HarmonyParser.markers,
    new_parser=HarmonyParser,
    shape=CallShape(
        first=(CHANNEL, "commentary to=functions.{name} ", CONSTRAIN, "json", MESSAGE),
        following=(),
        close=(),  # <|call|> ends the generation
        before=(Span((CHANNEL, "analysis", MESSAGE), END + START + "assistant", at_most=None),),
        instead=Span((CHANNEL, "final", MESSAGE), "", at_least=1),
        one_call=True,
    ),
    channels=True,
)
