"""What Forebay's speeds are set against: the roofline, sampled between the cells of the same run while every engine is
stopped, and the least time of a token and of a prompt that follows from it (forebay/bench/ops/floor.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cells import Cell

from forebay.bench.ops import floor
from forebay.bench.ops.floor import ForwardPass
from forebay.bench.ops.roofline import Roofline
from forebay.models.families.registry import load_decoder
from forebay.ops.native import supported_isas
from forebay.weights.checkpoint import open_checkpoint

SECONDS = 0.02  # of a sample
SAMPLES = 3  # at each call: of short ones more escape what else runs on the machine


class Floors:
    """Of some models at some cells of one stream."""

    def __init__(self, threads: int) -> None:
        self._roofline = Roofline(supported_isas()[-1], threads)
        self._models: dict[tuple[Path, str], ForwardPass] = {}
        self._working_sets: set[int] = set()
        self._kinds: set[str] = set()

    def add(self, file: Path, kv_dtype: str, cells: Iterable[Cell]) -> None:
        """A model that will be measured in these cells."""
        checkpoint = open_checkpoint(file)
        try:
            model = floor.forward_pass(*load_decoder(checkpoint), kv_dtype)
        finally:
            checkpoint.close()
        self._models[file, kv_dtype] = model
        for cell in cells:
            if cell.alone:
                self._working_sets.add(model.decode_bytes(_context(cell)))
                self._kinds.update(model.prompt_operations(cell.prompt))

    def sample(self) -> None:
        for _ in range(SAMPLES):
            floor.sample(self._roofline, self._working_sets, self._kinds, SECONDS)

    def of(self, file: Path, kv_dtype: str, cell: Cell) -> dict[str, float]:
        """{"decode_floor_s", "prompt_floor_s"} of a model that was added; nothing of a cell of several streams."""
        if not cell.alone:
            return {}
        model = self._models[file, kv_dtype]
        return {
            "decode_floor_s": floor.decode_floor(model, _context(cell), self._roofline),
            "prompt_floor_s": floor.prompt_floor(model, cell.prompt, self._roofline),
        }

    def rows(self) -> Sequence[dict[str, Any]]:
        """What was measured of the machine."""
        return self._roofline.rows()


def _context(cell: Cell) -> int:
    """Keys that a token after the first sees, on average."""
    return cell.prompt + cell.output // 2
