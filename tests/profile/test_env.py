"""env.py: typed readers, honest errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay import env
from forebay.errors import SetupError


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)


def test_cache_dir_is_own_variable_then_xdg_then_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert env.cache_dir() == tmp_path / ".cache" / "forebay"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert env.cache_dir() == tmp_path / "xdg" / "forebay"
    monkeypatch.setenv("FOREBAY_CACHE_DIR", "~/models")
    assert env.cache_dir() == tmp_path / "models"


def test_empty_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_LOG_LEVEL", "")
    monkeypatch.setenv("HF_TOKEN", " ")
    assert env.log_level() == "info"
    assert env.hf_token() is None


def test_log_level_ignores_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_LOG_LEVEL", "DEBUG")
    assert env.log_level() == "debug"


def test_hf_readers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert env.hf_endpoint() == "https://huggingface.co"
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.local:8080/")
    assert env.hf_endpoint() == "http://mirror.local:8080"
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert env.hf_home() == tmp_path


@pytest.mark.parametrize(
    ("name", "value", "reader"),
    [
        ("FOREBAY_LOG_LEVEL", "loud", env.log_level),
        ("FOREBAY_CACHE_DIR", "relative/folder", env.cache_dir),
        ("FOREBAY_CACHE_DIR", __file__, env.cache_dir),
        ("FOREBAY_CACHE_DIR", "~nobody-of-this-name/models", env.cache_dir),
        ("HF_ENDPOINT", "huggingface.co", env.hf_endpoint),
    ],
)
def test_a_bad_value_names_the_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str, reader: object) -> None:
    monkeypatch.setenv(name, value)
    assert callable(reader)
    with pytest.raises(SetupError, match=name) as caught:
        reader()
    assert repr(value) in caught.value.message
    assert caught.value.param == name
