"""[TOOL_CALLS] and what follows it: Mistral's three ways of writing calls.

mistral        [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]        Mistral 7B v0.3, Nemo (tokenizers v2 to v7)
mistral_id     [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{...}                  Small 3.2 (v11)
mistral_args   [TOOL_CALLS]f[ARGS]{...}                                    Devstral, Ministral 3, Magistral (v13)

Source: the models' chat templates. One parser reads all three. Ids that the model makes up are not used: a client could
meet one twice in a conversation.
"""

from __future__ import annotations

import re

from forebay.structured.tools.call_object import MAX_NAME_CHARS
from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.markers import split_at
from forebay.structured.tools.parser import ToolParser
from forebay.structured.tools.shape import CallShape, Regex

CALLS = "[TOOL_CALLS]"
ID = "[CALL_ID]"
ARGS = "[ARGS]"

_NAME = re.compile(rf"[^\s\[\]{{}}\"]{{1,{MAX_NAME_CHARS}}}")


class MistralParser(ToolParser):
    """Reads all three ways."""

    markers = (CALLS, ID, ARGS)
    ends = (CALLS,)
    _name = ""  # of the call whose arguments are awaited

    def _outside(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, self.markers, final=final)
        self._write_content(text)
        if marker == CALLS:
            self._state = self._opened
        return bool(marker)

    def _at_end(self, marker: str) -> None:
        self._state = self._opened if marker else self._outside

    def _after_call(self, final: bool) -> bool:
        self._state = self._outside
        return bool(self._buffer)

    def _opened(self, final: bool) -> bool:
        """An array of objects, or a name. The marker itself begins with a bracket as well."""
        if not self._skip():
            if final:
                self._begin_malformed("", f"the text ends after {CALLS}")
            return final
        if self._buffer == "[" and not final:
            return False
        if self._buffer.startswith("[") and not self._buffer.startswith(("[T", "[C", "[A")):
            self._buffer = self._buffer[1:]
            self._state = self._before_item
        else:
            self._held = ""
            self._state = self._in_name
        return True

    def _before_item(self, final: bool) -> bool:
        if not self._skip(self.gap + ","):
            if final:
                self._begin_malformed("", f"the text ends in the array after {CALLS}")
            return final
        if self._buffer.startswith("{"):
            self._begin_object()
        elif self._buffer.startswith("]"):
            self._buffer = self._buffer[1:]
            self._space, self._after_block = "", True
            self._state = self._outside
        else:
            self._begin_malformed("", f"the array after {CALLS} holds something other than objects")
        return True

    def _after_object(self, final: bool) -> bool:
        """The next item; the text may end here, too."""
        if not self._skip(self.gap + ","):
            return False
        self._state = self._before_item
        return True

    def _in_name(self, final: bool) -> bool:
        text, marker, self._buffer = split_at(self._buffer, (CALLS, ID, ARGS, "{"), final=final)
        self._held += text
        if not (marker or final):
            return False
        name = self._held.strip()
        if marker in (CALLS, "{"):
            self._buffer = marker + self._buffer
        if marker in ("", CALLS) or not _NAME.fullmatch(name):
            self._begin_malformed(self._held, f"no name and arguments after {CALLS}")
        elif marker == "{":
            self._begin_arguments(name)
        else:
            self._name = name
            self._state = self._after_id if marker == ID else self._before_arguments
        return True

    def _after_id(self, final: bool) -> bool:
        _, marker, self._buffer = split_at(self._buffer, (ARGS, CALLS, "{"), final=final)
        if not (marker or final):
            return False
        self._state = self._before_arguments
        if marker != ARGS:
            self._buffer = marker + self._buffer
        return True

    def _before_arguments(self, final: bool) -> bool:
        if not self._skip() and not final:
            return False
        if self._buffer.startswith("{"):
            self._begin_arguments(self._name)
        else:
            self._begin_malformed(self._name + " ", f"no JSON object after {ARGS}")
        return True


def _mistral(name: str, shape: CallShape) -> ToolFormat:
    return ToolFormat(
        name=name, markers=MistralParser.markers, new_parser=MistralParser, shape=shape, id_prefix="", id_length=9
    )


MISTRAL = _mistral(
    "mistral",
    CallShape(
        first=(CALLS, '[{"name": "{name}", "arguments": '),
        following=(', {"name": "{name}", "arguments": ',),
        close=("}",),
        end=("]",),
    ),
)
MISTRAL_ID = _mistral(
    "mistral_id",
    CallShape(
        first=(CALLS, "{name}" + ID, Regex("[a-zA-Z0-9]{9}"), ARGS),
        following=(CALLS + "{name}" + ID, Regex("[a-zA-Z0-9]{9}"), ARGS),
        close=(),
    ),
)
MISTRAL_ARGS = _mistral(
    "mistral_args",
    CallShape(first=(CALLS, "{name}" + ARGS), following=(CALLS + "{name}" + ARGS,), close=()),
)
