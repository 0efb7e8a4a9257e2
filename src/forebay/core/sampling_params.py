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
        enough = self.max_tokens is None or self.max_tokens >= 1
        _check("max_tokens", self.max_tokens, enough, "an integer of at least 1")
        _check("temperature", self.temperature, 0.0 <= self.temperature <= 100.0, "a number from 0 to 100")
        _check("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "a number above 0 and at most 1")
        _check("top_k", self.top_k, 0 <= self.top_k < 2**31, "an integer of at least 0 (0 keeps all)")
        _check("min_p", self.min_p, 0.0 <= self.min_p < 1.0, "a number from 0 to below 1")
        _check("seed", self.seed, self.seed is None or -(2**63) <= self.seed < 2**63, "a 64-bit signed integer")
        _check("n", self.n, 1 <= self.n <= MAX_N, f"an integer from 1 to {MAX_N}")
        _check(
            "logprobs",
            self.logprobs,
            self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            f"an integer from 0 to {MAX_LOGPROBS}",
        )
        _check(
            "stop",
            self.stop,
            len(self.stop) <= MAX_STOP_STRINGS and all(self.stop),
            f"at most {MAX_STOP_STRINGS} strings, none of them empty",
        )


def _check(name: str, value: object, ok: bool, wanted: str) -> None:
    if not ok:
        shown = repr(value)
        raise InvalidValueError(f"{name} must be {wanted}, got {shown[:80]}", param=name)
