"""One assistant message, read: reasoning first, then content and calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.structured.reasoning import ReasoningFormat, ReasoningSplitter, detect_reasoning
from forebay.structured.tools.call_grammar import call_grammar
from forebay.structured.tools.deltas import ContentDelta, Delta, ReasoningDelta, merged
from forebay.structured.tools.format import ToolFormat
from forebay.structured.tools.markers import special_markers
from forebay.structured.tools.parser import ToolParser
from forebay.structured.tools.registry import detect_tool_format, no_tool_format, tool_format
from forebay.structured.tools.request import ToolChoice
from forebay.tokenizer import Tokenizer


class MessageParser:
    """Reads the text of one choice. Either part may be missing; without both all text is content.

    The same promise as ToolParser: all deltas, `merged`, do not depend on how the text was cut.
    """

    def __init__(self, reasoning: ReasoningSplitter | None, tools: ToolParser | None) -> None:
        self.reasoning = reasoning
        self._tools = tools

    def push(self, text: str, num_tokens: int = 0) -> list[Delta]:
        """New text in (num_tokens: how many tokens it is), what it decides out."""
        if self.reasoning is None:
            return self._content(text)
        thought, said = self.reasoning.push(text, num_tokens)
        return [*_reasoning(thought), *self._content(said)]

    def finish(self) -> list[Delta]:
        """What is left once there is no more text. Called once."""
        deltas: list[Delta] = []
        if self.reasoning is not None:
            thought, said = self.reasoning.finish()
            deltas += [*_reasoning(thought), *self._content(said)]
        if self._tools is not None:
            deltas += self._tools.finish()
        return merged(deltas)

    def _content(self, text: str) -> list[Delta]:
        if self._tools is not None:
            return self._tools.push(text)
        return [ContentDelta(text)] if text else []


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """How a model writes its messages; made once for a model, by `message_format`.

    tools, reasoning  None: the model is not known to call tools, to reason
    token_ids         special tokens of which markers are made, with their ids: the text has to show them
    """

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None
    token_ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def markers(self) -> tuple[str, ...]:
        """What the text must show, whether or not a request has tools."""
        shown = self.reasoning.markers if self.reasoning else ()
        return (*shown, *self.tools.markers) if self.tools else shown

    @property
    def splits(self) -> ReasoningFormat | None:
        """The reasoning that is told apart before calls are looked for; channels do so themselves."""
        return None if self.tools is not None and self.tools.channels else self.reasoning

    def check(self, choice: ToolChoice) -> None:
        """UnsupportedFieldError: there are tools to call, and the model is not known to call any."""
        if choice.callable_tools and self.tools is None:
            raise no_tool_format()

    def parser(
        self, prompt: str, choice: ToolChoice, request_id: str, index: int = 0, reasoning_budget: int | None = None
    ) -> MessageParser:
        """The parser of choice `index` of a request. prompt: its text (the end will do). Raises as `check`."""
        self.check(choice)
        splitter = None
        if (reasoning := self.splits) is not None:
            inside = reasoning.begins_inside(prompt)
            splitter = ReasoningSplitter(reasoning, inside=inside, budget=reasoning_budget)
        parser = None
        if self.tools is not None and (choice.callable_tools or self.tools.channels):
            parser = self.tools.parser(choice.callable_tools, request_id, index)
        return MessageParser(splitter, parser)

    def grammar(self, prompt: str, choice: ToolChoice, *, from_start: bool = True) -> GrammarSpec | None:
        """What the output must be held to; None: nothing.

        from_start: from its first token on, reasoning included; else from the end of the reasoning on.

        InvalidValueError: what of a strict tool's schema cannot be enforced, with its JSON pointer.
        UnsupportedFieldError: as `check`.
        """
        self.check(choice)
        if self.tools is None:
            return None
        reasoning = self.splits if from_start else None
        before = [reasoning.span(inside=reasoning.begins_inside(prompt))] if reasoning else []
        source = call_grammar(self.tools.shape, choice, before=before, token_ids=self.token_ids)
        if source is None:
            return None
        return GrammarSpec(kind=GrammarKind.TOOL_CALLS, source=source, param="tools")


def message_format(template: str | None, tokenizer: Tokenizer, tool_format_name: str | None = None) -> MessageFormat:
    """What a model's chat template (the one for tools, if there are two) says about its messages.

    tool_format_name: the format of calls, if it is not to be told from the template.
    """
    special = {tokenizer.token_text(i) for i in tokenizer.pieces.special_ids}
    tools = tool_format(tool_format_name) if tool_format_name else detect_tool_format(template, special)
    found = MessageFormat(tools, detect_reasoning(template))
    return replace(found, token_ids=special_markers(tokenizer, found.markers))


def _reasoning(text: str) -> list[Delta]:
    return [ReasoningDelta(text)] if text else []
