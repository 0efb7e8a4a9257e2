"""From sampling parameters to LogitEdits: penalties, biases, lists of tokens, min_tokens, grammars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay.core.step import ScheduledRequest
from forebay.ops.protocol import I32Array, LogitEdits
from forebay.ops.tensor import F32Array

SCORED = -1  # index of a row that scores a token of the prompt: nothing is drawn, nothing is changed
MaskArray = npt.NDArray[np.uint32]
Entries = tuple[I32Array, I32Array, F32Array]  # token, count, bias


def has_edits(request: ScheduledRequest) -> bool:
    """Whether a row of this request may need any."""
    s = request.sampling
    return (
        request.history is not None
        or request.guide is not None
        or bool(s.logit_bias)
        or bool(s.bad_token_ids)
        or s.allowed_token_ids is not None
        or request.output_position < s.min_tokens
    )


def logit_edits(rows: Sequence[tuple[ScheduledRequest, int]], vocab_size: int) -> LogitEdits | None:
    """Edits of the logit rows (request, index of the sampled row within the request or SCORED); None if there are none.

    Row i of a request follows its first i drafts, and is for output position `output_position + i`.
    """
    if not any(has_edits(request) for request, _ in rows):
        return None
    entries = [_entries(request, index) for request, index in rows]
    ends = np.cumsum([0] + [len(token) for token, _, _ in entries], dtype=np.int32)
    token, count, bias = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    masks, mask = _masks(rows, vocab_size)
    sampling = [request.sampling for request, _ in rows]
    return LogitEdits(
        start=ends,
        token=token,
        count=count,
        bias=bias,
        repetition=np.array([s.repetition_penalty for s in sampling], np.float32),
        presence=np.array([s.presence_penalty for s in sampling], np.float32),
        frequency=np.array([s.frequency_penalty for s in sampling], np.float32),
        masks=masks,
        mask=mask,
    )


def _entries(request: ScheduledRequest, index: int) -> Entries:
    """Penalties first, then biases, then bars."""
    if index == SCORED:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    sampling = request.sampling
    barred = list(sampling.bad_token_ids)
    if request.output_position + index < sampling.min_tokens:
        barred += sorted(request.end_token_ids)
    biased = np.array([*sampling.logit_bias, *barred], np.int32)
    bias = np.array([*sampling.logit_bias.values()] + [-np.inf] * len(barred), np.float32)
    if request.history is None:
        return biased, np.full(len(biased), -1, np.int32), bias
    seen, count = _seen(request, index)
    return (
        np.concatenate([seen, biased]),
        np.concatenate([count, np.full(len(biased), -1, np.int32)]),
        np.concatenate([np.zeros(len(seen), np.float32), bias]),
    )


def _seen(request: ScheduledRequest, index: int) -> tuple[I32Array, I32Array]:
    """Tokens and counts after the request's first `index` drafts."""
    assert request.history is not None
    ids, counts = np.frombuffer(request.history.ids, np.int32), np.frombuffer(request.history.counts, np.int32)
    drafts = request.draft_token_ids[:index]
    if not drafts:
        return ids.copy(), counts.copy()  # an array that is looked at cannot grow
    by_token = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    for token in drafts:
        by_token[token] = by_token.get(token, 0) + 1
    return np.array([*by_token], np.int32), np.array([*by_token.values()], np.int32)


def _masks(rows: Sequence[tuple[ScheduledRequest, int]], vocab_size: int) -> tuple[MaskArray, I32Array]:
    """One mask for each row that has one, and which row has which."""
    masks: list[MaskArray] = []
    mask = np.full(len(rows), -1, np.int32)
    for row, (request, index) in enumerate(rows):
        found = None if index == SCORED else _mask_of(request, index, vocab_size)
        if found is not None:
            mask[row] = len(masks)
            masks.append(found)
    return np.array(masks, np.uint32).reshape(len(masks), -(-vocab_size // 32)), mask


def _mask_of(request: ScheduledRequest, index: int, vocab_size: int) -> MaskArray | None:
    allowed = request.sampling.allowed_token_ids
    listed = None if allowed is None else _listed(allowed, vocab_size)
    if request.guide is None:
        return listed
    words = np.zeros(-(-vocab_size // 32), np.uint32)
    request.guide.fill(words, request.draft_token_ids[:index])
    return words if listed is None else words & listed


def _listed(ids: tuple[int, ...], vocab_size: int) -> MaskArray:
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[list(ids)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)
