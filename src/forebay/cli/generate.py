"""forebay generate"""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.profile_flags import with_profile
from forebay.cli.sampling_flags import MaxTokens, MinP, Seed, Stop, Temperature, TopK, TopP
from forebay.profile import Profile

HELP = """Complete one prompt and print the text as it comes.

\b
Examples:
  forebay generate "The capital of France is" --temperature 0
  forebay generate ./model.gguf "Once upon a time" --max-tokens 100 --seed 7
  forebay generate --chat "Write a haiku about water."
  cat prompt.txt | forebay generate - --json
"""


def add(app: typer.Typer) -> None:
    app.command("generate", help=HELP)(with_profile(generate))


def generate(
    profile: Profile,
    words: Annotated[
        list[str],
        typer.Argument(metavar="[MODEL] PROMPT", help="The prompt, - to read it from stdin; a model before it."),
    ],
    chat: Annotated[bool, typer.Option(help="Send the prompt as a user's message, through the chat template.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object with text, token ids and seed instead.")
    ] = False,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 1.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    stop: Stop = None,
) -> None:
    import sys

    from forebay.cli.terminal import TerminalSession
    from forebay.core.sampling_params import SamplingParams

    model, prompt = _model_and_prompt(words)
    sampling = SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed,
        stop=tuple(stop or ()),
    )  # fmt: skip
    with TerminalSession(profile, model) as session:
        rendered = session.render([{"role": "user", "content": prompt}]) if chat else prompt
        answer = session.answer(rendered, sampling, add_special_tokens=not chat, show=not as_json)
    if as_json:
        print(answer.as_json())
    elif answer.interrupted:
        sys.exit(130)


def _model_and_prompt(words: list[str]) -> tuple[str | None, str]:
    import sys

    if len(words) > 2:
        raise typer.BadParameter(f"expected [MODEL] PROMPT, got {len(words)} words; put the prompt in quotes")
    model = words[0] if len(words) == 2 else None
    return model, sys.stdin.read() if words[-1] == "-" else words[-1]
