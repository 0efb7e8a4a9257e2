"""What a reader sees of given engine outputs: text, stop strings, alignment, merging. The tokenizer is a real one."""

from __future__ import annotations

import pytest

from forebay.core.messages import AddRequest, EngineOutputs, Event, RequestOutput
from forebay.core.outputs import CompletionChunk
from forebay.core.sampling_params import SamplingParams
from forebay.core.step import TokenLogprobs
from forebay.engine.frontend import TextModel
from forebay.engine.output_processor import MERGE_ABOVE, OutputProcessor, RequestStream
from forebay.errors import EngineDeadError, InvalidValueError, OverloadedError, RequestAbortedError
from forebay.observe.metrics import Metrics
from forebay.observe.recorder import Recorder

TEXT = "Once upon a time, there was a little girl named Lily."
FINISHED = (Event(kind="finished", t_ns=9),)


class Engine:
    """Stands where an engine would: hands given tokens, one per output, to an OutputProcessor."""

    def __init__(self, text_model: TextModel) -> None:
        self.tokenizer = text_model.tokenizer
        self.metrics = Metrics()
        self.outputs = OutputProcessor(text_model.tokenizer, self.metrics, Recorder())
        self.aborted: list[str] = []

    def open(self, n: int = 1, **sampling: object) -> RequestStream:
        params = SamplingParams(n=n, **sampling)  # type: ignore[arg-type]  # each test gives known fields
        request = AddRequest(request_id="r", prompt_token_ids=[1], sampling=params, max_tokens=99, seed=1, namespace="")
        return self.outputs.open(request)

    def say(self, *token_ids: int, child: int = 0, **fields: object) -> None:
        output = RequestOutput(request_id="r", child_index=child, token_ids=list(token_ids), **fields)  # type: ignore[arg-type]  # as above
        self.aborted += self.outputs.process(EngineOutputs(outputs=(output,)))

    def ids(self, text: str = TEXT) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture
def engine(text_model: TextModel) -> Engine:
    return Engine(text_model)


def read(stream: RequestStream) -> CompletionChunk:
    (chunk,) = stream.take()
    return chunk


def test_chunks_follow_steps(engine: Engine) -> None:
    stream = engine.open()
    ids = engine.ids()
    text = ""
    for token_id in ids:
        assert not stream.ready
        engine.say(token_id)
        chunk = read(stream)
        assert (chunk.token_ids, chunk.finish_reason) == ([token_id], None)
        text += chunk.text
    engine.say(2, finish_reason="stop", events=FINISHED, num_cached_tokens=16)
    last = read(stream)
    assert (last.token_ids, last.text, last.finish_reason) == ([2], "", "stop")  # EOS counts, and is no text
    assert (last.events, last.num_cached_tokens) == (FINISHED, 16)
    assert text == TEXT
    assert stream.done
    assert engine.outputs.num_open == 0


@pytest.mark.parametrize(("reason", "text"), [("stop", "Once"), ("length", "Once upon")])
def test_the_token_the_engine_stopped_at_is_no_text(engine: Engine, reason: str, text: str) -> None:
    """Even if its piece is printable; with another reason it is a token like any other."""
    stream = engine.open()
    engine.say(*engine.ids("Once upon"), finish_reason=reason)
    assert (read(stream).text, stream.done) == (text, True)


@pytest.mark.parametrize("together", [1, 3, 100])
@pytest.mark.parametrize("stop", ["little", "e was a li", "y.", " time, th", "O", "Lily"])
def test_a_stop_string_ends_the_text_before_it(engine: Engine, stop: str, together: int) -> None:
    """However many tokens come at a time (a step gives several when drafts are accepted)."""
    stream = engine.open(stop=(stop, "never"), logprobs=0)
    ids = engine.ids()
    shown, counted, logprobs = "", 0, 0
    for at in range(0, len(ids), together):
        step = ids[at : at + together]
        engine.say(*step, logprobs=[TokenLogprobs(-1.0)] * len(step))
        for chunk in stream.take():
            shown += chunk.text
            counted += len(chunk.token_ids)
            logprobs += len(chunk.logprobs or ())
            assert TEXT[: TEXT.index(stop)].startswith(shown)
    assert engine.aborted == ["r:0"]  # once
    engine.say(finish_reason="abort", events=FINISHED)
    last = read(stream)
    assert (last.finish_reason, last.text, last.events) == ("stop", "", FINISHED)
    assert shown == TEXT[: TEXT.index(stop)]
    assert counted == logprobs
    assert stop in engine.tokenizer.decode(ids[:counted])  # up to the token that completed it
    assert stop not in engine.tokenizer.decode(ids[: counted - 1])
    assert engine.metrics.value("forebay_requests_finished", "stop") == 1


def test_a_stop_string_completed_by_the_last_token(engine: Engine) -> None:
    stream = engine.open(stop=("Lily.",))
    engine.say(*engine.ids(), finish_reason="length")
    chunk = read(stream)
    assert (chunk.text, chunk.finish_reason) == (TEXT.removesuffix("Lily."), "stop")
    assert engine.aborted == []
    assert engine.metrics.value("forebay_requests_finished", "stop") == 1


def test_text_that_could_have_become_a_stop_string_is_flushed_at_the_end(engine: Engine) -> None:
    stream = engine.open(stop=("Lily. She",))
    engine.say(*engine.ids())
    assert read(stream).text == TEXT.removesuffix("Lily.")
    engine.say(finish_reason="length")
    assert (read(stream).text, stream.done) == ("Lily.", True)


def test_a_reader_that_falls_behind_gets_one_chunk_per_child(engine: Engine) -> None:
    stream = engine.open(n=2, logprobs=0)
    ids = engine.ids()
    for token_id in ids:
        for child in (0, 1):
            engine.say(token_id, child=child, logprobs=[TokenLogprobs(-float(token_id))])
    engine.say(child=1, finish_reason="length", events=FINISHED)
    first, second = stream.take()
    assert (first.index, first.text, first.token_ids, first.finish_reason) == (0, TEXT, ids, None)
    assert (second.index, second.text, second.finish_reason, second.events) == (1, TEXT, "length", FINISHED)
    assert second.logprobs == [TokenLogprobs(-float(token_id)) for token_id in ids]
    assert not stream.ready


def test_a_reader_that_stalls_costs_one_chunk_now_and_then(engine: Engine) -> None:
    stream = engine.open()
    for _ in range(1000):
        engine.say(403, 407)
    assert len(stream._unread[0]) <= MERGE_ABOVE
    assert read(stream).token_ids == [403, 407] * 1000


def test_half_a_character_waits(engine: Engine) -> None:
    stream = engine.open()
    kanji = engine.ids("漢")  # three byte tokens after the space
    assert len(kanji) >= 3
    for token_id in kanji[:-1]:
        engine.say(token_id)
    assert "�" not in read(stream).text
    engine.say(kanji[-1])
    assert read(stream).text == "漢"
    engine.say(kanji[-3])
    engine.say(finish_reason="length")
    assert read(stream).text == "�"


def test_errors_end_the_stream_after_what_was_said(engine: Engine) -> None:
    stream = engine.open(n=2)
    engine.say(403, child=1)
    engine.say(finish_reason="error", error_code="numerics", error="NaN")
    assert engine.aborted == ["r:1"]  # the sibling has nobody to read it
    assert len(stream.take()) == 1
    with pytest.raises(Exception, match="NaN") as caught:
        stream.take()
    assert caught.value.label == "numerics"  # type: ignore[attr-defined]  # a ForebayError
    engine.say(child=1, finish_reason="abort")
    assert engine.outputs.num_open == 0
    assert engine.metrics.value("forebay_requests_finished", "error") == 1
    assert engine.metrics.value("forebay_requests_finished", "abort") == 1


def test_refusal_abort_and_death(engine: Engine) -> None:
    stream = engine.open(n=2)
    for child in (0, 1):
        engine.say(child=child, finish_reason="error", error_code="overloaded", error="full", retry_after=2.5)
    with pytest.raises(OverloadedError) as caught:
        stream.take()
    assert caught.value.retry_after == 2.5
    assert engine.metrics.value("forebay_requests_refused", "overloaded") == 1

    stream = engine.open()
    engine.say(finish_reason="abort", error="aborted (operator)")
    with pytest.raises(RequestAbortedError, match="operator"):
        stream.take()

    stream = engine.open()
    engine.outputs.fail_all(EngineDeadError("gone"))
    with pytest.raises(EngineDeadError):
        stream.take()
    assert engine.outputs.num_open == 0


def test_a_closed_stream_is_aborted_once_and_still_counted(engine: Engine) -> None:
    engine.open(n=2)
    engine.say(finish_reason="length", child=0)
    assert engine.outputs.close("r") == ["r:1"]
    assert engine.outputs.close("r") == []
    with pytest.raises(InvalidValueError, match="in use"):
        engine.open()
    engine.say(403, child=1)
    engine.say(finish_reason="abort", child=1)
    assert engine.outputs.num_open == 0
    assert engine.metrics.value("forebay_requests_finished", "abort") == 1
    engine.open()
