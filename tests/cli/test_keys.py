"""forebay keys: a key is shown once, its digest is kept, and mistakes are one line."""

from __future__ import annotations

import hashlib
from pathlib import Path

from forebay.cli.keys import COMMANDS
from tests.cli.test_commands import forebay, one_line


def test_a_key_is_printed_alone_and_once(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    added = forebay("keys", "add", str(file), "alice-laptop", "--tenant", "alice")
    assert added.returncode == 0, added.stderr
    key = added.stdout.removesuffix("\n")
    assert len(key.split()) == 1
    assert f"added alice-laptop (tenant alice) to {file}" in added.stderr
    text = file.read_text()
    assert key not in text
    assert hashlib.sha256(key.encode()).hexdigest() in text
    other = forebay("keys", "add", str(file), "bob").stdout
    assert other.strip() not in ("", key)
    listed = forebay("keys", "list", str(file))
    assert listed.stdout == "alice-laptop  alice\nbob           bob\n"
    assert key not in listed.stdout + listed.stderr
    removed = forebay("keys", "remove", str(file), "alice-laptop")
    assert (removed.returncode, removed.stdout) == (0, "")
    assert forebay("keys", "list", str(file)).stdout == "bob  bob\n"


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    assert "cannot read" in one_line(forebay("keys", "list", str(file)), 2)
    assert "cannot write" in one_line(forebay("keys", "add", str(tmp_path / "none" / "keys.toml"), "alice"), 2)
    forebay("keys", "add", str(file), "alice")
    assert "has a key named 'alice'" in one_line(forebay("keys", "add", str(file), "alice"), 2)
    assert "has no key named 'bob'; it has alice" in one_line(forebay("keys", "remove", str(file), "bob"), 2)
    file.chmod(0o644)
    assert f"run: chmod 600 {file}" in one_line(forebay("keys", "list", str(file)), 2)


def test_every_command_of_the_group_has_examples() -> None:
    for command in COMMANDS:
        done = forebay("keys", command, "--help")
        assert done.returncode == 0
        assert f"forebay keys {command}" in done.stdout.partition("Examples:")[2]
