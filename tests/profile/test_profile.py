"""Profile: defaults, TOML, overrides, and errors that name the field, the value and the remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ProfileError
from forebay.profile import (
    SETTINGS,
    KVSection,
    Profile,
    SchedulerSection,
    load_profile,
    parse_assignment,
    setting_name,
    values,
)
from forebay.profile.settings import toml_value


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.toml"
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_settings() -> None:
    assert values(Profile()) == {name: s.default for name, s in SETTINGS.items()}
    assert load_profile() == Profile()


def test_a_file_then_overrides(tmp_path: Path) -> None:
    path = written(tmp_path, 'version = 1\n[kv]\nblock_size = 8\ndtype = "f32"\n[scheduler]\novercommit = 2\n')
    profile = load_profile(path, {"kv.block_size": 32, "threads": 1, "backend.isa": None})
    assert (profile.kv.block_size, profile.kv.dtype, profile.scheduler.overcommit) == (32, "f32", 2)
    assert (profile.backend.threads, profile.backend.isa) == (1, "auto")


def test_every_default_can_be_written_in_a_file(tmp_path: Path) -> None:
    lines = []
    for name, described in SETTINGS.items():
        section, field = name.split(".")
        lines.append(f"{section}.{field} = {toml_value(described.default)}")
    assert load_profile(written(tmp_path, "\n".join(lines))) == Profile()


def test_a_profile_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Profile().kv.block_size = 4  # type: ignore[misc]  # the very thing that must fail


@pytest.mark.parametrize(
    ("text", "param", "says"),
    [
        ("[kv]\nblok_size = 1", "kv.blok_size", "did you mean 'kv.block_size'"),
        ("[kv]\nmax_waiting = 1", "kv.max_waiting", "did you mean 'scheduler.max_waiting'"),
        ("[sheduler]\n", "sheduler", "did you mean 'scheduler'"),
        ("[zzz]\n", "zzz", "known are model, backend, kv, scheduler"),
        ("kv = 3", "kv", r"written \[kv\]"),
        ("version = 2", "version", "version must be 1, got 2"),
        ("[kv]\nblock_size = 0", "kv.block_size", "an integer from 1 to 1024, got 0; the default is 16"),
        ("[kv]\nblock_size = 1.5", "kv.block_size", "an integer from 1 to 1024, got 1.5"),
        ('[kv]\nblock_size = "16"', "kv.block_size", "got '16'"),
        ('[kv]\nblock_size = "auto"', "kv.block_size", "got 'auto'"),
        ("[kv]\nblock_size = true", "kv.block_size", "got True"),
        ("[kv]\nprefix_cache = 1", "kv.prefix_cache", "true or false, got 1"),
        ('[kv]\ndtype = "f8"', "kv.dtype", 'one of "f16", "f32", "int8", got'),
        ('[model]\nweights = "int5"', "model.weights", r"or \"auto\", got 'int5' \(did you mean \"int8\"\?\); the def"),
        (
            '[model]\nweights = "fp32"',
            "model.weights",
            r"got 'fp32' \(did you mean \"f32\"\?\); the default is \"auto\"",
        ),
        ('[model]\nweights = "bfloat16"', "model.weights", r'\(did you mean "bf16"\?\)'),
        ('[model]\nweights = "zzz"', "model.weights", "got 'zzz'; the default"),
        ("[model]\nweights = 4", "model.weights", "got 4; the default"),
        ("[kv]\nmemory_gib = nan", "kv.memory_gib", 'a number from 0.001 to 65536 or "auto", got nan'),
        ('[backend]\nthreads = "all"', "backend.threads", 'an integer from 1 to 1024 or "auto"'),
        ("[scheduler]\novercommit = 0.5", "scheduler.overcommit", "a number from 1 to 100, got 0.5"),
        ('[model]\nsource = " "', "model.source", "text, got"),
        ("[backend]\nthreads = " + "9" * 400, "backend.threads", 'an integer from 1 to 1024 or "auto", got 999'),
        ("[kv]\nmemory_gib = " + "9" * 400, "kv.memory_gib", 'a number from 0.001 to 65536 or "auto", got 999'),
    ],
)
def test_a_wrong_file_says_what_and_what_to_do(tmp_path: Path, text: str, param: str, says: str) -> None:
    with pytest.raises(ProfileError, match=says) as caught:
        load_profile(written(tmp_path, text))
    assert caught.value.param == param
    assert param in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no-such\.toml: No such file"):
        load_profile(tmp_path / "no-such.toml")
    with pytest.raises(ProfileError, match="is not TOML"):
        load_profile(written(tmp_path, "kv: {block_size: 16}"))
    (tmp_path / "latin.toml").write_bytes(b'[model]\nsource = "\xff"')
    with pytest.raises(ProfileError, match="is not TOML"):
        load_profile(tmp_path / "latin.toml")
    for text in ("kv.block_size = " + "9" * 5000, "kv = " + "[" * 5000):
        with pytest.raises(ProfileError, match="is not TOML"):
            load_profile(written(tmp_path, text))


def test_a_section_built_in_python_is_checked_too() -> None:
    with pytest.raises(ProfileError, match=r"scheduler\.max_requests must be an integer"):
        SchedulerSection(max_requests=0)
    with pytest.raises(ProfileError, match=r"kv\.num_blocks"):
        KVSection(num_blocks=-1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kv.block_size=32", ("kv.block_size", 32)),
        ("prefix_cache = false", ("kv.prefix_cache", False)),
        ("overcommit=1.5", ("scheduler.overcommit", 1.5)),
        ("isa=avx2", ("backend.isa", "avx2")),
        ('kv.dtype="f32"', ("kv.dtype", "f32")),
        ("model.source=hf:org/name@main", ("model.source", "hf:org/name@main")),
        ("source=./a=b.gguf", ("model.source", "./a=b.gguf")),
        ("source=" + "9" * 5000, ("model.source", "9" * 5000)),
    ],
)
def test_assignments(text: str, expected: tuple[str, Any]) -> None:
    assert parse_assignment(text) == expected


def test_wrong_names_in_overrides() -> None:
    with pytest.raises(ProfileError, match=r"did you mean 'scheduler\.token_budget'"):
        load_profile(None, {"token_buget": 4})
    with pytest.raises(ProfileError, match="NAME=VALUE"):
        parse_assignment("kv.block_size")


def test_a_bare_name_is_enough() -> None:
    assert setting_name("block_size") == "kv.block_size"
    assert setting_name("model.source") == "model.source"


def test_every_setting_says_what_it_is() -> None:
    for name, described in SETTINGS.items():
        assert described.meaning.endswith("."), name
        assert described.accepts(described.default), name
        assert described.auto == (described.default == "auto"), name


def test_a_number_too_long_to_print_is_an_ordinary_error() -> None:
    with pytest.raises(ProfileError, match="an integer from 1 to 2147483647"):
        load_profile(None, dict([parse_assignment("kv.num_blocks=0x" + "f" * 5000)]))
