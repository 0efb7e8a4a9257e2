"""The record of what was served: the last steps in memory; every step and every request in a file, if one is named."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from forebay.core.messages import Event
from forebay.core.step import StepRecord
from forebay.errors import ProfileError

logger = logging.getLogger(__name__)

RING_SIZE = 1024


class StepLine(msgspec.Struct, frozen=True, tag="step"):
    """A step, as a line of the file."""

    record: StepRecord


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """One completion that has ended (child `child_index` of `request_id`), as a line of the file.

    reason: its finish reason, or the label of the error that ended it. events: its whole life.
    """

    request_id: str
    child_index: int
    reason: str
    num_prompt_tokens: int
    num_cached_tokens: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What a file holds."""

    steps: list[StepRecord]
    requests: list[RequestLine]


class Recorder:
    """Keeps the last `ring_size` steps; with `path`, also appends each step and each request as one JSON line, flushed
    whenever the engine comes to rest. Raises ProfileError if the file cannot be opened."""

    def __init__(self, path: Path | None = None, ring_size: int = RING_SIZE) -> None:
        self._ring: deque[StepRecord] = deque(maxlen=ring_size)
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = None if path is None else path.open("ab")
        except OSError as error:
            raise ProfileError(f"record {path} cannot be opened: {error.strerror}; name a writable file") from error

    def step(self, record: StepRecord) -> None:
        """Take the record of a step; one of no requests says that the engine rests."""
        if record.num_requests:
            self._ring.append(record)
            self._write(StepLine(record))
        else:
            self._flush()

    def request(self, line: RequestLine) -> None:
        self._write(line)

    def last(self, count: int | None = None) -> list[StepRecord]:
        """The newest `count` steps (all that are kept if None), oldest first."""
        records = list(self._ring)
        return records if count is None else records[max(0, len(records) - count) :]

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take is lost
                file.close()

    def _write(self, line: StepLine | RequestLine) -> None:
        if self._file is None:
            return
        try:
            self._file.write(self._encoder.encode(line) + b"\n")
        except OSError as error:
            self._give_up(error)

    def _flush(self) -> None:
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """A full disk must not stop the engine."""
        logger.error("record %s ends here: %s", self._file.name if self._file else "", error.strerror)
        self.close()


def read_record(path: Path) -> Record:
    """What a Recorder wrote; a last line that is still being written is left out. Raises ProfileError."""
    decoder = msgspec.json.Decoder(StepLine | RequestLine)
    record = Record([], [])
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                match _decoded(decoder, line, path, number):
                    case StepLine() as step:
                        record.steps.append(step.record)
                    case RequestLine() as request:
                        record.requests.append(request)
    except OSError as error:
        raise ProfileError(f"record {path} cannot be read: {error.strerror}") from error
    return record


def _decoded(
    decoder: msgspec.json.Decoder[StepLine | RequestLine], line: bytes, path: Path, number: int
) -> StepLine | RequestLine:
    try:
        return decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise ProfileError(f"record {path} is damaged in line {number}: {error}") from error
