"""OpenAI's Responses, the stateless part: field table, parsing, wording, handlers. See docs/responses.md."""
