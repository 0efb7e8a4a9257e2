"""GBNF, the grammars of llama.cpp, as Lark."""

from __future__ import annotations

from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

from forebay.structured.refusal import Refusal


def is_gbnf(source: str) -> bool:
    """Lark writes `name:`, GBNF `name ::=`."""
    return "::=" in source


def lark_of_gbnf(source: str) -> str:
    """Refusal: not GBNF, or a rule that cannot be carried over."""
    try:
        return gbnf_to_lark(source)
    except RecursionError:
        raise Refusal("groups nested too deeply") from None
    except GbnfToLarkError as error:
        raise Refusal(f"not GBNF: {error}") from None
    except Exception as error:  # the converter raises plain exceptions for rules it does not find
        raise Refusal(f"this GBNF cannot be carried over to Lark: {error}") from None
