"""Errors in the client's own words: what the engine calls max_tokens may have come as max_completion_tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from forebay.errors import RequestError, UnknownFieldError

Names = Mapping[str, str]  # the engine's name of a field -> the client's, where it is another
Paths = Mapping[str, str]  # the same of paths: a regular expression -> what replaces it


@contextmanager
def naming(names: Names, *, prompt: str = "prompt", paths: Paths | None = None) -> Iterator[None]:
    """RequestErrors of the block with the client's names, in `param` and message. prompt: a prompt in `param`."""
    try:
        yield
    except UnknownFieldError:
        raise  # the client's own word
    except RequestError as error:
        message = error.message
        for ours, theirs in names.items():
            message = re.sub(rf"\b{ours}\b", theirs, message)
        param = prompt if error.param == "prompt" else names.get(error.param or "", error.param)
        for ours, theirs in (paths or {}).items():
            message, param = re.sub(ours, theirs, message), re.sub(ours, theirs, param or "") or None
        raise type(error)(message, param=param) from None
