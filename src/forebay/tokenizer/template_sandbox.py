"""The jinja sandbox chat templates run in: jinja's own, with a budget for what one rendering may build and do.

A model file is not trusted, and a template can make much from little. Bounded, per rendering: the characters that
output, `~`, `+`, `*`, `%`, slices, methods and filters make (counted before they are made where an argument decides how
many; else right after, when there are at most about 12 times those of the input), the runs of loop bodies and calls,
and, looked at on some of these occasions, the CPU seconds of the thread. Not bounded: the time of one operation on
values within the budget, such as a sort or a search, and the bytes of a character (up to 4) or of a list's entry, which
counts as 8 characters (up to 64). So a hostile template can still cost some hundred megabytes, and seconds of a thread,
in every request: render off the event loop.
"""

from __future__ import annotations

import functools
import re
import string
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_CHARS = 1 << 26  # a prompt's text passes through several operations
MAX_CPU_SECONDS = 5.0
_STEP = 64  # characters that one run of a loop's body, or one call, counts as: a million are allowed
_ENTRY = 8  # and one entry of a list
_SPEND = "forebay spend"  # filter names with a space: no template can say them
_STEPS = "forebay step"
_LOOK_EVERY = 64  # times something is spent; looking at the clock is slow
_MAX_INT_BITS = 4096
_PRINTF = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")
_NOT_FOR_PROMPTS = ("urlize", "xmlattr", "pprint", "wordwrap")
_OF_LISTS = frozenset({
    "abs", "attr", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last",
    "length", "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse", "round", "select", "selectattr",
    "slice", "sort", "sum", "unique",
})  # fmt: skip  # filters that do not turn their input into text

_budget: ContextVar[_Budget] = ContextVar("_budget")


class _Budget:
    def __init__(self) -> None:
        self.chars = MAX_CHARS
        self.looks = 0
        self.cpu_end = time.thread_time() + MAX_CPU_SECONDS


@contextmanager
def budget() -> Iterator[None]:
    """What runs inside shares one budget; SecurityError where it is spent."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def _spend(chars: int) -> int:
    left = _budget.get()
    left.chars -= max(chars, 0)
    if left.chars < 0:
        raise SecurityError(f"it builds more than {MAX_CHARS} characters, or loops for too long")
    left.looks += 1
    if left.looks % _LOOK_EVERY == 0 and time.thread_time() > left.cpu_end:
        raise SecurityError(f"it takes more than {MAX_CPU_SECONDS:g} seconds")
    return chars


def _length(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return _ENTRY * len(value) if isinstance(value, list | tuple | dict) else 0


def _spend_text(value: Any, indent: int = 0, depth: int = 0) -> int:
    """Spend what str(value) has characters, or more; lists that share entries can have far more than memory holds."""
    spent = 0
    if isinstance(value, str | bytes):
        return _spend(len(value))
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, Mapping):
        spent = sum(_spend_text(key) for key in value)
        value = list(value.values())
    if isinstance(value, Collection) and not isinstance(value, Undefined | range):
        spent += sum(_spend_text(item, indent, depth + 1) for item in value)
    return spent + _spend(_ENTRY + indent * depth + (value.bit_length() // 3 if isinstance(value, int) else 0))


def _printf(text: str, *args: Any, **kwargs: Any) -> int:
    """Characters of text % args. A width that is itself an argument is refused."""
    fields = [match.groups("") for match in _PRINTF.finditer(text)]
    if any("*" in sizes for sizes in fields):
        raise SecurityError("a width of * is not allowed in a chat template")
    widths = sum(int(size) for sizes in fields for size in sizes if size)
    return widths + len(fields) * _spend_text((args, kwargs))


def _format(text: str, *args: Any, **kwargs: Any) -> int:
    """Characters of text.format(*args, **kwargs)."""
    specs = [spec for _, _, spec, _ in string.Formatter().parse(text) if spec is not None]
    if any("{" in spec for spec in specs):
        raise SecurityError("a format in a format is not allowed in a chat template")
    widths = sum(int(size) for spec in specs for size in re.findall(r"\d+", spec))
    return widths + len(specs) * _spend_text((args, kwargs))


def _translate(text: str, table: object) -> int:
    raise SecurityError("translate is not allowed in a chat template")


def _sum(items: object, attribute: object = None, start: object = 0) -> int:
    if not isinstance(start, int | float):
        raise SecurityError("sum is for numbers in a chat template")
    return 0


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | str | None = None, *_: Any, **__: Any) -> int:
    return _spend_text(value, len(indent) if isinstance(indent, str) else indent) if indent else 0


def _width_of(width: int | str) -> int:
    return len(width) if isinstance(width, str) else width


# What a method or filter may make, from its arguments; those that are not here make a small multiple of their input.
_METHODS: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), lambda text, width, *_: width),
    "expandtabs": lambda text, tabsize=8: text.count("\t") * tabsize,
    "replace": lambda text, old, new, count=None: text.count(old) * len(new),
    "join": lambda text, parts: len(text) * len(parts) + sum(map(_length, parts)),
    **dict.fromkeys(
        ("split", "rsplit"), lambda text, sep=None, *_, **__: _ENTRY * (text.count(sep) if sep else len(text) // 2)
    ),
    "splitlines": lambda text, *_, **__: _ENTRY * len(text),
    "format": _format,
    "format_map": lambda text, mapping: _format(text, **mapping),
    "translate": _translate,
}
_FILTERS: dict[str, Callable[..., int]] = {
    "center": lambda text, width=80: width,
    "indent": lambda text, width=4, *_, **__: (str(text).count("\n") + 1) * _width_of(width),
    "replace": lambda text, old, new, count=None: str(text).count(str(old)) * len(str(new)),
    "join": lambda parts, d="", attribute=None: len(parts) * len(str(d)),
    "format": lambda text, *args, **kwargs: _printf(str(text), *args, **kwargs),
    "list": lambda value: _ENTRY * len(value) if isinstance(value, str) else 0,
    "batch": lambda items, linecount, fill_with=None: _ENTRY * linecount,
    "slice": lambda items, slices, fill_with=None: 8 * _ENTRY * slices,
    "sum": _sum,
    "tojson": _tojson,
}


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that spends before and after it works."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0  # before it comes what jinja passes of its own
    rule = _FILTERS.get(name)

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value = list(args[first]) if name == "join" else args[first]
        if name not in _OF_LISTS and not isinstance(value, str):
            _spend_text(value)
        if rule is not None:
            _spend(rule(value, *args[first + 1 :], **kwargs))
        result = function(*args[:first], value, *args[first + 1 :], **kwargs)
        _spend(_length(result))
        return result

    return bounded


@pass_context  # so that jinja does not compute it, or what holds it, when it compiles
def _spend_value(context: Context, value: Any) -> Any:
    _spend_text(value)
    return value


@pass_context
def _spend_steps(context: Context, chars: int) -> str:
    _spend(chars)
    return ""


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Charges(NodeTransformer):
    """Writes the spending into a template where the sandbox has no hook: its own text, loops, ~ and slices."""

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802 (jinja's name)
        self.generic_visit(node)
        chars = sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))
        node.nodes.insert(0, self._steps(node, chars))
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, nodes.Output([self._steps(node, _STEP)], lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.Or(self._steps(node, _STEP), node.test, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, _SPEND) for part in node.nodes]
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, _SPEND) if isinstance(node.arg, nodes.Slice) else node

    def _steps(self, node: nodes.Node, chars: int) -> nodes.Filter:
        return _filtered(nodes.Const(chars, lineno=node.lineno), _STEPS)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment; compile with it, and render inside `budget()`."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(optimized=False, finalize=_spend_value, **options)
        self.filters.update(filters)
        for name in _NOT_FOR_PROMPTS:
            del self.filters[name]
        for name, function in self.filters.items():
            self.filters[name] = _bounded(name, function)
        self.filters |= {_SPEND: _spend_value, _STEPS: _spend_steps}
        del self.globals["lipsum"]

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Charges().visit(source), *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (isinstance(left, int | float) and abs(left) <= 1e6 and abs(right) <= 64):
            raise SecurityError("a power this large is not allowed in a chat template")
        if operator == "*":
            if isinstance(left, int) and isinstance(right, int):
                if left.bit_length() + right.bit_length() > _MAX_INT_BITS:
                    raise SecurityError("a number this large is not allowed in a chat template")
            else:
                for many, count in ((left, right), (right, left)):
                    _spend(_length(many) * count if isinstance(count, int) else 0)
        elif operator == "%" and isinstance(left, str):
            _spend(_printf(left, right))
        elif operator == "+":
            _spend(_length(left) + _length(right))
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (jinja's)
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(owner, str) and name in _METHODS:
            args = (list(args[0]),) if name == "join" and len(args) == 1 else args
            given = {key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")}  # jinja's
            _spend(_METHODS[name](owner, *args, **given))
        _spend(_STEP)
        result = super().call(__context, __obj, *args, **kwargs)
        _spend(_length(result))
        return result
