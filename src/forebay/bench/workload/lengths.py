"""How long prompts and answers are: a distribution of whole numbers, written in a few characters.

256                          always 256
64..512                      every number from 64 to 512 equally likely
lognormal:256,0.6            median 256, sigma 0.6 of the logarithm; at least 1
lognormal:256,0.6,16..1024   the same; what falls outside becomes the nearest bound
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forebay.errors import BenchError

MOST = 10_000_000  # tokens or turns; more is a typing error
_MAX_SIGMA = 5.0
_FORMS = "a number (256), a range (64..512) or lognormal:MEDIAN,SIGMA[,LOW..HIGH]"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution over the whole numbers `low` to `high`. `median` and `sigma` are those of a lognormal one."""

    kind: Literal["fixed", "uniform", "lognormal"]
    low: int
    high: int
    median: float = 0.0
    sigma: float = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> list[int]:
        if self.kind == "fixed":
            return [self.low] * count
        if self.kind == "uniform":
            drawn = rng.integers(self.low, self.high, size=count, endpoint=True)
        else:
            values = np.rint(self.median * np.exp(self.sigma * rng.standard_normal(count)))
            drawn = np.clip(values, self.low, self.high).astype(np.int64)
        return [int(value) for value in drawn]

    def mean(self) -> float:
        """Expected value; of a lognormal one with its bounds, but without the rounding to whole numbers."""
        if self.kind != "lognormal":
            return (self.low + self.high) / 2
        if self.sigma == 0:
            return min(max(self.median, float(self.low)), float(self.high))
        low, high = (math.log(bound / self.median) / self.sigma for bound in (self.low, self.high))
        inside = self.median * math.exp(self.sigma**2 / 2) * (_normal(high - self.sigma) - _normal(low - self.sigma))
        return self.low * _normal(low) + inside + self.high * (1 - _normal(high))


@dataclass(frozen=True, slots=True)
class PairLengths:
    """Prompts and answers that fit together into `limit` tokens (None: no limit). What a lognormal distribution gives
    beyond it is cut; of the others the whole range must fit.

    least: fewest tokens of a prompt.
    """

    inputs: Lengths
    outputs: Lengths
    least: int
    limit: int | None

    def __post_init__(self) -> None:
        inputs, outputs = self.inputs, self.outputs
        if inputs.kind != "lognormal" and inputs.low < self.least:
            raise BenchError(f"input from {inputs.low} tokens: the least possible here is {self.least}; ask for more")
        most = self.least if inputs.kind == "lognormal" else inputs.high
        answer = 1 if outputs.kind == "lognormal" else outputs.high
        if self.limit is not None and most + answer > self.limit:
            raise BenchError(
                f"input and output: prompts of {most} with answers of {answer} tokens do not fit, max_model_len leaves "
                f"{self.limit}; shorten one of them"
            )

    def draw(self, rng: np.random.Generator, count: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Lengths of `count` prompts and answers, and how many pairs were changed so as to fit."""
        drawn = list(zip(self.inputs.draw(rng, count), self.outputs.draw(rng, count), strict=True))
        pairs = [self._fitted(*pair) for pair in drawn]
        changed = sum(pair != before for pair, before in zip(pairs, drawn, strict=True))
        return tuple(new for new, _ in pairs), tuple(output for _, output in pairs), changed

    def _fitted(self, new: int, output: int) -> tuple[int, int]:
        new = max(new, self.least)
        if self.limit is None:
            return new, output
        if self.inputs.kind == "lognormal":
            new = max(min(new, self.limit - output), self.least)
        return new, min(output, self.limit - new)


def parse_lengths(text: str, field: str) -> Lengths:
    """Read the grammar above. Raises BenchError naming `field` and the part that is wrong."""
    name, colon, rest = text.strip().partition(":")
    if not colon:
        low, high = _bounds(text.strip(), text, field)
        return Lengths("fixed" if low == high else "uniform", low, high)
    if name != "lognormal":
        raise BenchError(f"{field} {text!r}: unknown distribution {name!r}; give {_FORMS}")
    parts = rest.split(",")
    if len(parts) not in (2, 3):
        raise BenchError(f"{field} {text!r}: lognormal needs a median and a sigma; give {_FORMS}")
    median = _number(parts[0], "median", 1, MOST, text, field)
    sigma = _number(parts[1], "sigma", 0, _MAX_SIGMA, text, field)
    low, high = _bounds(parts[2], text, field) if len(parts) == 3 else (1, MOST)
    return Lengths("lognormal", low, high, median, sigma)


def _bounds(part: str, text: str, field: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,12})(?:\.\.([0-9]{1,12}))?", part.strip())
    if found is None:
        raise BenchError(f"{field} {text!r}: {part!r} is no length; give {_FORMS}")
    low, high = int(found[1]), int(found[2] or found[1])
    if not 1 <= low <= high <= MOST:
        raise BenchError(f"{field} {text!r}: {part!r} must rise and lie between 1 and {MOST}")
    return low, high


def _number(part: str, name: str, least: float, most: float, text: str, field: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise BenchError(f"{field} {text!r}: {name} {part!r} must be a number from {least:g} to {most:g}")
    return value


def _normal(z: float) -> float:
    return (1 + math.erf(z / math.sqrt(2))) / 2
