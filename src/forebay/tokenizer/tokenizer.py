"""A model's tokenizer: text to ids and back, and messages to text. Immutable, and safe to share between threads."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidValueError, ModelFormatError, UnsupportedFieldError
from forebay.tokenizer.chat_template import ChatTemplate, plain_json, template_messages
from forebay.tokenizer.detokenizer import PieceStream
from forebay.tokenizer.pieces import Pieces
from forebay.tokenizer.plain_text import ChatPrompt, SpelledTokens, cut_at

if TYPE_CHECKING:
    import tokenizers

EncodeText = Callable[[str], list[int]]  # special tokens in the text are recognized; none are added


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """prefix, suffix: ids that `add_special_tokens` puts around a text. names: "bos_token" -> "<s>", for templates."""

    bos_token_id: int | None = None
    eos_token_ids: frozenset[int] = frozenset()
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class Tokenizer:
    """vocab_size      ids are below this (a model's output layer may be padded to more)
    bos_token_id    None when the model has none
    eos_token_ids   a generation ends at any of these
    chat_template   source of the default template, or None
    tool_template   the same of the template for conversations with tools, which is mostly that one
    digest          sha256 (hex) of all that decides ids, text and prompts
    pieces          the bytes of each token
    longest         most bytes of a text that one token stands for, None where there is no limit
    """

    def __init__(
        self,
        encode_text: EncodeText,
        pieces: Pieces,
        special: SpecialTokens,
        *,
        vocab_size: int,
        templates: Mapping[str, str],
        identity: Iterable[bytes],
        longest: int | None = None,
    ) -> None:
        """identity: what `encode_text` and `pieces` were made from. templates: "default", "tool_use" -> jinja."""
        self._encode_text = encode_text
        self._special = special
        self._templates = {name: ChatTemplate(source) for name, source in templates.items()}
        self.pieces = pieces
        self.longest = longest
        self.vocab_size = vocab_size
        self.bos_token_id = special.bos_token_id
        self.eos_token_ids = special.eos_token_ids
        self.chat_template = templates.get("default")
        self.tool_template = templates.get("tool_use", self.chat_template)
        self._spelled = SpelledTokens(self.token_text(i) for i in pieces.special_ids)
        self.digest = _digest([*identity, *_settings(pieces, special, vocab_size, templates)])

    def encode(self, text: str | ChatPrompt, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`. Special tokens written out in it become their ids, but for those in a message of a chat.

        add_special_tokens: also put the model's BOS (or EOS) where it wants them; off for a chat, whose template has
        written them. InvalidValueError: the text has a lone surrogate, so it is not Unicode text.
        """
        first, *rest = (text,) if isinstance(text, str) else text.pieces
        check_unicode(first, "prompt")
        ids = [*self._encode_text(first), *(token for piece in rest for token in self.encode_more(piece))]
        return [*self._special.prefix, *ids, *self._special.suffix] if add_special_tokens else ids

    def encode_more(self, text: str) -> list[int]:
        """Ids of a text that goes on from another, to which no tokenizer adds a space of its own.

        Special tokens in it become their ids. Their bytes are those of `text`, if the vocabulary can write it.
        """
        wanted = text.encode()
        ids = self._encode_text(text)
        if b"".join(map(self.token_bytes, ids)) == wanted:
            return ids
        lead = self._encode_text("\n")
        behind = self._encode_text(f"\n{text}")
        rest = behind[len(lead) :]
        return rest if behind[: len(lead)] == lead and b"".join(map(self.token_bytes, rest)) == wanted else ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD, ids outside the vocabulary nothing."""
        stream = PieceStream(self.pieces, skip_special_tokens=skip_special_tokens)
        return stream.push(ids) + stream.finish()

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text: possibly part of a character, empty for an id outside the vocabulary."""
        return self.pieces[token_id]

    def token_text(self, token_id: int) -> str:
        """The token for people to read; part of a character is shown as OpenAI does, "bytes:\\xe2\\x80"."""
        piece = self.pieces[token_id]
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **template: Any) -> str:
        """The text of `chat_prompt`, for people."""
        return self.chat_prompt(messages, **template).text

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **template: Any) -> list[int]:
        """The token ids of `chat_prompt`."""
        return self.encode(self.chat_prompt(messages, **template), add_special_tokens=False)

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        now: datetime | None = None,
        **template_vars: Any,
    ) -> ChatPrompt:
        """The prompt of a conversation, by the model's chat template; encode it without add_special_tokens.

        tools: JSON schemas the model may call; a template named "tool_use" is taken when there is one.
        continue_final_message: end where the last message does, so that the output goes on from it.
        now: the time for strftime_now, by default the local time. template_vars: any further names templates know; a
        special token that they spell is plain text, as it is in messages and tools.
        InvalidValueError (param "messages"): the template refuses or fails. UnsupportedFieldError: no template.
        """
        template = self._templates.get("tool_use") if tools is not None else None
        template = template or self._templates.get("default")
        if template is None:
            raise UnsupportedFieldError(
                "messages: this model has no chat template; send a prompt to /v1/completions instead", param="messages"
            )
        given, offered = template_messages(messages), plain_json(tools, "tools")
        further = {name: plain_json(value, name) for name, value in template_vars.items()}
        mark = self._spelled.mark_for(given, offered, [*further.values()])
        if mark is not None:
            given, offered = self._spelled.marked(given, mark), self._spelled.marked(offered, mark)
            further = {name: self._spelled.marked(value, mark) for name, value in further.items()}
        end = secrets.token_hex(16)  # no template knows it
        variables = {
            **self._special.names,
            "documents": None,
            **further,
            "messages": _ending_with(given, end) if continue_final_message else given,
            "tools": offered,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        text = template.render(variables, now or datetime.now())
        check_unicode(text, "messages")
        if continue_final_message:
            text = _before(text, end)
        return ChatPrompt((text,) if mark is None else cut_at(text, mark))


def _ending_with(messages: list[dict[str, Any]], end: str) -> list[dict[str, Any]]:
    *before, last = messages
    content = last.get("content")
    if not isinstance(content, str):
        raise InvalidValueError("messages: the last message has no text that could be continued", param="messages")
    return [*before, last | {"content": content + end}]


def _before(text: str, end: str) -> str:
    prompt, found, _ = text.rpartition(end)
    if not found:
        raise UnsupportedFieldError(
            "messages: this model's chat template does not show the last message as it is, so no answer can continue "
            "it; end with a message of the user's",
            param="messages",
        )
    return prompt


def library_ids(library: tokenizers.Tokenizer, text: str) -> list[int]:
    """Ids of a text by the library, without special tokens around it. Its `encode` would hold up every other thread,
    for seconds if the text is long; its batch call does not."""
    return library.encode_batch_fast([text], add_special_tokens=False)[0].ids


def check_unicode(text: str, param: str) -> None:
    """InvalidValueError when `text` has a lone surrogate, which JSON can smuggle in as "\\ud800"."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(
            f"{param}: lone surrogate U+{ord(text[error.start]):04X} at character {error.start} is not text; remove it",
            param=param,
        ) from None


def checked_id(token_id: object, vocab_size: int, name: str) -> int:
    """A special token id from a model file. ModelFormatError when it is not one of the vocabulary's."""
    if isinstance(token_id, int) and not isinstance(token_id, bool) and 0 <= token_id < vocab_size:
        return token_id
    raise ModelFormatError(f"{name} is {token_id!r}, not an id below the vocabulary's {vocab_size}", param="model")


def _settings(pieces: Pieces, special: SpecialTokens, vocab_size: int, templates: Mapping[str, str]) -> Iterable[bytes]:
    yield repr((vocab_size, sorted(pieces.special_ids), pieces.strip_spaces, pieces.bare_first)).encode()
    yield repr((special.bos_token_id, sorted(special.eos_token_ids), special.prefix, special.suffix)).encode()
    yield repr(sorted(special.names.items())).encode()
    yield repr(sorted(templates.items())).encode()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))  # so that no two lists of parts read the same
        digest.update(part)
    return digest.hexdigest()
