"""forebay serve"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.profile_flags import with_profile
from forebay.cli.security_flags import CorsOrigins, KeysFile, NoAuth, TlsCert, TlsKey
from forebay.profile import Profile

HELP = """Serve a model over an OpenAI-compatible HTTP API.

When it is ready it prints a curl command that works. SIGTERM or Ctrl-C drains: running requests finish, new ones get
503, and the exit code is 0. A second signal stops at once.

\b
Examples:
  forebay serve
  forebay serve ./model.gguf --port 8001 --max-model-len 4096
  forebay serve hf:org/name@main --set scheduler.max_waiting=512
  forebay serve --profile production.toml --host 0.0.0.0 --api-keys keys.toml
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
    tool_format: Annotated[
        str | None,
        typer.Option(help="How the model writes tool calls, if its chat template does not tell.", metavar="NAME"),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="A file to append a JSON line to for each step and each request.", metavar="FILE"),
    ] = None,
    api_keys: KeysFile = None,
    no_auth: NoAuth = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    cors_origins: CorsOrigins = None,
) -> None:
    from forebay import env
    from forebay.observe.logs import configure_logs
    from forebay.server.auth import ApiKeys
    from forebay.server.cors import parse_origins
    from forebay.server.serve import serve as run
    from forebay.server.state import ServerSettings
    from forebay.server.tls import load_tls
    from forebay.structured.tools.registry import known_tool_format

    configure_logs(env.log_level(), "server")
    settings = ServerSettings(
        drain_timeout_s=drain_timeout,
        max_body_bytes=int(max_body_mib * 2**20),
        api_keys=None if api_keys is None else ApiKeys(api_keys),
        no_auth=no_auth,
        cors_origins=parse_origins(cors_origins or ()),
        tls=load_tls(tls_cert, tls_key),
        tool_format=None if tool_format is None else known_tool_format(tool_format),
    )
    raise typer.Exit(run(profile, host, port, settings, record))
