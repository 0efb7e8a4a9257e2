"""forebay serve"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

HELP = """Serve a model over an OpenAI-compatible HTTP API.

When it is ready it prints a curl command that works. SIGTERM or Ctrl-C drains: running requests finish, new ones get
503, and the exit code is 0. A second signal stops at once.

\b
Examples:
  forebay serve
  forebay serve ./model.gguf --port 8001 --max-model-len 4096
  forebay serve hf:org/name@main --set scheduler.max_waiting=512
  forebay serve --profile production.toml --host 0.0.0.0
"""


def add(app: typer.Typer) -> None:
    app.command("serve", help=HELP)(with_profile(serve))


def serve(
    profile: Profile,
    model: Annotated[str | None, typer.Argument(help="What to serve.", show_default="smollm2-135m")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    drain_timeout: Annotated[
        float, typer.Option(help="Most seconds that running requests get to finish after SIGTERM.", min=0)
    ] = 30.0,
    max_body_mib: Annotated[float, typer.Option(help="Largest request body.", min=0.001, max=1024)] = 4.0,
    record: Annotated[
        Path | None,
        typer.Option(help="A file to append a JSON line to for each step and each request.", metavar="FILE"),
    ] = None,
) -> None:
    from forebay import env
    from forebay.observe.logs import configure_logs
    from forebay.server.serve import serve as run
    from forebay.server.state import ServerSettings

    configure_logs(env.log_level(), "server")
    settings = ServerSettings(drain_timeout_s=drain_timeout, max_body_bytes=int(max_body_mib * 2**20))
    raise typer.Exit(run(profile, host, port, settings, record))
