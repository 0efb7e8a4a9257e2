"""One step on one device."""

from __future__ import annotations

import numpy as np

from forebay.core.kv_spec import KVSpec
from forebay.core.step import ModelOutput, SampledRequest, ScheduledRequest, SchedulerOutput, TokenLogprobs
from forebay.errors import InvalidValueError, NumericsError
from forebay.ops.protocol import Plan, StepOutputs
from forebay.ops.tensor import F32Array
from forebay.runner.input_batch import build_step_batch


class ModelRunner:
    """Runs a Plan. A pure function of its input and the KV cache: it keeps no state of any request."""

    def __init__(self, plan: Plan, kv: KVSpec, vocab_size: int) -> None:
        self._plan = plan
        self._kv = kv
        self._vocab_size = vocab_size

    def execute(self, scheduled: SchedulerOutput) -> ModelOutput:
        """Compute the step's tokens, sample, and accept drafts that equal what was sampled."""
        outputs = self._plan.run(build_step_batch(scheduled.requests, self._kv, self._vocab_size))
        tokens, ok = outputs.token.tolist(), outputs.ok.tolist()
        hidden = iter(() if outputs.hidden is None else outputs.hidden)
        row = 0
        results = []
        for request in scheduled.requests:
            first = row + len(request.scored_token_ids)
            end = first + request.num_sampled
            state = next(hidden) if request.wants_hidden else None
            if not all(ok[row:end]):
                results.append(_failed(request))
            elif state is not None:
                results.append(_hidden(request, state))
            elif min(tokens[first:end], default=0) < 0:
                results.append(_nothing_left(request))
            else:
                results.append(_result(request, tokens[first:end], outputs, row))
            row = end
        return ModelOutput(step=scheduled.step, requests=tuple(results))

    def close(self) -> None:
        self._plan.close()


def _failed(request: ScheduledRequest) -> SampledRequest:
    message = f"the model produced NaN or infinite logits at output position {request.output_position}"
    return SampledRequest(request_id=request.request_id, token_ids=[], error_code=NumericsError.code, error=message)


def _hidden(request: ScheduledRequest, state: F32Array) -> SampledRequest:
    if not np.isfinite(state).all():
        return _failed(request)
    return SampledRequest(request_id=request.request_id, token_ids=[], hidden=state.astype("<f4").tobytes())


def _nothing_left(request: ScheduledRequest) -> SampledRequest:
    error = None if request.guide is None else request.guide.error
    if error is not None:
        return SampledRequest(
            request_id=request.request_id,
            token_ids=[],
            error_code=error.code,
            error=error.message,
            error_param=error.param,
        )
    message = (
        f"no token may be chosen at output position {request.output_position}: allowed_token_ids, bad_token_ids, "
        "min_tokens and the grammar leave none; relax one of them"
    )
    return SampledRequest(request_id=request.request_id, token_ids=[], error_code=InvalidValueError.code, error=message)


def _result(request: ScheduledRequest, sampled: list[int], outputs: StepOutputs, row: int) -> SampledRequest:
    """What was scored and sampled for a request whose first row is `row`."""
    accepted = _accepted(request, sampled) if request.draft_token_ids else sampled
    first = row + len(request.scored_token_ids)
    logprobs, count = None, request.sampling.logprobs
    if count is not None:
        logprobs = [_logprobs(outputs, first + i, count) for i in range(len(accepted))]
    scored = [_logprobs(outputs, i, request.sampling.prompt_logprobs or 0) for i in range(row, first)]
    return SampledRequest(request_id=request.request_id, token_ids=accepted, logprobs=logprobs, prompt_logprobs=scored)


def _accepted(request: ScheduledRequest, sampled: list[int]) -> list[int]:
    """Drafts are kept while each equals the token sampled in its place; then one more token is ours."""
    for index, draft in enumerate(request.draft_token_ids[: len(sampled) - 1]):
        if draft != sampled[index]:
            return sampled[: index + 1]
    return sampled


def _logprobs(outputs: StepOutputs, row: int, count: int) -> TokenLogprobs:
    top = tuple(zip(outputs.top_ids[row, :count].tolist(), outputs.top_logprobs[row, :count].tolist(), strict=True))
    return TokenLogprobs(float(outputs.logprob[row]), tuple(pair for pair in top if pair[0] >= 0))
