"""`hf:REPO@REVISION`: a safetensors model from Hugging Face's own local cache, else fetched from the hub into ours.

API: https://huggingface.co/docs/hub/api (model info with blobs=true) and the resolve URLs. The revision is pinned to
its commit before a file is fetched; sizes and digests come from the model info, else from the headers of the download.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from forebay.errors import ModelSourceError
from forebay.weights.mapped import shown
from forebay.weights.safetensors import (
    CONFIG_NAME,
    INDEX_NAME,
    PICKLE_SUFFIXES,
    SINGLE_NAME,
    parse_json_object,
    refuse_pickle,
    shards_of,
)
from forebay.weights.sources.cache import (
    BrokenDownloadError,
    Expected,
    RetriesExhaustedError,
    locked,
    need_space,
    partial_folder,
    save,
    with_retries,
    write_text,
)
from forebay.weights.sources.progress import progress_bar

SIDE_FILES = (
    CONFIG_NAME,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
_PART = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9_])?"
_REPO = re.compile(rf"{_PART}(/{_PART})?", re.ASCII)
_REVISION = re.compile(r"[\w.+-]+(/[\w.+-]+)*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMPLETE = ".forebay-complete.json"  # name -> size of every file of a finished fetch
_INFO_TIMEOUT_S = 10  # a start without network falls back to what was fetched before; it must not wait long
_FILE_TIMEOUT_S = 60
_MAX_INFO = 1 << 26
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository and a branch, tag or commit of it."""

    repo: str
    revision: str

    def __str__(self) -> str:
        return f"hf:{self.repo}@{self.revision}"

    @property
    def pinned(self) -> bool:
        return bool(_COMMIT.fullmatch(self.revision))


@dataclass(frozen=True, slots=True)
class Hub:
    """Where models come from: the endpoint and the token to show it, and Hugging Face's local cache folder."""

    endpoint: str
    token: str | None
    home: Path


def parse_hub_model(text: str) -> HubModel:
    """ "REPO@REVISION" -> HubModel; the revision may be left out (main). ModelSourceError when it is not that."""
    repo, separator, revision = text.partition("@")
    revision = revision if separator else "main"
    good = _REPO.fullmatch(repo) and ".." not in text and "--" not in repo and _REVISION.fullmatch(revision)
    if not good:
        raise ModelSourceError(
            f"model source {shown('hf:' + text)} must be hf:OWNER/NAME@REVISION, such as hf:Qwen/Qwen3-0.6B@main",
            param="model",
        )
    return HubModel(repo, revision)


def fetch_model(model: HubModel, hub: Hub, cache_dir: Path, progress: bool) -> Path:
    """The folder of the model: Hugging Face's cached snapshot if whole, else ours, fetched if needed."""
    snapshot = _local_snapshot(model, hub.home)
    if snapshot is not None:
        return snapshot
    folder = cache_dir / "models" / "hf" / model.repo.replace("/", "--")
    if model.pinned and _is_complete(folder / model.revision):
        return folder / model.revision
    with locked(folder):
        return _fetch_into(folder, model, hub, progress)


def _local_snapshot(model: HubModel, home: Path) -> Path | None:
    """The snapshot in the layout of huggingface_hub: refs/REVISION holds the commit, snapshots/COMMIT the files."""
    root = home / "hub" / ("models--" + model.repo.replace("/", "--"))
    commit = model.revision
    if not model.pinned:
        try:
            commit = (root / "refs" / model.revision).read_text().strip()
        except (OSError, ValueError):
            return None
    snapshot = root / "snapshots" / commit
    return snapshot if _COMMIT.fullmatch(commit) and _is_whole(snapshot) else None


def _is_whole(folder: Path) -> bool:
    """config.json and all the weights are there; a snapshot may be partial."""
    if not (folder / CONFIG_NAME).is_file():
        return False
    if (folder / SINGLE_NAME).is_file():
        return True
    try:
        shards = shards_of(parse_json_object((folder / INDEX_NAME).read_bytes(), INDEX_NAME))
    except (OSError, ValueError):
        return False
    return all((folder / shard).is_file() for shard in set(shards.values()))


def _is_complete(folder: Path) -> bool:
    """A fetch of ours that finished, with every file still as long as it was."""
    try:
        sizes = parse_json_object((folder / _COMPLETE).read_bytes(), _COMPLETE)
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _fetch_into(folder: Path, model: HubModel, hub: Hub, progress: bool) -> Path:
    ref = folder / "refs" / quote(model.revision, safe="")
    try:
        info = _model_info(model, hub)
    except RetriesExhaustedError as error:
        known = folder / ref.read_text() if ref.is_file() else None
        if known is None or not _is_complete(known):
            raise
        _log.warning("%s; using the commit fetched before, %s", error, known.name)
        return known
    target = folder / info.commit
    if not _is_complete(target):
        _fetch_files(model, info, hub, target, progress)
    write_text(ref, info.commit)
    return target


@dataclass(frozen=True, slots=True)
class _ModelInfo:
    commit: str
    files: dict[str, Expected]


def _model_info(model: HubModel, hub: Hub) -> _ModelInfo:
    url = f"{hub.endpoint}/api/models/{model.repo}/revision/{quote(model.revision, safe='')}?blobs=true"

    def attempt(number: int) -> _ModelInfo:
        with _get(url, model, hub, _INFO_TIMEOUT_S) as (body, _):
            raw = body.read(_MAX_INFO + 1)
        try:
            return _parse_info(parse_json_object(raw, "the hub's answer"))
        except ValueError as error:
            raise BrokenDownloadError(str(error)) from None

    return with_retries(str(model), f"check the network and HF_ENDPOINT ({hub.endpoint})", attempt)


def _parse_info(info: dict[str, Any]) -> _ModelInfo:
    commit, siblings = info.get("sha"), info.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
        raise ValueError("the hub's answer has no commit or no list of files")
    files = {}
    for sibling in siblings:
        name = sibling.get("rfilename") if isinstance(sibling, dict) else None
        if isinstance(name, str) and "/" not in name:
            files[name] = _parse_expected(sibling)
    return _ModelInfo(commit, files)


def _parse_expected(sibling: dict[str, Any]) -> Expected:
    lfs = sibling.get("lfs")
    if isinstance(lfs, dict):  # blobId is then of the pointer, not of the file
        size, sha256, git_oid = lfs.get("size"), lfs.get("sha256"), None
    else:
        size, sha256, git_oid = sibling.get("size"), None, sibling.get("blobId")
    return Expected(
        size=size if type(size) is int and size >= 0 else None,
        sha256=sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None,
        git_oid=git_oid if isinstance(git_oid, str) and _COMMIT.fullmatch(git_oid) else None,
    )


def _fetch_files(model: HubModel, info: _ModelInfo, hub: Hub, target: Path, progress: bool) -> None:
    """Everything into a partial folder, then one rename."""
    with partial_folder(target.parent) as unverified:
        fetched = unverified / "model"
        fetched.mkdir()
        fetch = _Fetch(model, info, hub, fetched, progress)
        fetch.files([name for name in SIDE_FILES if name in info.files])
        fetch.files(_weight_files(model, info, fetch))
        sizes = {path.name: path.stat().st_size for path in fetched.iterdir()}
        write_text(fetched / _COMPLETE, json.dumps(sizes))
        shutil.rmtree(target, ignore_errors=True)  # a damaged earlier fetch
        fetched.rename(target)


def _weight_files(model: HubModel, info: _ModelInfo, fetch: _Fetch) -> list[str]:
    if SINGLE_NAME in info.files:
        return [SINGLE_NAME]
    if INDEX_NAME in info.files:
        fetch.files([INDEX_NAME])
        try:
            shards = shards_of(parse_json_object((fetch.folder / INDEX_NAME).read_bytes(), INDEX_NAME))
        except ValueError as error:
            raise ModelSourceError(f"{model}: {error}; use another revision", param="model") from None
        return sorted(set(shards.values()))
    for name in info.files:
        if name.endswith(PICKLE_SUFFIXES):
            raise refuse_pickle(Path(f"{model}/{name}"))
    raise ModelSourceError(
        f"{model} has no {SINGLE_NAME}: fetch a .gguf of it by hand and give its path, or use another repository",
        param="model",
    )


@dataclass(frozen=True, slots=True)
class _Fetch:
    model: HubModel
    info: _ModelInfo
    hub: Hub
    folder: Path
    progress: bool

    def files(self, names: list[str]) -> None:
        """Fetch and verify these files into the folder."""
        need_space(self.folder, sum(self.info.files.get(name, Expected()).size or 0 for name in names))
        for name in names:
            if name not in self.info.files:
                raise ModelSourceError(f"{self.model} lacks {shown(name)}: use another revision", param="model")
            remedy = f"check the network and HF_ENDPOINT ({self.hub.endpoint})"
            with_retries(f"{self.model} {name}", remedy, partial(self._file, name))

    def _file(self, name: str, attempt: int) -> None:
        url = f"{self.hub.endpoint}/{self.model.repo}/resolve/{self.info.commit}/{quote(name)}"
        with _get(url, self.model, self.hub, _FILE_TIMEOUT_S) as (body, headers):
            expected = _with_headers(self.info.files[name], headers)
            with progress_bar(name, expected.size, self.progress) as update:
                done = 0

                def advance(count: int) -> None:
                    nonlocal done
                    done += count
                    update(done, expected.size)

                save(body.read, self.folder / name, expected, advance)


def _with_headers(known: Expected, headers: dict[str, str]) -> Expected:
    """Fill what the model info did not say from X-Linked-Size, X-Linked-Etag and Content-Length."""
    size = headers.get("x-linked-size") or headers.get("content-length", "")
    etag = headers.get("x-linked-etag", "").removeprefix("W/").strip('"')
    return Expected(
        size=known.size if known.size is not None else (int(size) if size.isdecimal() else None),
        sha256=known.sha256 or (etag if _SHA256.fullmatch(etag) else None),
        git_oid=known.git_oid,
    )


class _Redirects(HTTPRedirectHandler):
    """Follows the hub to its file store, keeps the X-Linked headers of the way and never leaves https."""

    def __init__(self) -> None:
        self.linked: dict[str, str] = {}

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        new = urlsplit(newurl)
        if new.scheme not in ("http", "https") or (urlsplit(req.full_url).scheme == "https" and new.scheme != "https"):
            raise BrokenDownloadError(
                f"{urlsplit(req.full_url).netloc} redirects to {shown(newurl)}, which is not https"
            )
        self.linked.update(_lower(headers, "x-linked-"))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _lower(headers: Message, prefix: str = "") -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith(prefix)}


@contextmanager
def _get(url: str, model: HubModel, hub: Hub, timeout_s: int) -> Iterator[tuple[IO[bytes], dict[str, str]]]:
    """GET; network trouble, here or while the body is read, is a BrokenDownloadError, a refusal a ModelSourceError."""
    request = Request(url, headers={"User-Agent": "forebay", "Accept-Encoding": "identity"})
    if hub.token:
        request.add_unredirected_header("Authorization", f"Bearer {hub.token}")  # the file store must not see it
    redirects = _Redirects()
    try:
        with build_opener(redirects).open(request, timeout=timeout_s) as response:
            yield response, redirects.linked | _lower(response.headers)
    except HTTPError as error:
        error.close()
        raise _refusal(error, model) from None
    except (URLError, TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise BrokenDownloadError(f"{urlsplit(url).netloc}: {getattr(error, 'reason', error)}") from error


def _refusal(error: HTTPError, model: HubModel) -> Exception:
    if error.code in (401, 403):
        return ModelSourceError(
            f"{model} does not exist, or is private or gated (HTTP {error.code}): accept its terms on its page and set "
            "HF_TOKEN, or give the path of a folder you have",
            param="model",
        )
    if error.code == 404:
        return ModelSourceError(f"{model} does not exist (HTTP 404): check repository and revision", param="model")
    return BrokenDownloadError(f"HTTP {error.code} {error.reason}")
