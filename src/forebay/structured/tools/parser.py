"""The parser of an assistant's text: what all formats share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from forebay.structured.tools.call_object import CallObject, Status
from forebay.structured.tools.deltas import (
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    ContentDelta,
    Delta,
    Malformed,
    merged,
)
from forebay.structured.tools.json_scanner import JsonScanner
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.request import Tool

NewId = Callable[[int], str]
_SPACE = " \t\r\n"


class ToolParser(ABC):
    """Reads one assistant message as it is generated.

    push(text) and finish() return what is decided by then. For every way of cutting a text, all deltas together,
    `merged`, are the same. finish() is called once, after the last push; until then at most the beginning of a
    marker, white space and the words of a call that has no name yet are held back.

    The text must show the format's markers, also where they are special tokens (`special_markers`).

    Rules of all formats:
    - Text outside calls is content, character for character. White space next to a call is part of neither; content
      before and after calls is joined by a line break.
    - Content never holds a marker. One that closes nothing is dropped; half a marker at the end of the text is content.
    - A call starts once its name is known and its arguments begin. From then on it stays a call: arguments that are
      no JSON are passed on as they are, and the call ends with complete=False, as it does when the text breaks off
      inside it.
    - What stands in a call's place without becoming one is reported as Malformed, in the model's words.
    - Where markers stand around a call any name counts, so a client sees the model's mistake. A call without markers
      counts only if its name is that of a tool.

    A format gives its markers, the states `_outside` and `_after_call`, and `_at_end`. A state reads from `_buffer`
    what is decided and returns whether it did; `final` says that no more text comes.
    """

    markers: tuple[str, ...] = ()  # of the format
    ends: tuple[str, ...] = ()  # those that end whatever stands in a call's place
    gap: str = _SPACE  # characters between a call and what follows that mean nothing

    def __init__(self, tools: Sequence[Tool], new_id: NewId) -> None:
        """tools: those the model may call. new_id: the id of the call with an index."""
        self._tools = {tool.name: tool for tool in tools}
        self._new_id = new_id
        self._buffer = ""
        self._deltas: list[Delta] = []
        self._state: Callable[[bool], bool] = self._outside
        self._num_calls = 0
        self._is_open = False  # the last call has started and not ended
        self._space = ""  # white space of the content that may turn out to stand next to a call
        self._after_block = False  # nothing but such white space since the last call
        self._has_content = False
        self._held = ""  # text of what may be Malformed
        self._reason = ""
        self._object = CallObject()
        self._scanner = JsonScanner()

    def push(self, text: str) -> list[Delta]:
        """New text in, what it decides out."""
        self._buffer += text
        return self._run(final=False)

    def finish(self) -> list[Delta]:
        """What is left once there is no more text."""
        deltas = self._run(final=True)
        if self._space and not self._after_block:
            deltas.append(ContentDelta(self._space))
        return merged(deltas)

    @abstractmethod
    def _outside(self, final: bool) -> bool:
        """The state of content."""

    @abstractmethod
    def _after_call(self, final: bool) -> bool:
        """The state after the last character of a call's arguments (or of its object)."""

    def _after_object(self, final: bool) -> bool:
        """The state after a call that is one JSON object."""
        return self._after_call(final)

    @abstractmethod
    def _at_end(self, marker: str) -> None:
        """Choose the state after one of `ends`, which has been read."""

    def _run(self, *, final: bool) -> list[Delta]:
        while self._state(final):
            pass
        deltas, self._deltas = self._deltas, []
        return merged(deltas)

    def _write_content(self, text: str) -> None:
        text = self._space + text
        if self._after_block:
            text = text.lstrip(self.gap)
        shown = text.rstrip(_SPACE)
        self._space = text[len(shown) :]
        if shown:
            joint = "\n" if self._after_block and self._has_content else ""
            self._deltas.append(ContentDelta(joint + shown))
            self._after_block, self._has_content = False, True

    def _start_call(self, name: str) -> None:
        index = self._num_calls
        self._num_calls += 1
        self._is_open = True
        self._space, self._after_block = "", True
        self._deltas.append(CallStarted(index, self._new_id(index), name))

    def _write_arguments(self, text: str) -> None:
        if text:
            self._deltas.append(ArgumentsDelta(self._num_calls - 1, text))

    def _end_call(self, *, complete: bool) -> None:
        self._is_open = False
        self._deltas.append(CallEnded(self._num_calls - 1, complete))

    def _report(self, text: str, reason: str) -> None:
        for marker in self.markers:
            text = text.replace(marker, "")
        self._space, self._after_block = "", True
        self._deltas.append(Malformed(text.strip(_SPACE), reason))

    def _skip(self, characters: str = _SPACE) -> bool:
        """Drop these characters at the front; whether there is anything behind them yet."""
        self._buffer = self._buffer.lstrip(characters)
        return bool(self._buffer)

    def _next_marker(self, markers: Sequence[str], final: bool) -> str | None:
        """The marker at the front, which is read; "" if there is none; None if that is not decided yet."""
        for marker in markers:
            if self._buffer.startswith(marker):
                self._buffer = self._buffer[len(marker) :]
                return marker
        undecided = not final and any(marker.startswith(self._buffer) for marker in markers)
        return None if undecided else ""

    def _begin_object(self) -> None:
        self._object = CallObject()
        self._state = self._in_object

    def _begin_arguments(self, name: str) -> None:
        """At the opening brace of arguments."""
        self._start_call(name)
        self._scanner = JsonScanner()
        self._state = self._in_arguments

    def _ended(self, final: bool, otherwise: str) -> bool:
        """Go on behind one of `ends`, which has to come now; what stands there instead is malformed (`otherwise`)."""
        marker = self._next_marker(self.ends, final)
        if marker is None:
            return False
        if marker:
            self._at_end(marker)
        else:
            self._begin_malformed("", otherwise)
        return True

    def _begin_malformed(self, held: str, reason: str) -> None:
        """Whatever comes until one of `ends` is no call. held: words that belong to it and have been read."""
        self._held, self._reason = held, reason
        self._state = self._in_malformed

    def _in_object(self, final: bool) -> bool:
        call = self._object
        used = call.feed(self._buffer)
        self._buffer = self._buffer[used:]
        if call.started and not self._is_open:
            self._start_call(call.name or "")
        self._write_arguments(call.take())
        return self._after_feed(call, final)

    def _after_feed(self, call: CallObject, final: bool) -> bool:
        if call.status is Status.OPEN and not final:
            return False
        if not call.started:
            self._rejected(call)
            return True
        if call.arguments_done:
            self._end_call(complete=call.arguments_are_object)
            self._state = self._after_object
            return True
        self._state = self._in_broken_arguments
        return True

    def _rejected(self, call: CallObject) -> None:
        """An object that is no call."""
        self._begin_malformed(call.raw, "no JSON object with a name and arguments")

    def _in_arguments(self, final: bool) -> bool:
        used = self._scanner.feed(self._buffer)
        self._write_arguments(self._buffer[:used])
        self._buffer = self._buffer[used:]
        if self._scanner.done:
            self._end_call(complete=True)
            self._state = self._after_call
            return True
        if self._scanner.broken or final:
            self._state = self._in_broken_arguments
            return True
        return False

    def _in_broken_arguments(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, self.ends, final=final)
        self._write_arguments(text)
        if not (marker or final):
            return False
        self._end_call(complete=False)
        self._at_end(marker)
        return bool(marker)

    def _in_malformed(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, self.ends, final=final)
        self._held += text
        if not (marker or final):
            return False
        self._report(self._held, self._reason)
        self._at_end(marker)
        return bool(marker)
