"""How the messages of one request are generated and read: tool calls, reasoning, and the grammars of both."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from forebay.core.reasoning_spec import ReasoningSpec
from forebay.core.sampling_params import SamplingParams
from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.server.generation import Generation
from forebay.server.message_reader import MessageReader
from forebay.structured.reasoning import ReasoningFormat
from forebay.structured.reasoning_tokens import ReasoningTokens
from forebay.structured.tools.message import MessageFormat
from forebay.structured.tools.request import ToolChoice
from forebay.tokenizer import Tokenizer

BUDGET = "thinking_token_budget"


@dataclass(frozen=True, slots=True)
class Speech:
    """prompt: the text of the prompt. budget: most tokens of reasoning, None for no limit."""

    format: MessageFormat
    tokenizer: Tokenizer
    prompt: str
    choice: ToolChoice
    budget: int | None = None

    def held(self, sampling: SamplingParams) -> SamplingParams:
        """`sampling` with the grammar of the calls, the end of the reasoning, and the markers that must be shown.

        Raises GrammarError for a strict tool that cannot be enforced, UnsupportedFieldError for what the model's way of
        writing messages does not allow, InvalidValueError for two grammars.
        """
        given = sampling.grammar
        if given is not None and self.format.tools is not None and self.format.tools.channels:
            raise UnsupportedFieldError(
                f"{given.param} is not supported: this model writes its answers in channels; use tools",
                param=given.param,
            )
        reasoning = self._reasoning(sampling)
        calls = self.format.grammar(self.prompt, self.choice, from_start=reasoning is None)
        if given is not None and self.choice.callable_tools:
            raise InvalidValueError(
                f"{given.param} and tools exclude each other: an answer held to a schema cannot call a tool; leave "
                'out one of them, or set tool_choice to "none"',
                param=given.param,
            )
        return msgspec.structs.replace(
            sampling,
            grammar=calls or given,
            reasoning=reasoning,
            shown_token_ids=tuple(sorted(self.format.token_ids.values())) if self._is_read else (),
        )

    def readers(self, generation: Generation) -> list[MessageReader]:
        """One for each choice."""
        return [self._reader(generation.id, index) for index in range(generation.num_choices)]

    def _reader(self, request_id: str, index: int) -> MessageReader:
        if not self._is_read:
            return MessageReader()
        markers, counter = self.format.splits, None
        if markers is not None:
            inside = markers.begins_inside(self.prompt)
            counter = ReasoningTokens(markers.begin, markers.end, inside=inside, token_bytes=self.tokenizer.token_bytes)
        return MessageReader(self.format.parser(self.prompt, self.choice, request_id, index), counter)

    @property
    def _is_read(self) -> bool:
        """There may be more in a message than content, so its markers matter."""
        channels = self.format.tools is not None and self.format.tools.channels
        return self.format.splits is not None or channels or bool(self.choice.callable_tools)

    def _reasoning(self, sampling: SamplingParams) -> ReasoningSpec | None:
        """Where the engine has to know the end of the reasoning: for a grammar from there on, or a budget."""
        markers = self.format.splits
        if self.budget is not None and markers is None:
            raise UnsupportedFieldError(
                f"{BUDGET} is not supported: this model's chat template has no markers of reasoning; remove it",
                param=BUDGET,
            )
        if markers is None or (self.budget is None and sampling.grammar is None):
            return None
        begin, end = one_token(self.tokenizer, markers.begin), one_token(self.tokenizer, markers.end)
        inside = markers.begins_inside(self.prompt)
        if begin is not None and end is not None:
            closing = tuple(self.tokenizer.encode_more(markers.closing_text))
            return ReasoningSpec(
                begin_token_id=begin, end_token_id=end, inside=inside, budget=self.budget, closing_token_ids=closing
            )
        self._check_without_tokens(markers, sampling, inside=inside)
        return None

    def _check_without_tokens(self, markers: ReasoningFormat, sampling: SamplingParams, *, inside: bool) -> None:
        """Markers of several tokens: a grammar holds from the first token, so the answer comes without reasoning."""
        field = BUDGET if self.budget is not None else sampling.grammar.param if sampling.grammar and inside else None
        if field is not None:
            raise UnsupportedFieldError(
                f"{field} is not supported: {markers.begin!r} and {markers.end!r} are not one token each; remove it",
                param=field,
            )


def one_token(tokenizer: Tokenizer, marker: str) -> int | None:
    """The token that a marker is, None if it takes several."""
    ids = tokenizer.encode(marker.strip(), add_special_tokens=False)
    return ids[0] if len(ids) == 1 else None
