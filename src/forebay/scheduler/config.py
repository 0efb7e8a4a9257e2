"""The scheduler's settings, resolved and checked."""

from __future__ import annotations

from dataclasses import dataclass

from forebay.errors import ProfileError


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """token_budget: most tokens in one step. chunk_size: most tokens of one request in one step; None is the budget.
    max_requests: most running at once. max_waiting: most in the queue. batching: "continuous", or "static" to compare.
    full_budget_decodes: how many decoding requests may wait for a whole budget of prompt tokens; None: any number.
    """

    token_budget: int = 512
    chunk_size: int | None = None
    max_requests: int = 64
    max_waiting: int = 256
    batching: str = "continuous"
    full_budget_decodes: int | None = None

    def __post_init__(self) -> None:
        for name in ("token_budget", "chunk_size", "full_budget_decodes", "max_requests", "max_waiting"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ProfileError(f"{name} must be at least 1, got {value}", param=f"scheduler.{name}")
        if self.batching not in ("continuous", "static"):
            raise ProfileError(
                f'batching must be "continuous" or "static", got {self.batching!r}', param="scheduler.batching"
            )

    @property
    def max_chunk(self) -> int:
        return min(self.chunk_size or self.token_budget, self.token_budget)

    def prompt_tokens(self, decodes: int) -> int:
        """Most prompt tokens in a step beside this many decoding requests: each of them waits for all of those tokens,
        so that tokens times requests stay bounded. Prompts always keep an eighth of the budget."""
        if self.full_budget_decodes is None or decodes <= self.full_budget_decodes:
            return self.token_budget
        return max(self.token_budget * self.full_budget_decodes // decodes, self.token_budget // 8, 1)

    @property
    def max_running(self) -> int:
        """Never more requests than tokens in a step, so that each running request can move by one token every step."""
        return min(self.max_requests, self.token_budget)
