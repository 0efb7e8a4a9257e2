"""The seam of tool-call formats: how a model writes calls, as data, and the parser that reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forebay.structured.tools.deltas import CallIds
from forebay.structured.tools.parser import NewId, ToolParser
from forebay.structured.tools.request import Tool
from forebay.structured.tools.shape import CallShape

NewParser = Callable[[Sequence[Tool], NewId], ToolParser]


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One way of writing tool calls.

    name        what a setting calls it
    markers     what the parser must see in the text; where one is a special token, the detokenizer has to show it
    new_parser  (tools, new_id) -> the parser of one message
    shape       how calls are written under a grammar
    channels    reasoning and content are marked as well, so every message goes through the parser, tools or not
    id_prefix, id_length  the form of call ids that the model's chat template accepts
    """

    name: str
    markers: tuple[str, ...]
    new_parser: NewParser
    shape: CallShape
    channels: bool = False
    id_prefix: str = "call_"
    id_length: int = 24

    def parser(self, tools: Sequence[Tool], request_id: str, choice: int = 0) -> ToolParser:
        """A parser for choice number `choice` of a request. tools: those it may call."""
        ids = CallIds(request_id, choice, prefix=self.id_prefix, length=self.id_length)
        return self.new_parser(tools, ids)
