"""The OpenAI-compatible endpoints: completions, chat completions, models, tokenize and detokenize."""
