"""The commands in the documents run. A ```console block after `<!-- run -->` must exit with 0; after
`<!-- run: same output -->` it must also print what the document shows. Lines that start with `$ ` are commands."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from forebay.profile import load_profile
from tests.support.doc_tables import REPOSITORY, documents

_BLOCK = re.compile(r"<!-- run(: same output)? -->\n```console\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, bool, str]]:
    """(document:number, output compared, text) of every block that is marked."""
    found = []
    for path in documents():
        for i, match in enumerate(_BLOCK.finditer(path.read_text("utf-8"))):
            found.append((f"{path.relative_to(REPOSITORY)}:{i}", bool(match[1]), match[2]))
    return found


def commands(text: str) -> list[tuple[str, str]]:
    """(command, output shown) in order; a command goes on after a backslash."""
    joined = text.replace("\\\n", " ")
    parts = re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


@pytest.mark.parametrize(("name", "compared", "text"), [pytest.param(*block, id=block[0]) for block in blocks()])
@pytest.mark.usefixtures("smollm2_path")
def test_block(name: str, compared: bool, text: str, tmp_path: Path) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    if not (scripts / "forebay").exists():
        pytest.skip(f"no forebay command in {scripts}; `make test` installs it")
    env = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "100", "NO_COLOR": "1"}
    for command, shown in commands(text):
        done = subprocess.run(
            ["bash", "-euc", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{name}: {command}\n{done.stdout}{done.stderr}"
        if compared:
            assert done.stdout.split() == shown.split(), f"{name}: {command}"


def test_some_commands_are_run() -> None:
    assert len(blocks()) >= 3


def fenced(language: str) -> list[str]:
    """Every block of a language in the documents."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [text for path in documents() for text in pattern.findall(path.read_text("utf-8"))]


def test_profiles_in_the_documents_load(tmp_path: Path) -> None:
    shown = fenced("toml")
    assert shown
    for text in shown:
        (tmp_path / "profile.toml").write_text(text)
        load_profile(tmp_path / "profile.toml")


def test_python_in_the_documents_imports_what_exists() -> None:
    shown = fenced("python")
    assert shown
    for text in shown:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forebay"):
                module = importlib.import_module(node.module or "")
                assert [a.name for a in node.names if not hasattr(module, a.name)] == []
