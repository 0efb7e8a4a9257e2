"""GBNF, the grammars of llama.cpp, as Lark."""

from __future__ import annotations

from typing import Final

from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

from forebay.structured.refusal import Refusal

_DEFINED: Final = "::="
_MAX_RULES: Final = 500  # the converter's time goes with their square: 0.2 s for so many


def is_gbnf(source: str) -> bool:
    """Lark writes `name:`, GBNF `name ::=`."""
    return _DEFINED in source


def lark_of_gbnf(source: str) -> str:
    """Refusal: not GBNF, too many rules, or one that cannot be carried over."""
    if source.count(_DEFINED) > _MAX_RULES:
        raise Refusal(f"GBNF of more than {_MAX_RULES} rules; write it as Lark")
    try:
        return gbnf_to_lark(source)
    except RecursionError:
        raise Refusal("groups nested too deeply") from None
    except GbnfToLarkError as error:
        raise Refusal(f"not GBNF: {error}") from None
    except Exception as error:  # the converter raises plain exceptions for rules it does not find
        raise Refusal(f"this GBNF cannot be carried over to Lark: {error}") from None
