"""What the words of a report mean, in short; docs/bench.md has the definitions."""

DEFINITIONS = (
    ("client_send", "The boundary of the client's latencies: the moment a request was meant to be sent. A client that "
     "is late to send it makes every latency longer, never shorter."),
    ("server_receive", "The boundary of the server's latencies: the moment its front end got the request."),
    ("TTFT", "Time to first token: from the boundary to the first chunk that bears tokens."),
    ("ITL", "Inter-token latency: the gap between one output token and the next. A chunk of k tokens is one gap, then "
     "k - 1 gaps of zero."),
    ("TPOT", "Time per output token of one request: from its first token to its last, divided by its tokens less one."),
    ("E2E", "The whole request: from the boundary to its end."),
    ("Queue", "From entering the scheduler's queue to the first admission."),
    ("Send lag", "How much later than meant the client sent a request."),
    ("Goodput", "Requests a second that were completed within the SLO."),
    ("SLO attained", "The share of requests within the SLO, of all but those cancelled on purpose. Failing is a miss."),
    ("Interval", "The bounds of a 95 % interval: of latencies by bootstrap over requests, of rates by Student's t over "
     "runs. A figure has no more digits than it justifies."),
    ("Step", "One pass of the engine's loop. Its tokens are of prompts (prefill) or the next ones of running requests "
     "(decode)."),
    ("Slack", "Slots of used KV blocks that hold no token."),
    ("Promised", "KV blocks that running requests may still take; they were reserved when the request was admitted."),
)  # fmt: skip
