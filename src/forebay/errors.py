"""The exception tree. Every error a user can meet is here, with its HTTP status, OpenAI error type and metric label.

ForebayError
|-- RequestError                  400  the request itself is wrong
|   |-- UnknownFieldError         400  a field we do not know
|   |-- InvalidValueError         400  a known field with a wrong type or value
|   |   `-- GrammarError          400  a schema, pattern or grammar that cannot be enforced
|   |-- UnsupportedFieldError     400  a known field that this server does not implement
|   |-- ContextLengthError        400  prompt + max_tokens can never fit
|   |-- BodyTooLargeError         413  the HTTP body is over the limit
|   |-- HeadersTooLargeError      431  request line and headers are over a limit
|   `-- NotFoundError             404  no such model or path
|-- AuthenticationError           401  no API key, or none that is known here
|-- OverloadedError               429  the waiting queue is full; carries retry_after seconds
|-- UnavailableError              503  not ready or draining
|   `-- EngineDeadError           503  the engine process is gone
|-- RequestAbortedError           499  the client or an operator cancelled
|-- InternalError                 500  our fault, this request only
|   `-- NumericsError             500  the model produced a NaN for this request
`-- SetupError                    exit code 2: the command cannot start
    |-- ProfileError              bad profile file or flag
    |-- ModelSourceError          a model source cannot be read or fetched
    |-- ModelFormatError          a model file is truncated, corrupt or hostile
    |-- UnsupportedModelError     an architecture, tensor type or tokenizer we do not know
    |-- MissingExtraError         an optional package is not installed
    |-- BenchError                a measurement cannot be made as asked
    `-- KeyFileError              the file of API keys cannot be used
"""

from __future__ import annotations

from typing import ClassVar


class ForebayError(Exception):
    """Base of all errors. `param` names the field at fault, when there is one."""

    http_status: ClassVar[int] = 500
    error_type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "error"
    label: ClassVar[str] = "internal"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestError(ForebayError):
    http_status = 400
    error_type = "invalid_request_error"
    code = "invalid_request"
    label = "bad_request"


class UnknownFieldError(RequestError):
    code = "unknown_field"
    label = "unknown_field"


class InvalidValueError(RequestError):
    code = "invalid_value"
    label = "invalid_value"


class GrammarError(InvalidValueError):
    code = "unenforceable_grammar"
    label = "grammar"


class UnsupportedFieldError(RequestError):
    code = "unsupported_field"
    label = "unsupported_field"


class ContextLengthError(RequestError):
    code = "context_length_exceeded"
    label = "context_length"


class BodyTooLargeError(RequestError):
    http_status = 413
    code = "body_too_large"
    label = "body_too_large"


class HeadersTooLargeError(RequestError):
    http_status = 431
    code = "headers_too_large"
    label = "headers_too_large"


class NotFoundError(RequestError):
    http_status = 404
    error_type = "not_found_error"
    code = "not_found"
    label = "not_found"


class AuthenticationError(ForebayError):
    """`code` and `error_type` are OpenAI's own. No message holds a key."""

    http_status = 401
    error_type = "invalid_request_error"
    code = "invalid_api_key"
    label = "unauthorized"


class OverloadedError(ForebayError):
    """The waiting queue is full. `retry_after` is seconds, computed from measured throughput."""

    http_status = 429
    error_type = "rate_limit_error"
    code = "overloaded"
    label = "overloaded"

    def __init__(self, message: str, *, retry_after: float, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after


class UnavailableError(ForebayError):
    http_status = 503
    error_type = "unavailable_error"
    code = "unavailable"
    label = "unavailable"


class EngineDeadError(UnavailableError):
    code = "engine_dead"
    label = "engine_dead"


class RequestAbortedError(ForebayError):
    http_status = 499
    error_type = "aborted_error"
    code = "aborted"
    label = "aborted"


class InternalError(ForebayError):
    code = "internal_error"


class NumericsError(InternalError):
    code = "numerics"
    label = "numerics"


class SetupError(ForebayError):
    """The command cannot start; the CLI prints one line and exits with `exit_code`."""

    exit_code: ClassVar[int] = 2
    code = "setup"
    label = "setup"


class ProfileError(SetupError):
    code = "profile"
    label = "profile"


class ModelSourceError(SetupError):
    code = "model_source"
    label = "model_source"


class ModelFormatError(SetupError):
    code = "model_format"
    label = "model_format"


class UnsupportedModelError(SetupError):
    code = "unsupported_model"
    label = "unsupported_model"


class MissingExtraError(SetupError):
    code = "missing_extra"
    label = "missing_extra"

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingExtraError:
        """`extra` is the optional dependency group that holds `package`."""
        return cls(f"{purpose} needs {package}; install it with: pip install 'forebay[{extra}]'")


class BenchError(SetupError):
    code = "bench"
    label = "bench"


class KeyFileError(SetupError):
    code = "key_file"
    label = "key_file"


def error_named(code: str, message: str, *, param: str | None = None, retry_after: float = 1.0) -> ForebayError:
    """Rebuild an error from its `code` after it crossed a process boundary."""
    if code == OverloadedError.code:
        return OverloadedError(message, retry_after=retry_after, param=param)
    pending = [ForebayError]
    while pending:
        cls = pending.pop()
        if cls.__dict__.get("code") == code:
            return cls(message, param=param)
        pending.extend(cls.__subclasses__())
    return InternalError(message, param=param)
