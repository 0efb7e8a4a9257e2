"""The Python API: LLM runs the engine inside the calling thread, AsyncLLM talks to one in its own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from forebay.core.clock import MonotonicClock
from forebay.core.messages import AddRequest, Control, EngineInfo, EngineOutputs
from forebay.core.outputs import CompletionChunk, GenerateResult
from forebay.core.sampling_params import SamplingParams
from forebay.engine.async_engine import AsyncEngine
from forebay.engine.build import build_engine_core
from forebay.engine.collector import Collector
from forebay.engine.embedding import check_dimensions, embedding, hidden_requests
from forebay.engine.frontend import FrontEnd, TextModel
from forebay.engine.input_processor import Prompt
from forebay.engine.output_processor import RequestStream
from forebay.errors import InternalError, InvalidValueError, OverloadedError, UnavailableError
from forebay.observe.metrics import Metrics
from forebay.observe.recorder import Recorder
from forebay.ops.tensor import F32Array
from forebay.profile import Profile, load_profile
from forebay.tokenizer import ChatPrompt, Tokenizer
from forebay.weights.sources import resolve_source

Message = dict[str, Any]
DEFAULT_SAMPLING = SamplingParams()


def _profile(model: str | Path | None, profile: Profile | Path | None, overrides: dict[str, Any]) -> Profile:
    """A ready profile, or one from a file, with the model and settings given by name on top."""
    named = {**overrides, **({} if model is None else {"model.source": str(model)})}
    if not isinstance(profile, Profile):
        return load_profile(profile, named)
    if named:
        raise InvalidValueError("give either a Profile or settings by name, not both", param=next(iter(named)))
    return profile


class LLM:
    """A model to call from a script; one thread at a time.

    LLM("smollm2-135m").generate(["The sky is"], SamplingParams(max_tokens=8))
    LLM("model.gguf", threads=2, dtype="f32")  # any setting of a profile, by name
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        profile: Profile | Path | None = None,
        progress: bool = False,
        recorder: Recorder | None = None,
        **overrides: Any,
    ) -> None:
        """model: see `model.source` of a profile (None: the profile's). progress: show a download's progress.
        recorder: what keeps the records of steps and requests (None: the last steps, in memory).

        Raises SetupError subclasses.
        """
        resolved = _profile(model, profile, overrides)
        clock = MonotonicClock()
        text_model = TextModel.load(resolve_source(resolved.model.source, progress=progress))
        self._core = build_engine_core(resolved, clock=clock, wait_for_grammars=True)
        self._front = FrontEnd.build(text_model, self._core.info, clock, recorder)
        self._closed = False

    @property
    def info(self) -> EngineInfo:
        return self._front.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._front.tokenizer

    @property
    def metrics(self) -> Metrics:
        return self._front.metrics

    @property
    def recorder(self) -> Recorder:
        """The records of the last steps."""
        return self._front.recorder

    def stats(self) -> dict[str, Any]:
        """Counts of requests and blocks now."""
        return self._core.control(Control(call_id=0, op="stats")).result

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix, so that what follows is computed anew. False if the prefix cache is off."""
        return bool(self._core.control(Control(call_id=0, op="reset_prefix_cache")).result["done"])

    def run(
        self,
        prompts: Iterable[Prompt],
        sampling: SamplingParams | Iterable[SamplingParams] = DEFAULT_SAMPLING,
        *,
        concurrency: int | None = None,
        add_special_tokens: bool = True,
    ) -> Generator[tuple[int, GenerateResult], None, None]:
        """Complete prompts (text or token ids) as places become free; gives (index of its prompt, result) as each ends.

        A prompt is taken from `prompts` only when fewer than `concurrency` requests are open (None: when the engine's
        queue has room), so `prompts` may be endless, and so may `sampling`: for all, or one each. Closing the iterator
        aborts what is open, and so does a request that fails.
        Raises RequestError subclasses, InternalError, EngineDeadError.
        """
        if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
            raise InvalidValueError(
                f"concurrency must be an integer of at least 1, got {concurrency!r:.80}", param="concurrency"
            )
        each = [prompts] if isinstance(prompts, str | ChatPrompt) else prompts
        pairs = _with_sampling(each, sampling)
        return self._run((self._request(prompt, params, add_special_tokens) for prompt, params in pairs), concurrency)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] = DEFAULT_SAMPLING,
        *,
        add_special_tokens: bool = True,
        progress: bool = False,
    ) -> list[GenerateResult]:
        """Complete one prompt or many (text or token ids), batched; results are in the order of the prompts.

        sampling: for all prompts, or one each. All prompts are checked before the first is run. When one fails the
        others are aborted. Raises RequestError subclasses, InternalError, EngineDeadError.
        """
        each = _prompt_list(prompts)
        params = [sampling] * len(each) if isinstance(sampling, SamplingParams) else list(sampling)
        if len(params) != len(each):
            raise InvalidValueError(f"{len(each)} prompts but {len(params)} sampling parameters", param="sampling")
        requests = [self._request(p, s, add_special_tokens) for p, s in zip(each, params, strict=True)]
        results: dict[int, GenerateResult] = {}
        with _progress_bar(len(requests), shown=progress) as advance, closing(self._run(requests, None)) as finished:
            for index, result in finished:
                results[index] = result
                advance()
        return [results[index] for index in range(len(requests))]

    def chat(
        self, messages: list[Message], sampling: SamplingParams = DEFAULT_SAMPLING, **template: Any
    ) -> GenerateResult:
        """The answer to one conversation. template: tools and other arguments of Tokenizer.chat_prompt."""
        return self.generate(self.tokenizer.chat_prompt(messages, **template), sampling, add_special_tokens=False)[0]

    def stream(
        self, prompt: Prompt, sampling: SamplingParams = DEFAULT_SAMPLING, *, add_special_tokens: bool = True
    ) -> Generator[CompletionChunk, None, None]:
        """Chunks of the completions of one prompt as they come. Closing the iterator aborts the request."""
        request = self._request(prompt, sampling, add_special_tokens)
        stream = self._submit(request)
        assert stream is not None  # it may not wait: a full queue is an error of the stream
        try:
            while not stream.done:
                yield from stream.take()
                self._step_until([stream])
        finally:
            self._leave([request])

    def chat_stream(
        self, messages: list[Message], sampling: SamplingParams = DEFAULT_SAMPLING, **template: Any
    ) -> Generator[CompletionChunk, None, None]:
        """`chat`, as chunks."""
        return self.stream(self.tokenizer.chat_prompt(messages, **template), sampling, add_special_tokens=False)

    def embed(
        self, prompts: Prompt | Sequence[Prompt], dimensions: int | None = None, *, add_special_tokens: bool = True
    ) -> F32Array:
        """Embeddings (prompts, dimensions) float32 of one prompt or many, each of length 1.

        The final hidden state of the last token. dimensions: only the first ones (None: all of the hidden state).
        Raises InvalidValueError, ContextLengthError.
        """
        self._check_open()
        width = check_dimensions(dimensions, self.info.hidden_size)
        requests = hidden_requests(
            self._front.inputs, _prompt_list(prompts), field="prompts", add_special_tokens=add_special_tokens
        )
        rows = np.empty((len(requests), width), np.float32)
        with closing(self._run(requests, None)) as finished:
            for index, result in finished:
                rows[index] = embedding(result.completions[0].hidden or b"", width)
        return rows

    def close(self) -> None:
        """Release the model. Open streams end with UnavailableError."""
        if not self._closed:
            self._closed = True
            self._front.outputs.fail_all(UnavailableError("this LLM was closed"))
            self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("this LLM was closed; make a new one")

    def _request(self, prompt: Prompt, sampling: SamplingParams, add_special_tokens: bool) -> AddRequest:
        self._check_open()
        token_ids = self._front.inputs.tokenize(prompt, add_special_tokens=add_special_tokens)
        return self._front.inputs.request(token_ids, sampling)

    def _run(
        self, requests: Iterable[AddRequest], concurrency: int | None
    ) -> Generator[tuple[int, GenerateResult], None, None]:
        """`run`, of requests; the only loop over many."""
        coming, held = enumerate(requests), None
        live: dict[int, tuple[RequestStream, Collector]] = {}
        try:
            while True:
                while concurrency is None or len(live) < concurrency:
                    held = held or next(coming, None)
                    if held is None:
                        break
                    index, request = held
                    stream = self._submit(request, may_wait=bool(live))
                    if stream is None:
                        break  # the queue is full; again when one has ended
                    held, live[index] = None, (stream, Collector(request))
                if not live:
                    return
                self._step_until([stream for stream, _ in live.values()])
                yield from _take_finished(live)
        finally:
            self._leave([stream.request for stream, _ in live.values()])

    def _submit(self, request: AddRequest, *, may_wait: bool = False) -> RequestStream | None:
        """Give a request to the engine. None if `may_wait` and its queue is full: try again when one has ended."""
        refused = self._core.add(request) or self._core.collect()
        if refused and may_wait and refused[0].error_code == OverloadedError.code:
            return None
        stream = self._front.outputs.open(request)
        self._front.outputs.process(EngineOutputs(outputs=tuple(refused)))
        return stream

    def _step_until(self, streams: Collection[RequestStream]) -> None:
        """Step until one of the streams has something to say (several streams may be open at a time)."""
        while not any(stream.ready for stream in streams):
            message = self._core.step()
            if message is None:
                raise InternalError("the engine has nothing to do, but requests are open")
            self._abort(self._front.outputs.process(message), "stop")

    def _leave(self, requests: Iterable[AddRequest]) -> None:
        """Nobody reads these any more. An engine that is idle now says so, which sets the gauges."""
        for request in requests:
            self._abort(self._front.outputs.close(request.request_id), "client")
        if not (self._closed or self._core.has_work()) and (message := self._core.step()) is not None:
            self._front.outputs.process(message)

    def _abort(self, request_ids: list[str], reason: str) -> None:
        if request_ids:
            self._front.outputs.process(EngineOutputs(outputs=tuple(self._core.abort(request_ids, reason))))


class AsyncLLM:
    """The same model behind asyncio, with the engine in its own process.

    async with AsyncLLM("smollm2-135m") as llm:
        async for chunk in llm.stream("The sky is"):
            print(chunk.text, end="")
    """

    def __init__(
        self, model: str | Path | None = None, *, profile: Profile | Path | None = None, **overrides: Any
    ) -> None:
        self._profile = _profile(model, profile, overrides)
        self._engine: AsyncEngine | None = None

    @property
    def engine(self) -> AsyncEngine:
        """The engine behind it. Raises UnavailableError outside of `async with` (or start and close)."""
        if self._engine is None:
            raise UnavailableError("this AsyncLLM is not started; use `async with AsyncLLM(...) as llm`")
        return self._engine

    async def start(self) -> Self:
        """Start the engine process and wait until it is ready. Raises SetupError subclasses."""
        if self._engine is None:
            self._engine = await AsyncEngine.start(self._profile)
        return self

    async def generate(
        self, prompt: Prompt, sampling: SamplingParams = DEFAULT_SAMPLING, *, add_special_tokens: bool = True
    ) -> GenerateResult:
        """Complete one prompt. Await many at once to have them batched."""
        request = await self.engine.prepare(prompt, sampling, add_special_tokens=add_special_tokens)
        collector = Collector(request)
        async with aclosing(self.engine.stream(request)) as chunks:
            async for chunk in chunks:
                collector.add([chunk])
        return collector.result()

    async def chat(
        self, messages: list[Message], sampling: SamplingParams = DEFAULT_SAMPLING, **template: Any
    ) -> GenerateResult:
        """The answer to one conversation."""
        text = await asyncio.to_thread(self.engine.tokenizer.render_chat, messages, **template)
        return await self.generate(text, sampling, add_special_tokens=False)

    def stream(
        self, prompt: Prompt, sampling: SamplingParams = DEFAULT_SAMPLING, *, add_special_tokens: bool = True
    ) -> AsyncGenerator[CompletionChunk, None]:
        """Chunks of the completions of one prompt as they come. Closing the generator aborts the request."""
        return self.engine.generate(prompt, sampling, add_special_tokens=add_special_tokens)

    async def chat_stream(
        self, messages: list[Message], sampling: SamplingParams = DEFAULT_SAMPLING, **template: Any
    ) -> AsyncGenerator[CompletionChunk, None]:
        """`chat`, as chunks."""
        text = await asyncio.to_thread(self.engine.tokenizer.render_chat, messages, **template)
        async with aclosing(self.stream(text, sampling, add_special_tokens=False)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def embed(
        self, prompts: Prompt | Sequence[Prompt], dimensions: int | None = None, *, add_special_tokens: bool = True
    ) -> F32Array:
        """Embeddings of one prompt or many; see LLM.embed."""
        width = check_dimensions(dimensions, self.engine.info.hidden_size)
        requests = await self.engine.prepare_hidden(_prompt_list(prompts), add_special_tokens=add_special_tokens)
        found = [embedding(hidden, width) for hidden in await self.engine.hidden_states(requests)]
        return np.stack(found) if found else np.empty((0, width), np.float32)

    async def close(self) -> None:
        """End the engine process."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()


def _prompt_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or many as a list of prompts."""
    if isinstance(prompts, str | ChatPrompt):
        return [prompts]
    given: list[Any] = list(prompts)
    return [given] if given and isinstance(given[0], int) else given


def _with_sampling(
    prompts: Iterable[Prompt], sampling: SamplingParams | Iterable[SamplingParams]
) -> Iterator[tuple[Prompt, SamplingParams]]:
    """Each prompt with its sampling parameters, no earlier than asked for."""
    each = repeat(sampling) if isinstance(sampling, SamplingParams) else iter(sampling)
    for prompt in prompts:
        params = next(each, None)
        if params is None:
            raise InvalidValueError("there are more prompts than sampling parameters", param="sampling")
        yield prompt, params


def _take_finished(live: dict[int, tuple[RequestStream, Collector]]) -> Iterator[tuple[int, GenerateResult]]:
    """Read what the streams have to say, and take those that have ended out of `live`. Raises a request's error."""
    for stream, collector in live.values():
        if stream.ready:
            collector.add(stream.take())
    for index in [index for index, (stream, _) in live.items() if stream.done]:
        _, collector = live.pop(index)
        yield index, collector.result()


@contextmanager
def _progress_bar(total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    """Gives a function to call for each finished prompt."""
    if not shown:
        yield lambda: None
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("generating", total=total)
        yield lambda: bar.advance(task)
