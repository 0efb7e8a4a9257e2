"""TLS: https with a certificate, and every way in which the two files can be wrong, told before the engine starts."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from forebay.errors import SetupError
from forebay.server.tls import load_tls
from tests.server.conftest import TINY_FLAGS
from tests.server.test_lifecycle import run_serve
from tests.support.server_process import running_server

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="makes certificates with the openssl command")


class Pair(NamedTuple):
    cert: Path
    key: Path


def certificate(folder: Path, *options: str) -> Pair:
    """A certificate for 127.0.0.1 that signs itself."""
    pair = Pair(folder / "cert.pem", folder / "key.pem")
    subject = ["-subj", "/CN=forebay test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *(options or ["-nodes"])]
    command = [str(OPENSSL), "req", "-x509", *kind, *subject, "-keyout", str(pair.key), "-out", str(pair.cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return certificate(tmp_path_factory.mktemp("tls"))


def test_https(tiny_model: Path, tmp_path: Path, pair: Pair) -> None:
    flags = [str(tiny_model), *TINY_FLAGS, "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    with running_server(flags, tmp_path / "log") as server:
        assert " on https://127.0.0.1:" in server.ready_line
        trust = ssl.create_default_context(cafile=str(pair.cert))
        with httpx.Client(base_url=server.url, verify=trust, timeout=60) as client:
            body = {"model": "tiny-chat", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
            assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == ", there was a"
            with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as stream:
                assert [line for line in stream.iter_lines() if line][-1] == "data: [DONE]"
        with pytest.raises(httpx.ConnectError):  # a client that does not know who signed it
            httpx.get(f"{server.url}/health")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{server.url.replace('https', 'http')}/health")
        assert server.stop() == 0


def test_old_versions_are_not_spoken(pair: Pair) -> None:
    context = load_tls(*pair)
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_no_files_no_tls() -> None:
    assert load_tls(None, None) is None


def test_one_file_needs_the_other(pair: Pair) -> None:
    with pytest.raises(SetupError, match="give --tls-key too"):
        load_tls(pair.cert, None)
    with pytest.raises(SetupError, match="give --tls-cert too"):
        load_tls(None, pair.key)


def test_wrong_files(pair: Pair, tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("not a certificate\n")
    other = certificate(tmp_path)
    for cert, key, message in (
        (missing, pair.key, f"cannot read --tls-cert {missing}: No such file"),
        (pair.cert, missing, f"cannot read --tls-key {missing}: No such file"),
        (pair.cert, tmp_path, f"cannot read --tls-key {tmp_path}: Is a directory"),
        (pair.cert, other.key, f"--tls-key {other.key} does not belong to the certificate {pair.cert}"),
        (text, pair.key, "must be a PEM certificate chain"),
        (pair.cert, text, "its PEM private key"),
        (pair.key, pair.key, "must be a PEM certificate chain"),
    ):
        with pytest.raises(SetupError) as caught:
            load_tls(cert, key)
        assert message in caught.value.message


def test_a_passphrase_is_not_asked_for(tmp_path: Path) -> None:
    locked = certificate(tmp_path, "-passout", "pass:secret")
    with pytest.raises(SetupError, match="has a passphrase; give a key without one"):
        load_tls(locked.cert, locked.key)


def test_a_mismatch_is_one_clear_line_before_anything_starts(pair: Pair, tmp_path: Path) -> None:
    other = certificate(tmp_path)
    done = run_serve("no-such-model", "--port", "0", "--tls-cert", str(pair.cert), "--tls-key", str(other.key))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "does not belong to the certificate" in done.stderr
