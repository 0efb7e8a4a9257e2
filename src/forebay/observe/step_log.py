"""The record of every step: the last N in memory, and all of them in a file if one is named."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from pathlib import Path

import msgspec

from forebay.core.step import StepRecord
from forebay.errors import ProfileError

logger = logging.getLogger(__name__)

RING_SIZE = 1024


class StepLog:
    """Keeps the last `ring_size` records; with `path`, also appends each as one JSON line (flushed by `close`, or as
    the file's buffer fills). Raises ProfileError if the file cannot be opened."""

    def __init__(self, path: Path | None = None, ring_size: int = RING_SIZE) -> None:
        self._ring: deque[StepRecord] = deque(maxlen=ring_size)
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = None if path is None else path.open("ab")
        except OSError as error:
            raise ProfileError(f"step log {path} cannot be opened: {error.strerror}; name a writable file") from error

    def append(self, record: StepRecord) -> None:
        self._ring.append(record)
        if self._file is None:
            return
        try:
            self._file.write(self._encoder.encode(record) + b"\n")
        except OSError as error:  # a full disk must not stop the engine
            logger.error("step log %s ends here: %s", self._file.name, error.strerror)
            self._file = None

    def last(self, count: int | None = None) -> list[StepRecord]:
        """The newest `count` records (all that are kept if None), oldest first."""
        records = list(self._ring)
        return records if count is None else records[max(0, len(records) - count) :]

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take is lost
                file.close()


def read_step_log(path: Path) -> list[StepRecord]:
    """The records of a file that StepLog wrote."""
    decoder = msgspec.json.Decoder(StepRecord)
    with path.open("rb") as lines:
        return [decoder.decode(line) for line in lines]
