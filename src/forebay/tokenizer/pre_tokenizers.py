r"""How a byte-level BPE cuts text into words before it merges, by GGUF's `tokenizer.ggml.pre`.

Each entry is a list of regular expressions (Oniguruma) applied one after the other: every match, and every stretch
between matches, becomes a piece of its own that the next one cuts further. The names are llama.cpp's, and so are the
cuts (src/llama-vocab.cpp), except where its engine cannot say what the model's own tokenizer.json does: letter case
outside ASCII (tekken, gpt-4o, youtu) and the ideographic space (deepseek-llm, deepseek-coder) go by the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.errors import UnsupportedModelError

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_NON_WORD = r" ?[^\s\p{L}\p{N}]+"
_NEWLINES_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_ASCII_SYMBOL = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_HAN_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HAN_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DIGIT = r"\p{N}"


def _case_words(contraction: str) -> str:
    """Words that end where lower case turns to upper case (camelCase gives two)."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{_UPPER}*{_LOWER}+{contraction}|{start}{_UPPER}+{_LOWER}*{contraction}"


def _llama3(numbers: str, *, letters: str = _LETTERS, non_word: str = _NON_WORD) -> str:
    return rf"{_CONTRACTION}|{letters}|{numbers}|{non_word}[\r\n]*|{_NEWLINES_SPACES}"


_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{_NON_WORD}|\s+(?!\S)|\s+"
_LLAMA3 = _llama3(r"\p{N}{1,3}")
_QWEN2 = _llama3(_DIGIT)
_TEKKEN = rf"{_case_words('')}|{_DIGIT}|{_NON_WORD}[\r\n/]*|{_NEWLINES_SPACES}"
_GPT4O = rf"{_case_words(_CONTRACTION + '?')}|\p{{N}}{{1,3}}|{_NON_WORD}[\r\n/]*|{_NEWLINES_SPACES}"
_DEEPSEEK3_WORDS = rf"{_ASCII_SYMBOL}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_SPACE_RUNS = "|".join(rf"\s{{{1 << n}}}(?!\S)" for n in range(9, 1, -1))  # 512, 256 ... 4
_CASED_LETTERS = (  # of deepseek-llm's tokenizer.json, which spells them out
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """patterns: see above. ignore_merges: a piece that is in the vocabulary is that token, whatever the merges say.
    add_bos: the default when the file does not say `tokenizer.ggml.add_bos_token`."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_LLAMA3_FAMILY = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _HAN_KANA, rf"{_DEEPSEEK3_WORDS}[\r\n]*|{_NEWLINES_SPACES}"))
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE_WORDS = r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    f"|[\u3105-\u312f]+|{_HAN_KANA}"
)

_BY_NAMES: dict[tuple[str, ...], PreTokenizer] = {
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"): _LLAMA3_FAMILY,
    ("dbrx", "smaug-bpe", "chatglm-bpe"): PreTokenizer((_LLAMA3,)),
    ("glm4", "glm5"): PreTokenizer((_LLAMA3,), ignore_merges=True),
    ("minicpm5",): PreTokenizer((r"\p{N}{1,3}", _llama3(r"\p{N}+")), ignore_merges=True),
    ("jais-2",): PreTokenizer(
        (rf"{_CONTRACTION}|{_LETTERS}|\p{{N}}{{1,3}}|{_NON_WORD}[\r\n]*|\s*[\r\n]+|{_SPACE_RUNS}|\s{{1,2}}(?!\S)|\s",)
    ),
    (
        "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum",
        "exaone4",
    ): PreTokenizer((_GPT2,)),
    (
        "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2",
    ): PreTokenizer((_DIGIT, _GPT2)),
    (
        "qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "hunyuan", "solar-open", "grok-2",
    ): PreTokenizer((_QWEN2,)),
    ("qwen35",): PreTokenizer(
        (_llama3(_DIGIT, letters=r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", non_word=r" ?[^\s\p{L}\p{M}\p{N}]+"),)
    ),
    ("laguna",): PreTokenizer((r"[^\n]+|[\n]+", _QWEN2)),
    ("ufakzeka",): PreTokenizer((rf"{_LETTERS}|{_DIGIT}|{_NON_WORD}[\r\n]*|{_NEWLINES_SPACES}",)),
    ("seed-coder",): PreTokenizer(
        (rf"{_CONTRACTION}|{_LETTERS}|{_DIGIT}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_NEWLINES_SPACES}",)
    ),
    ("bailingmoe", "bailingmoe2", "llada-moe"): PreTokenizer((_BAILING,)),
    ("exaone-moe",): PreTokenizer(
        (rf"{_CONTRACTION}|{_EXAONE_MOE_WORDS}|{_DIGIT}|{_NON_WORD}[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",)
    ),
    ("tekken",): PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"): PreTokenizer((_GPT4O,)),
    ("youtu",): PreTokenizer(
        (
            _YOUTU_SCRIPTS,
            rf"{_case_words(_CONTRACTION + '?')}|{_DIGIT}|{_NON_WORD}[\r\n/]*|{_NEWLINES_SPACES}",
        ),
        ignore_merges=True,
    ),
    ("deepseek-coder",): PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_HANGUL, _DIGIT)),
    ("deepseek-llm",): PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_CASED_LETTERS}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            _HAN_HANGUL,
            r"\p{N}+",
        )
    ),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"): _DEEPSEEK3,
    ("spark2_5",): PreTokenizer(
        (r"\p{N}{1,3}", _HAN_KANA, rf"{_DEEPSEEK3_WORDS}|[\r\n]|\s+(?!\S)|\s+", _DIGIT),
    ),
    ("falcon",): PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    ("bloom", "poro-chat", "gpt3-finnish"): PreTokenizer((_BLOOM,)),
    ("viking",): PreTokenizer((_BLOOM, _DIGIT)),
    ("default",): PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}  # fmt: skip

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: pre for names, pre in _BY_NAMES.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer llama.cpp calls `name`. UnsupportedModelError lists the known ones."""
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre is {name!r}, which is not known; use a model whose pre-tokenizer is one of: "
            + ", ".join(sorted(PRE_TOKENIZERS)),
            param="model",
        ) from None
