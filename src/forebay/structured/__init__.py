"""Structured output: which tokens a JSON schema, pattern or grammar allows next, checked before it is compiled."""

from forebay.structured.check import check
from forebay.structured.compile_pool import CompileCounters, CompileLimits, CompilePool
from forebay.structured.grammar import Grammar, GrammarBackend, Matcher
from forebay.structured.limits import GrammarLimits

__all__ = [
    "CompileCounters",
    "CompileLimits",
    "CompilePool",
    "Grammar",
    "GrammarBackend",
    "GrammarLimits",
    "Matcher",
    "check",
]
