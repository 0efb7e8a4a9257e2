"""Chat templates: messages to prompt text, by the model's own jinja template, sandboxed.

The environment is the one the templates are written for: Hugging Face transformers, utils/chat_template_utils.py, less
the filters that are not for prompts. tokenizer/template_sandbox.py says what of a hostile template is bounded, and what
is not: rendering may take seconds, so it belongs in a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro

from forebay.errors import InvalidValueError, UnsupportedFieldError
from forebay.tokenizer.template_sandbox import TemplateEnvironment, budget

MAX_RENDERED_CHARS = 1 << 24  # a prompt of more characters is refused; four million tokens are less
_MAX_SHOWN_CHARS = 300
_MAX_DEPTH = 64  # of objects in objects in messages and tools
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


class _RefusedError(Exception):
    """The template called raise_exception."""


class _Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks the assistant's text for training; here it renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return caller()


def _raise_exception(message: str) -> NoReturn:
    raise _RefusedError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """json.dumps, unlike jinja's own filter, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> TemplateEnvironment:
    environment = TemplateEnvironment(
        {"tojson": _tojson}, trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.globals["raise_exception"] = _raise_exception
    return environment


class ChatTemplate:
    """One template, compiled on first use.

    render() raises InvalidValueError (param "messages") for whatever goes wrong inside the template, be it a refusal by
    raise_exception or a TypeError, and UnsupportedFieldError when the template itself is not valid jinja.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def _compiled(self) -> jinja2.Template:
        try:
            return _environment().from_string(self.source)
        except (jinja2.TemplateError, RecursionError, SyntaxError, MemoryError) as error:  # the last: nested deeply
            line = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise UnsupportedFieldError(
                f"messages: this model's chat template does not compile{line}: {_shown(error)}; use a plain prompt",
                param="messages",
            ) from error

    def render(self, variables: Mapping[str, Any], now: datetime) -> str:
        """The prompt text. `now` is the time that strftime_now formats."""
        template = self._compiled
        parts: list[str] = []
        length = 0
        try:
            with budget():
                for part in template.generate({**variables, "strftime_now": now.strftime}):
                    parts.append(part)
                    length += len(part)
                    if length > MAX_RENDERED_CHARS:
                        raise _RefusedError(f"the prompt is longer than {MAX_RENDERED_CHARS} characters")
        except _RefusedError as error:
            raise InvalidValueError(
                f"messages: the chat template refuses them: {_shown(error)}", param="messages"
            ) from error
        except Exception as error:  # whatever a template can raise: the messages do not suit it
            raise InvalidValueError(
                f"messages: the chat template fails on them: {type(error).__name__}: {_shown(error)}", param="messages"
            ) from error
        return "".join(parts)


def template_messages(messages: object) -> list[dict[str, Any]]:
    """The messages as templates expect them, checked and copied.

    As transformers does: fields that are None are left out (templates would print "None"), and the names of the
    reasoning text are made one. InvalidValueError for anything that is not a list of JSON objects.
    """
    plain = plain_json(messages, "messages")
    if not isinstance(plain, list) or not plain:
        raise InvalidValueError("messages: give a list of at least one message", param="messages")
    result = []
    for i, message in enumerate(plain):
        if not isinstance(message, dict):
            raise InvalidValueError(f"messages[{i}]: a message is an object with role and content", param="messages")
        kept = {key: value for key, value in message.items() if value is not None}
        reasoning = next((kept[name] for name in _REASONING_FIELDS if name in kept), None)
        result.append(kept if reasoning is None else {"thinking": reasoning, **kept, "reasoning_content": reasoning})
    return result


def plain_json(value: object, path: str, depth: int = 0) -> Any:
    """A copy made of plain JSON types only, so that a template never holds an object with methods of its own."""
    if depth > _MAX_DEPTH:
        raise _not_json(path, f"nested more than {_MAX_DEPTH} deep")
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise _not_json(path, "keys must be strings")
        return {str(key): plain_json(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise _not_json(path, f"{type(value).__name__} is not JSON data")


def _not_json(path: str, problem: str) -> InvalidValueError:
    return InvalidValueError(f"{path[:_MAX_SHOWN_CHARS]}: {problem}", param=re.split(r"[.\[]", path)[0])


def _shown(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "..."
