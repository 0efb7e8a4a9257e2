"""OpenAI's endpoints: the field table, parsing, completions, chat completions, responses, models, tokenize."""
