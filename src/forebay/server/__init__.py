"""The HTTP face: OpenAI's completions, chat completions, responses and embeddings, and Anthropic's messages, over one
engine. See docs/server.md.

app        build_app: routes, error handlers, OpenAPI
gateway    the outermost layer: headers on every response, who gets in, the drain gate, requests in flight
auth       API keys, checked against key_file, which `forebay keys` writes; tenants: whose request it is, its cache salt
cors, tls  which web pages may call; https
head, http_protocol   limits on request line and headers
body       reading a request body within its limits
fields     how field tables are written
conversation   from a body with messages to an answer; answer: the shape of all answers, whole or as events
parts      a message as a row of reasoning, texts and calls
generation a parsed request on its way through the engine
streaming  server-sent events, and noticing that the client has gone
reply      plain JSON
errors     every error in the shape of the face that asked
models     the served model, likewise
health     health, ready, version, metrics
serve      the process: socket, engine, signals, drain, exit code
openai/    field tables, parsing, completions, chat, embeddings, tokenize; responses/ with tables of its own
anthropic/ field tables, parsing, messages, token counts, models, errors
"""
