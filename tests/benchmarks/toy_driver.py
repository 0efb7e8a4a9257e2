"""An engine for tests: it answers with the tokens 0, 1, 2 ..., one a step. "fails_after": so many requests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "drivers"))

from driver_protocol import Step, SteppedEngine, serve


class Toy(SteppedEngine):
    version = "toy 1"

    def __init__(self, options: dict[str, Any]) -> None:
        self.facts = {"given": options}
        self._open: dict[int, list[int]] = {}  # request -> tokens made, tokens wanted
        self._left = options.get("fails_after", sys.maxsize)

    def submit(self, index: int, token_ids: list[int], max_tokens: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise RuntimeError("the toy is broken")
        self._open[index] = [0, max_tokens]

    def step(self) -> Step:
        outputs = []
        for index, state in list(self._open.items()):
            state[0] += 1
            outputs.append((index, [state[0] - 1], state[0] == state[1]))
            if state[0] == state[1]:
                del self._open[index]
        return outputs


if __name__ == "__main__":
    serve(Toy)
