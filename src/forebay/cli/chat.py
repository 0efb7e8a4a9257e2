"""forebay chat"""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.profile_flags import with_profile
from forebay.cli.sampling_flags import MaxTokens, MinP, Seed, Temperature, TopK, TopP
from forebay.profile import Profile

HELP = """Talk to a model in the terminal.

/reset forgets the conversation, /exit (or Ctrl-D) leaves, Ctrl-C cancels an answer.

\b
Examples:
  forebay chat
  forebay chat ./model.gguf --system "You answer in one sentence." --temperature 0.3
"""


def add(app: typer.Typer) -> None:
    app.command("chat", help=HELP)(with_profile(chat))


def chat(
    profile: Profile,
    model: Annotated[str | None, typer.Argument(help="Whom to talk to.", show_default="smollm2-135m")] = None,
    system: Annotated[str | None, typer.Option(help="A system message before the conversation.")] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.7,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
) -> None:
    from forebay.cli.terminal import TerminalSession, converse
    from forebay.core.sampling_params import SamplingParams

    sampling = SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed
    )
    with TerminalSession(profile) as session:
        converse(session, sampling, system)
