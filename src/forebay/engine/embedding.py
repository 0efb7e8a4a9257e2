"""Embeddings: the final hidden state of a prompt's last token, its first dimensions over their Euclidean length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from forebay.core.messages import AddRequest
from forebay.engine.input_processor import InputProcessor, Prompt, new_request_id
from forebay.errors import InvalidValueError, RequestError
from forebay.ops.tensor import F32Array


def check_dimensions(dimensions: int | None, hidden_size: int) -> int:
    """How many dimensions an embedding has; None: all. Raises InvalidValueError."""
    if dimensions is None:
        return hidden_size
    if type(dimensions) is not int or not 1 <= dimensions <= hidden_size:
        raise InvalidValueError(
            f"dimensions must be an integer from 1 to {hidden_size}, the size of this model's hidden state, got "
            f"{dimensions!r:.80}",
            param="dimensions",
        )
    return dimensions


def hidden_requests(
    inputs: InputProcessor,
    prompts: Sequence[Prompt],
    *,
    field: str,
    add_special_tokens: bool = True,
    request_id: str | None = None,
    tenant: str = "",
    cache_salt: str = "",
    received_ns: int | None = None,
) -> list[AddRequest]:
    """A request for the hidden state of each prompt. field: what the caller calls the prompts, for errors.
    request_id: what theirs begin with. Raises as InputProcessor.hidden_request does."""
    prefix, requests = request_id or new_request_id(), list[AddRequest]()
    for index, prompt in enumerate(prompts):
        try:
            request = inputs.hidden_request(
                prompt,
                add_special_tokens=add_special_tokens,
                request_id=f"{prefix}-{index}",
                tenant=tenant,
                cache_salt=cache_salt,
                received_ns=received_ns,
            )
        except RequestError as error:
            where = field if len(prompts) == 1 else f"{field}[{index}]"
            raise type(error)(error.message, param=where) from None
        requests.append(request)
    return requests


def embedding(hidden: bytes, dimensions: int) -> F32Array:
    """The embedding (dimensions,) float32 of a hidden state (float32, little-endian).

    The same bits on every machine: squares of float32 are exact in float64, and their sum is rounded once. Shorter
    embeddings are the first dimensions of longer ones, at length 1 again, as models trained for it expect (Matryoshka
    Representation Learning, arXiv:2205.13147).
    """
    x = np.frombuffer(hidden, "<f4")[:dimensions].astype(np.float64)
    length = math.sqrt(math.fsum((x * x).tolist()))
    return (x / length if length else x).astype(np.float32)
