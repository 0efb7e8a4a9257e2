"""The file of API keys: what is in it, who may read it, and every way in which it can be wrong."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from pathlib import Path

import pytest

from forebay.errors import KeyFileError
from forebay.server.auth import ApiKeys
from forebay.server.key_file import MAX_BYTES, MAX_KEYS, KeyEntry, add_key, read_key_file, remove_key
from forebay.server.tenants import Tenant

SECRET, DIGEST = "5" * 64, "d" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def written(file: Path, *keys: str, head: str = f'version = 1\nsecret = "{SECRET}"\n') -> Path:
    """A private file with that text."""
    file.write_text(head + "".join(f"[[keys]]\n{key}\n" for key in keys))
    file.chmod(0o600)
    return file


def entry(name: str = "a", tenant: str = "t", sha256: str = DIGEST) -> str:
    return f'name = "{name}"\ntenant = "{tenant}"\nsha256 = "{sha256}"'


def test_a_key_is_random_and_only_its_digest_is_kept(file: Path) -> None:
    keys = [add_key(file, f"key-{i}", "acme") for i in range(3)]
    assert len(set(keys)) == 3
    assert all(re.fullmatch(r"fb-[A-Za-z0-9_-]{43}", key) for key in keys)  # 256 bits
    text = file.read_text()
    assert not any(key in text for key in keys)
    document = tomllib.loads(text)
    assert [entry["sha256"] for entry in document["keys"]] == [hashlib.sha256(key.encode()).hexdigest() for key in keys]
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.parent) == [file.name]


def test_what_was_written_is_read(file: Path) -> None:
    digests = [hashlib.sha256(add_key(file, name, "acme").encode()).hexdigest() for name in ("a", "b", "c")]
    secret = read_key_file(file).secret
    remove_key(file, "b")
    kept = read_key_file(file)
    assert kept.keys == (KeyEntry("a", "acme", digests[0]), KeyEntry("c", "acme", digests[2]))
    assert kept.secret == secret  # or all tenants would lose what they have cached
    assert len(bytes.fromhex(secret)) == 32


def test_keys_find_their_tenant(file: Path) -> None:
    a, b = add_key(file, "a", "one"), add_key(file, "b", "two")
    keys, secret = ApiKeys(file), bytes.fromhex(read_key_file(file).secret)
    assert keys.tenant(a.encode()) == Tenant.derived("one", secret)
    assert keys.tenant(b.encode()) == Tenant.derived("two", secret)
    for wrong in (b"", a[:-1].encode(), b"fb-", hashlib.sha256(a.encode()).hexdigest().encode(), b"\xff"):
        assert keys.tenant(wrong) is None


text__message = [
    ("", "is empty; remove it"),
    ("\n \n", "is empty; remove it"),
    ("version = ", "is not TOML"),
    ("\ud800", "is not TOML"),
    (f'secret = "{SECRET}"', "version must be 1, got 'none'"),
    (f'version = 2\nsecret = "{SECRET}"', "version must be 1, got 2"),
    (f'version = true\nsecret = "{SECRET}"', "version must be 1, got True"),
    (f'version = 1.0\nsecret = "{SECRET}"', "version must be 1, got 1.0"),
    ("version = " + "9" * 5000, "is not TOML"),
    ("x = " + "[" * 9999, "is not TOML"),
    ("#" * MAX_BYTES + "\n", f"is larger than {MAX_BYTES} bytes"),
    ("version = 1", "secret must be 64 hex digits in lower case; it is missing"),
    ('version = 1\nsecret = "short"', "secret must be 64 hex digits in lower case; it is something else"),
    (f'version = 1\nsecret = "{SECRET}"\nkey = 1', "unknown field 'key'; known are version, secret, keys"),
    (f'version = 1\nsecret = "{SECRET}"\nkeys = ["fb-key"]', "written [[keys]]"),
]


@pytest.mark.parametrize(("text", "message"), text__message)
def test_wrong_files(file: Path, text: str, message: str) -> None:
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    file.chmod(0o600)
    with pytest.raises(KeyFileError, match=re.escape(message)) as caught:
        read_key_file(file)
    assert caught.value.message.startswith(str(file))


keys__message = [
    ([entry() + "\ntenat = 'x'"], "unknown field 'keys[0].tenat'; known are name, tenant, sha256"),
    ([entry(), f'name = "b"\nsha256 = "{DIGEST}"'], "keys[1].tenant must be 1 to 64 letters"),
    (['tenant = "t"'], "keys[0].name must be 1 to 64 letters"),
    ([entry(name="a b")], "keys[0].name must be 1 to 64 letters"),
    ([entry(tenant="x" * 65)], "keys[0].tenant must be 1 to 64 letters"),
    ([entry(sha256=DIGEST.upper())], "keys[0].sha256 must be 64 hex digits in lower case, the SHA-256 of a key"),
    ([entry(), entry(sha256="e" * 64)], "has two keys named 'a'; rename or remove one"),
    ([entry(), entry(name="b")], "'a' and 'b' are the same key; remove one"),
    ([entry(f"k{i}", sha256=f"{i:064x}") for i in range(MAX_KEYS + 1)], f"has {MAX_KEYS + 1} keys and may hold"),
]


@pytest.mark.parametrize(("keys", "message"), keys__message)
def test_wrong_keys(file: Path, keys: list[str], message: str) -> None:
    with pytest.raises(KeyFileError, match=re.escape(message)):
        read_key_file(written(file, *keys))


def test_a_key_in_place_of_its_digest_is_not_shown(file: Path) -> None:
    with pytest.raises(KeyFileError) as caught:
        read_key_file(written(file, entry(sha256="fb-a-real-key")))
    assert "fb-a-real-key" not in caught.value.message


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_a_file_open_to_others_is_refused(file: Path, mode: int) -> None:
    add_key(file, "a", "acme")
    file.chmod(mode)
    with pytest.raises(KeyFileError, match=rf"open to other users \(mode {mode:o}\); run: chmod 600 "):
        read_key_file(file)
    with pytest.raises(KeyFileError, match="chmod 600"):
        add_key(file, "b", "acme")  # or it would go on looking safe
    file.chmod(0o400)
    assert len(read_key_file(file).keys) == 1


def test_files_that_are_none(file: Path) -> None:
    with pytest.raises(KeyFileError, match=f"cannot read {file}: No such file"):
        read_key_file(file)
    file.mkdir(0o700)
    with pytest.raises(KeyFileError, match=f"cannot read {file}: Is a directory"):
        read_key_file(file)
    pipe = file.parent / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(KeyFileError, match="is not a regular file"):  # and does not wait for a writer
        read_key_file(pipe)


@pytest.mark.parametrize("name", ["", "-a", "a b", 'a"', "a\nb", "x" * 65, "\u00e9"])
def test_wrong_names(file: Path, name: str) -> None:
    for given in ((name, "acme"), ("a", name)):
        with pytest.raises(KeyFileError, match="must be 1 to 64 letters"):
            add_key(file, *given)
    assert not file.exists()


def test_names_are_unique_and_must_exist(file: Path) -> None:
    add_key(file, "a", "acme")
    before = file.read_text()
    with pytest.raises(KeyFileError, match="has a key named 'a'; remove it or choose another name"):
        add_key(file, "a", "other")
    with pytest.raises(KeyFileError, match="has no key named 'b'; it has a"):
        remove_key(file, "b")
    assert file.read_text() == before
    assert os.listdir(file.parent) == [file.name]


def test_a_full_file_takes_no_more(file: Path) -> None:
    written(file, *(entry(f"k{i:063}", "t" * 64, f"{i:064x}") for i in range(MAX_KEYS)))  # the longest names
    with pytest.raises(KeyFileError, match=f"has {MAX_KEYS} keys, the most it may hold"):
        add_key(file, "one-more", "acme")
    assert len(read_key_file(file).keys) == MAX_KEYS


def test_only_one_writes_at_a_time(file: Path) -> None:
    add_key(file, "a", "acme")
    other = file.with_name(".keys.toml.new")
    other.touch()
    with pytest.raises(KeyFileError, match=f"{other} exists: another `forebay keys` runs"):
        add_key(file, "b", "acme")
    other.unlink()
    add_key(file, "b", "acme")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file away")
def test_the_owner_stays_the_owner(file: Path) -> None:
    """`sudo forebay keys add` must not lock out the server, which runs as somebody else."""
    add_key(file, "a", "acme")
    os.chown(file, 1234, 2345)
    for change in (lambda: add_key(file, "b", "acme"), lambda: remove_key(file, "a")):
        change()
        status = file.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 2345, 0o600)


def test_a_link_stays_a_link(file: Path) -> None:
    add_key(file, "a", "acme")
    link = file.with_name("link.toml")
    link.symlink_to(file.name)
    add_key(link, "b", "acme")
    assert link.is_symlink()
    assert len(read_key_file(file).keys) == 2


def test_keys_are_read_again_when_the_file_changes(file: Path) -> None:
    first = add_key(file, "a", "acme")
    keys = ApiKeys(file)
    second = add_key(file, "b", "beta")
    found = keys.tenant(second.encode())
    assert found is not None
    assert found.name == "beta"
    remove_key(file, "a")
    assert keys.tenant(first.encode()) is None
