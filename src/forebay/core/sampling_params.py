"""How the next token is chosen and when a request ends."""

from __future__ import annotations

import msgspec

from forebay.errors import InvalidValueError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_N = 128


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request.

    temperature: 0 is greedy (argmax, ties to the lowest id); otherwise logits are divided by it.
    top_k: keep exactly k candidates; 0 keeps all.  top_p: nucleus mass in (0, 1].
    min_p: drop tokens below min_p * p(best), in [0, 1).
    seed: 64-bit; None lets the engine draw one (it is fixed and reported when the request is accepted).
    max_tokens: None becomes min(context left, profile default) at admission.
    logprobs: None for none; k for the sampled token's log-probability plus the k best (0 = sampled only).
      They are natural logs of the model's own distribution, before temperature and filters.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None
    ignore_eos: bool = False

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
        shown = self.logprobs is None or (_is_int(self.logprobs) and 0 <= self.logprobs <= MAX_LOGPROBS)
        _check("logprobs", self.logprobs, shown, f"an integer from 0 to {MAX_LOGPROBS}")
        stops = (
            isinstance(self.stop, tuple | list) and len(self.stop) <= MAX_STOP_STRINGS and all(map(_is_text, self.stop))
        )
        _check("stop", self.stop, stops, f"at most {MAX_STOP_STRINGS} strings, none of them empty")
        _check("ignore_eos", self.ignore_eos, isinstance(self.ignore_eos, bool), "true or false")


def _is_int(value: object) -> bool:
    return type(value) is int  # True is no number


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_text(value: object) -> bool:
    """Whether it is a string, not empty and without lone surrogates, which no message can carry."""
    return isinstance(value, str) and bool(value) and not any("\ud800" <= c <= "\udfff" for c in value)


def _check(name: str, value: object, ok: bool, wanted: str) -> None:
    if not ok:
        shown = repr(list(value) if isinstance(value, tuple) else value)  # clients know lists, not tuples
        raise InvalidValueError(f"{name} must be {wanted}, got {shown[:80]}", param=name)
