"""How a tool format writes calls, as data from which `call_grammar` makes a grammar."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Regex:
    """Text that matches a pattern, in syntax common to Python and Rust's regex crate.

    pattern  all that the parser would take; this is what free text is searched for
    usual    what a grammar writes where a call has to come; "" stands for the pattern itself
    """

    pattern: str
    usual: str = ""


Part = str | Regex
Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Free text between two markers, so many times; after it white space, if `gap`.

    begin may be empty: the text has begun; end may be "": it ends all.
    """

    begin: Parts
    end: str
    at_least: int = 0
    at_most: int | None = 1
    gap: bool = False


@dataclass(frozen=True, slots=True)
class CallShape:
    """before spans, then calls (first call, following calls, end), or instead of calls something else.

    first, following  what stands before the arguments of the first and of every later call, `{name}` for the function
    close             what stands after the arguments of each call
    end               what stands after the last call
    python            arguments are written as in Python, a=1, b="x"; otherwise they are one JSON object
    before            free text that may come first, such as reasoning
    instead           where no call has to come, the only text there may be; None: any, in which first[0] begins a call
    one_call          a message can hold one call only
    """

    first: Parts
    following: Parts
    close: Parts
    end: Parts = ()
    python: bool = False
    before: tuple[Span, ...] = ()
    instead: Span | None = None
    one_call: bool = False
