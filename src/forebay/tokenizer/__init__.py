"""Text to token ids and back, and conversations to prompts."""

from forebay.tokenizer.detokenizer import IncrementalDetokenizer
from forebay.tokenizer.load import load_tokenizer
from forebay.tokenizer.plain_text import ChatPrompt
from forebay.tokenizer.tokenizer import Tokenizer

__all__ = ["ChatPrompt", "IncrementalDetokenizer", "Tokenizer", "load_tokenizer"]
