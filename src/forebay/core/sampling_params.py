"""How the next token is chosen and when a request ends."""

from __future__ import annotations

import msgspec

from forebay.core.grammar_spec import GrammarSpec
from forebay.core.reasoning_spec import ReasoningSpec
from forebay.errors import InvalidValueError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_N = 128
MAX_LISTED_TOKENS = 1024  # in each field that lists token ids
LARGEST_BIAS = 100.0
LARGEST_PENALTY = 2.0  # of presence and frequency
_INT32 = 2**31


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request.

    The order: penalties, logit_bias, lists of tokens and min_tokens change the logits; then temperature, top_k,
    top_p, min_p, typical_p; then the draw.

    temperature: 0 is greedy (argmax, ties to the lowest id); otherwise logits are divided by it.
    top_k: keep exactly k candidates; 0 keeps all.  top_p: nucleus mass in (0, 1].
    min_p: drop tokens below min_p * p(best), in [0, 1).
    typical_p: of what is left, keep the tokens whose information is nearest to the mean, up to this mass, in (0, 1]
      (Locally Typical Sampling, arXiv:2202.00666).
    repetition_penalty: logits of tokens in prompt or output are divided by it where positive, else multiplied (CTRL,
      arXiv:1909.05858).
    presence_penalty, frequency_penalty: taken from logits of tokens in the output, once and per occurrence.
    logit_bias: token id -> what is added to its logit, -100 to 100.
    allowed_token_ids: nothing else is ever chosen; None allows all.  bad_token_ids: never chosen.
    grammar: what the output must be; it holds from the first token to the end-of-sequence token.
    reasoning: what may stand before that, and how many tokens it may take.
    min_tokens: no end-of-sequence token, stop token or stop string before so many tokens.
    stop_token_ids: tokens that end the output, as the end-of-sequence token does, also with ignore_eos.
    seed: 64-bit; None lets the engine draw one (it is fixed and reported when the request is accepted).
    max_tokens: None becomes min(context left, profile default) at admission.
    include_stop_str_in_output: the stop string is shown.  skip_special_tokens: they are not part of the text,
    but for shown_token_ids: special tokens of which the markers of tool calls and reasoning are made.
    logprobs: None for none; k for the sampled token's log-probability plus the k best (0 = sampled only).
      They are natural logs of the model's own distribution, before all of the above.
    prompt_logprobs: the same for every token of the prompt but the first; the prompt is then computed whole, whatever
      the prefix cache holds.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    allowed_token_ids: tuple[int, ...] | None = None
    bad_token_ids: tuple[int, ...] = ()
    grammar: GrammarSpec | None = None
    reasoning: ReasoningSpec | None = None
    min_tokens: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    shown_token_ids: tuple[int, ...] = ()
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False

    @property
    def has_penalties(self) -> bool:
        """Whether what was said before changes the logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    def __post_init__(self) -> None:
        # types too: msgspec checks them only in what it decodes, and the engine process drops what it cannot decode
        enough = self.max_tokens is None or (_is_int(self.max_tokens) and self.max_tokens >= 1)
        _check("max_tokens", self.max_tokens, enough, "an integer of at least 1")
        hot = _is_number(self.temperature) and 0.0 <= self.temperature <= 100.0
        _check("temperature", self.temperature, hot, "a number from 0 to 100")
        nucleus = _is_number(self.top_p) and 0.0 < self.top_p <= 1.0
        _check("top_p", self.top_p, nucleus, "a number above 0 and at most 1")
        best = _is_int(self.top_k) and 0 <= self.top_k < 2**31
        _check("top_k", self.top_k, best, "an integer of at least 0 (0 keeps all)")
        floor = _is_number(self.min_p) and 0.0 <= self.min_p < 1.0
        _check("min_p", self.min_p, floor, "a number from 0 to below 1")
        signed = self.seed is None or (_is_int(self.seed) and -(2**63) <= self.seed < 2**63)
        _check("seed", self.seed, signed, "a 64-bit signed integer")
        _check("n", self.n, _is_int(self.n) and 1 <= self.n <= MAX_N, f"an integer from 1 to {MAX_N}")
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            shown = count is None or (_is_int(count) and 0 <= count <= MAX_LOGPROBS)
            _check(name, count, shown, f"an integer from 0 to {MAX_LOGPROBS}")
        stops = (
            isinstance(self.stop, tuple | list) and len(self.stop) <= MAX_STOP_STRINGS and all(map(_is_text, self.stop))
        )
        _check("stop", self.stop, stops, f"at most {MAX_STOP_STRINGS} strings, none of them empty")
        for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
            value = getattr(self, name)
            _check(name, value, isinstance(value, bool), "true or false")
        self._check_logits()
        _check("grammar", self.grammar, isinstance(self.grammar, GrammarSpec | None), "a GrammarSpec")
        for name in ("ignore_eos", "stop", "stop_token_ids"):
            if self.grammar is not None and getattr(self, name):
                raise InvalidValueError(
                    f"{name} and {self.grammar.param} exclude each other: an output that follows a grammar ends with "
                    "it, and not before; leave out one of them",
                    param=name,
                )

    def _check_logits(self) -> None:
        typical = _is_number(self.typical_p) and 0.0 < self.typical_p <= 1.0
        _check("typical_p", self.typical_p, typical, "a number above 0 and at most 1")
        repetition = _is_number(self.repetition_penalty) and 0.01 <= self.repetition_penalty <= 100.0
        _check("repetition_penalty", self.repetition_penalty, repetition, "a number from 0.01 to 100 (1 is none)")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            fits = _is_number(value) and abs(value) <= LARGEST_PENALTY
            _check(name, value, fits, f"a number from -{LARGEST_PENALTY:g} to {LARGEST_PENALTY:g}")
        least = _is_int(self.min_tokens) and self.min_tokens >= 0
        _check("min_tokens", self.min_tokens, least, "an integer of at least 0")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidValueError(
                f"min_tokens is {self.min_tokens} and max_tokens is {self.max_tokens}; ask for fewer at least or more "
                "at most",
                param="min_tokens",
            )
        for name in ("bad_token_ids", "stop_token_ids"):
            _check_ids(name, getattr(self, name))
        if self.allowed_token_ids is not None:
            _check_ids("allowed_token_ids", self.allowed_token_ids)
            if set(self.allowed_token_ids) <= set(self.bad_token_ids):
                raise InvalidValueError(
                    "allowed_token_ids must hold a token that bad_token_ids does not; leave it out to allow all",
                    param="allowed_token_ids",
                )
        self._check_bias()

    def _check_bias(self) -> None:
        wanted = f"an object of at most {MAX_LISTED_TOKENS} token ids"
        listed = isinstance(self.logit_bias, dict) and len(self.logit_bias) <= MAX_LISTED_TOKENS
        _check("logit_bias", self.logit_bias, listed and all(map(_is_id, self.logit_bias)), wanted)
        for token, bias in self.logit_bias.items():
            fits = _is_number(bias) and abs(bias) <= LARGEST_BIAS
            _check(f"logit_bias.{token}", bias, fits, f"a number from -{LARGEST_BIAS:g} to {LARGEST_BIAS:g}")


def _is_int(value: object) -> bool:
    return type(value) is int  # True is no number


def _is_id(value: object) -> bool:
    return _is_int(value) and 0 <= value < _INT32  # type: ignore[operator]  # an int


def _check_ids(name: str, ids: object) -> None:
    listed = isinstance(ids, tuple | list) and len(ids) <= MAX_LISTED_TOKENS and all(map(_is_id, ids))
    _check(name, ids, listed, f"a list of at most {MAX_LISTED_TOKENS} token ids")


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_text(value: object) -> bool:
    """Whether it is a string, not empty and without lone surrogates, which no message can carry."""
    return isinstance(value, str) and bool(value) and not any("\ud800" <= c <= "\udfff" for c in value)


def _check(name: str, value: object, ok: bool, wanted: str) -> None:
    if not ok:
        shown = repr(list(value) if isinstance(value, tuple) else value)  # clients know lists, not tuples
        raise InvalidValueError(f"{name} must be {wanted}, got {shown[:80]}", param=name)
