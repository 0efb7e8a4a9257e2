"""The HTTP face: OpenAI's completions and chat completions over one engine. See docs/server.md.

app        build_app: routes, error handlers, OpenAPI
gateway    the outermost layer: headers on every response, the drain gate, requests in flight
body       reading a request body within its limits
streaming  server-sent events, and noticing that the client has gone
generation a parsed request on its way through the engine
reply      plain JSON
errors     every error in OpenAI's shape
health     health, ready, version, metrics
serve      the process: socket, engine, signals, drain, exit code
openai/    field table, parsing, completions, chat, models, tokenize
"""
