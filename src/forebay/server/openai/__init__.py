"""OpenAI's endpoints: the field table, parsing, completions, chat completions, models, tokenize."""
