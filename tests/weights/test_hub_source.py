"""`hf:` sources against a hub on 127.0.0.1 and against caches that the real huggingface_hub client wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from forebay.errors import ForebayError, ModelSourceError, UnsupportedModelError
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.sources import resolve_source
from tests.weights.fake_hub import COMMIT, FakeHub, serve_hub

SOURCE = "hf:owner/tiny@main"
SHARD = "/owner/tiny/resolve/" + COMMIT + "/model.safetensors"
STORED = "/store/model.safetensors"
INFO = "/api/models/owner/tiny/revision/main"


def weights(seed: int) -> bytes:
    values = {f"w{seed}": np.random.default_rng(seed).standard_normal((8, 64), dtype=np.float32)}
    return safetensors.numpy.save(values)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub with one small model, nothing in Hugging Face's own cache, and no proxy between."""
    with serve_hub() as fake:
        fake.files = {
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b"{}",
            "README.md": b"not for us",
            "pytorch_model.bin": b"\x80\x02}q\x00.",
            "onnx/model.onnx": b"not for us",
            "model.safetensors": weights(0),
        }
        fake.lfs = {"model.safetensors", "pytorch_model.bin"}
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
        monkeypatch.setenv("FOREBAY_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield fake


def resolve(source: str = SOURCE) -> Path:
    return resolve_source(source, progress=False)


def cached_files(tmp_path: Path) -> list[str]:
    root = tmp_path / "cache"
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name != ".lock")


def test_only_what_is_needed_is_fetched_and_pinned(hub: FakeHub, tmp_path: Path) -> None:
    folder = resolve()
    assert folder == tmp_path / "cache/models/hf/owner--tiny" / COMMIT
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors", ".forebay-complete.json"}
    assert open_checkpoint(folder).tensor_names() == ["w0"]
    hub.requests.clear()
    assert resolve() == folder
    assert hub.paths() == [INFO]  # a branch is looked up again, its files are not
    assert resolve(f"hf:owner/tiny@{COMMIT}") == folder
    assert hub.paths() == [INFO]  # a commit asks nobody


def test_the_default_revision_is_main(hub: FakeHub) -> None:
    assert resolve("hf:owner/tiny") == resolve(SOURCE)


def test_a_branch_that_moves_is_followed(hub: FakeHub) -> None:
    first = resolve()
    hub.revisions["main"] = "f" * 40
    hub.files["model.safetensors"] = weights(1)
    second = resolve()
    assert second.name == "f" * 40
    assert open_checkpoint(second).tensor_names() == ["w1"]
    assert open_checkpoint(first).tensor_names() == ["w0"]


def test_branches_with_slashes(hub: FakeHub) -> None:
    hub.revisions["refs/pr/1"] = COMMIT
    assert resolve("hf:owner/tiny@refs/pr/1").name == COMMIT


def test_sharded_models(hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    shards = {f"model-0000{i}-of-00002.safetensors": weights(i) for i in (1, 2)}
    index = {"weight_map": {f"w{i}": name for i, name in zip((1, 2), shards, strict=True)}}
    hub.files |= {"model.safetensors.index.json": json.dumps(index).encode(), "extra.safetensors": b"x", **shards}
    hub.lfs |= set(shards)
    checkpoint = open_checkpoint(resolve())
    assert checkpoint.tensor_names() == ["w1", "w2"]
    assert not any("extra" in path for path in hub.paths())


@pytest.mark.parametrize(
    ("path", "fault", "report"),
    [
        (INFO, 503, "HTTP 503"),
        (INFO, "drop", "127.0.0.1"),
        (INFO, "cut", "the hub's answer is not valid JSON"),
        (SHARD, 500, "HTTP 500"),
        (STORED, "cut", "model.safetensors broke off after"),
        (STORED, "flip", "model.safetensors has sha256"),
        (STORED, "drop", "127.0.0.1"),
        (f"/owner/tiny/resolve/{COMMIT}/tokenizer.json", "flip", "tokenizer.json has git id"),
    ],
)
@pytest.mark.parametrize("tell_blobs", [True, False])
def test_a_broken_answer_is_reported_and_asked_again(
    path: str, fault: int | str, report: str, tell_blobs: bool, hub: FakeHub, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where only the headers of the download say what should come (small files then have no digest)."""
    if not tell_blobs and "tokenizer" in path:
        fault, report = "cut", "tokenizer.json broke off after 1 of 2 bytes"
    hub.tell_blobs = tell_blobs
    hub.faults = {path: [fault]}
    assert open_checkpoint(resolve()).tensor_names() == ["w0"]
    assert report in caplog.text
    assert "trying again (2 of 3)" in caplog.text


def test_after_three_tries_nothing_is_kept(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = {STORED: ["cut"] * 3}
    with pytest.raises(ModelSourceError, match=r"failed 3 times: .*broke off .*check the network and HF_ENDPOINT") as e:
        resolve()
    assert "\n" not in e.value.message
    assert cached_files(tmp_path) == []


def test_without_network_the_commit_fetched_before_is_used(hub: FakeHub, caplog: pytest.LogCaptureFixture) -> None:
    folder = resolve()
    hub.faults = {INFO: [503] * 3}
    assert resolve() == folder
    assert f"using the commit fetched before, {COMMIT}" in caplog.text


def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with serve_hub() as gone:
        pass
    monkeypatch.setenv("HF_ENDPOINT", gone.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    with pytest.raises(ModelSourceError, match=r"failed 3 times: 127\.0\.0\.1:\d+: .*refused"):
        resolve_source(SOURCE, cache_dir=tmp_path, progress=False)


def test_a_damaged_fetch_is_fetched_again(hub: FakeHub) -> None:
    folder = resolve()
    (folder / "model.safetensors").write_bytes(b"short")
    assert open_checkpoint(resolve()).tensor_names() == ["w0"]


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("hf:owner/tiny@gone", ModelSourceError, r"hf:owner/tiny@gone does not exist \(HTTP 404\): check repository"),
        ("hf:owner/other", ModelSourceError, r"hf:owner/other@main does not exist \(HTTP 404\)"),
        ("hf:", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a/b/c", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:../x", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a/..@main", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a/b@../../x", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a/b@/x", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a--b/c", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a/b@", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
        ("hf:a/b?x=1", ModelSourceError, "must be hf:OWNER/NAME@REVISION"),
    ],
)
def test_wrong_names(source: str, kind: type[ForebayError], message: str, hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(kind, match=message) as caught:
        resolve(source)
    assert "\n" not in caught.value.message
    assert cached_files(tmp_path) == []


def test_pickled_models_are_refused_by_name(hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(UnsupportedModelError, match=r"pytorch_model\.bin is a pickle"):
        resolve()
    assert not any("pytorch_model" in path for path in hub.paths())


def test_models_without_weights(hub: FakeHub) -> None:
    hub.files = {"config.json": b"{}", "model.gguf": b"GGUF"}
    with pytest.raises(ModelSourceError, match=r"has no model\.safetensors: fetch a \.gguf of it by hand"):
        resolve()


@pytest.mark.parametrize("shard", ["../../evil.safetensors", "/etc/evil.safetensors", "pytorch_model.bin"])
def test_an_index_that_points_elsewhere(shard: str, hub: FakeHub, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"w": shard}}).encode()
    with pytest.raises(ModelSourceError, match=r"not a \.safetensors file beside it"):
        resolve()
    assert cached_files(tmp_path) == []


def test_an_index_of_files_that_are_not_there(hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    hub.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"w": "a.safetensors"}}).encode()
    with pytest.raises(ModelSourceError, match=r"lacks 'a\.safetensors': use another revision"):
        resolve()


def test_gated_models_and_the_token(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret-token"
    with pytest.raises(ModelSourceError, match=r"is private or gated \(HTTP 401\): accept its terms .*HF_TOKEN"):
        resolve()
    monkeypatch.setenv("HF_TOKEN", "secret-token")
    assert open_checkpoint(resolve()).tensor_names() == ["w0"]
    stored = [authorization for path, authorization in hub.requests if path == STORED]
    assert stored == [None]  # another host: the token stays behind


def real_client_download(hub: FakeHub, home: Path, revision: str) -> Path:
    """Fill Hugging Face's own cache with its own client, in its own process (it reads HF_ENDPOINT at import)."""
    code = (
        "from huggingface_hub import snapshot_download;"
        f"print(snapshot_download({hub.repo!r}, revision={revision!r}, allow_patterns=['*.json', '*.safetensors']))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return Path(result.stdout.strip())


def test_a_model_in_hugging_faces_cache_is_used_without_a_request(hub: FakeHub, tmp_path: Path) -> None:
    """This also shows that the hub of these tests is one that the real client takes for real."""
    snapshot = real_client_download(hub, tmp_path / "hf-home", "main")
    hub.requests.clear()
    assert resolve() == snapshot
    assert resolve(f"hf:owner/tiny@{COMMIT}") == snapshot
    assert open_checkpoint(snapshot).tensor_names() == ["w0"]
    assert hub.requests == []
    (snapshot / "model.safetensors").unlink()  # a snapshot may be partial: then it does not count
    assert resolve() == tmp_path / "cache/models/hf/owner--tiny" / COMMIT
