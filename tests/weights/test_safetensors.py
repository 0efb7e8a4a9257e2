"""Hugging Face folders: real ones, ones written by `safetensors`, and hostile ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.errors import ForebayError, ModelFormatError, ModelSourceError, UnsupportedModelError
from forebay.weights.checkpoint import Checkpoint, open_checkpoint
from forebay.weights.safetensors import SafetensorsFile
from tests.support.shared import shared_path


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "model.embed_tokens.weight": torch.randn(6, 4, generator=generator).to(torch.bfloat16),
        "model.norm.weight": torch.randn(4, generator=generator),
        "lm_head.weight": torch.randn(6, 4, generator=generator).to(torch.float16),
        "scalar": torch.tensor(3.0),
        "experts": torch.randn(2, 3, 4, generator=generator),
    }


def write_folder(folder: Path, *, shards: int = 1) -> Path:
    """A model folder as save_pretrained writes it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 4}))
    everything = tensors()
    if shards == 1:
        safetensors.torch.save_file(everything, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    weight_map: dict[str, str] = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(everything.items())[i::shards])
        safetensors.torch.save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def assert_holds_all(checkpoint: Checkpoint) -> None:
    expected = tensors()
    assert sorted(checkpoint.tensor_names()) == sorted(expected)
    for name, value in expected.items():
        tensor = checkpoint.tensor(name)
        flat = value.to(torch.float32).reshape(-1, value.shape[-1] if value.ndim else 1).numpy()
        assert (tensor.rows, tensor.columns) == flat.shape
        np.testing.assert_array_equal(tensor.dequantize().view(np.uint32), flat.view(np.uint32))


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_single_and_sharded_folders(shards: int, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m", shards=shards))
    assert checkpoint.kind == "hf"
    assert checkpoint.config["model_type"] == "llama"
    assert_holds_all(checkpoint)
    assert checkpoint.tensor("model.embed_tokens.weight").format.name == "bf16"
    checkpoint.close()


def test_the_tiny_real_model_equals_the_safetensors_library() -> None:
    folder = shared_path("models/stories260K/hf")
    checkpoint = open_checkpoint(folder)
    expected = safetensors.torch.load_file(folder / "model.safetensors")
    assert sorted(checkpoint.tensor_names()) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(checkpoint.tensor(name).dequantize().reshape(value.shape), value.numpy())
    assert checkpoint.file("tokenizer.json") == (folder / "tokenizer.json").read_bytes()
    assert checkpoint.file("chat_template.jinja") is None


def test_tensors_are_views_that_outlive_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m"))
    tensor = checkpoint.tensor("experts")
    assert not tensor.data.flags.owndata
    assert not tensor.data.flags.writeable
    before = tensor.dequantize()
    checkpoint.close()
    np.testing.assert_array_equal(tensor.dequantize(), before)


def test_digest_follows_content_not_place(tmp_path: Path) -> None:
    first = write_folder(tmp_path / "one")
    digest = open_checkpoint(first).digest
    shutil.copytree(first, tmp_path / "two")
    assert open_checkpoint(tmp_path / "two").digest == digest
    content = bytearray((first / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (first / "model.safetensors").write_bytes(content)
    assert open_checkpoint(first).digest != digest


def test_side_files_must_be_plain_names(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_folder(tmp_path / "m"))
    for name in ("../config.json", "/etc/passwd", "..", "a\\b"):
        with pytest.raises(ValueError, match="is not a plain file name"):
            checkpoint.file(name)


def broken_folder(folder: Path, case: str) -> None:
    """Spoil one thing of a good folder."""
    write_folder(folder, shards=2)
    index = folder / "model.safetensors.index.json"
    first = "model-00001-of-00002.safetensors"
    match case:
        case "no config":
            (folder / "config.json").unlink()
        case "config not JSON":
            (folder / "config.json").write_text("{'a': 1}")
        case "config not an object":
            (folder / "config.json").write_text("[1]")
        case "config not UTF-8":
            (folder / "config.json").write_bytes(b"\xff\xfe{}")
        case "config deep":
            (folder / "config.json").write_text("[" * 100_000)
        case "config key twice":
            (folder / "config.json").write_text('{"hidden_size": 1, "hidden_size": 2}')
        case "no weights":
            index.unlink()
        case "shard missing":
            (folder / first).unlink()
        case "no weight_map":
            index.write_text("{}")
        case "tensor not in its shard":
            index.write_text(json.dumps({"weight_map": {"ghost": first}}))
        case _:
            index.write_text(json.dumps({"weight_map": {"t": case}}))


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("no config", ModelSourceError, r"has no config\.json: give a Hugging Face model folder"),
        ("config not JSON", ModelFormatError, r"config\.json is not valid JSON \(Expecting property name"),
        ("config not an object", ModelFormatError, r"config\.json is not a JSON object"),
        ("config not UTF-8", ModelFormatError, r"config\.json is not valid JSON \('utf-8' codec"),
        ("config deep", ModelFormatError, r"config\.json is nested too deeply"),
        ("config key twice", ModelFormatError, r"config\.json is not valid JSON \(a key appears twice\)"),
        ("no weights", ModelSourceError, r"has neither model\.safetensors nor model\.safetensors\.index\.json"),
        ("shard missing", ModelSourceError, r"model-00001-of-00002\.safetensors does not exist"),
        ("no weight_map", ModelFormatError, "weight_map is missing or empty"),
        ("tensor not in its shard", ModelFormatError, "says that 'ghost' is in 'model-00001-of-00002.safetensors'"),
        ("../up.safetensors", ModelFormatError, r"'\.\./up\.safetensors', not a \.safetensors file beside it"),
        ("/etc/x.safetensors", ModelFormatError, r"'/etc/x\.safetensors', not a \.safetensors file beside it"),
        ("sub\\x.safetensors", ModelFormatError, r"not a \.safetensors file beside it"),
        ("pytorch_model.bin", ModelFormatError, r"'pytorch_model\.bin', not a \.safetensors file beside it"),
    ],
)
def test_broken_folders(case: str, kind: type[ForebayError], message: str, tmp_path: Path) -> None:
    broken_folder(tmp_path / "m", case)
    with pytest.raises(kind, match=message) as caught:
        open_checkpoint(tmp_path / "m")
    assert "\n" not in caught.value.message


def entry(shape: list[Any], begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def raw_safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


CORRUPT = {
    "empty": (b"", "0 bytes are too few"),
    "header length": (raw_safetensors({}, length=2**64 - 1), "header length 18446744073709551615 does not fit"),
    "not JSON": (raw_safetensors(b"\x80\x02}q\x00."), "header is not valid JSON"),
    "list": (raw_safetensors([]), "header is not a JSON object"),
    "key twice": (raw_safetensors(b'{"a": 1, "a": 2}'), "a key appears twice"),
    "huge number": (raw_safetensors(b'{"a": ' + b"9" * 5000 + b"}"), "header is not valid JSON"),
    "not an entry": (raw_safetensors({"a": 1}), "tensor 'a' is not described by"),
    "dtype": (raw_safetensors({"a": entry([1], 0, 4, 7)}, bytes(4)), "tensor 'a' has a dtype that is not a string"),
    "negative shape": (raw_safetensors({"a": entry([-1], 0, 4)}, bytes(4)), "tensor 'a' has an impossible shape"),
    "float shape": (raw_safetensors({"a": entry([1.0], 0, 4)}, bytes(4)), "tensor 'a' has an impossible shape"),
    "true shape": (raw_safetensors({"a": entry([True], 0, 4)}, bytes(4)), "tensor 'a' has an impossible shape"),
    "negative offset": (raw_safetensors({"a": entry([1], -4, 0)}, bytes(4)), "tensor 'a' has impossible data_offsets"),
    "reversed": (raw_safetensors({"a": entry([1], 4, 0)}, bytes(4)), r"tensor 'a' lies at 4\.\.0"),
    "past the end": (raw_safetensors({"a": entry([2], 0, 8)}, bytes(4)), r"tensor 'a' lies at 0\.\.8, outside"),
    "size": (raw_safetensors({"a": entry([2], 0, 4)}, bytes(4)), r"tensor 'a' of shape \[2\] and dtype F32 cannot"),
    "overflow": (raw_safetensors({"a": entry([2**62, 4], 0, 0)}), "tensor 'a' of shape"),
    "overlap": (
        raw_safetensors({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, bytes(8)),
        "tensor 'b' begins at 4, expected 8",
    ),
    "hole": (raw_safetensors({"a": entry([1], 4, 8)}, bytes(8)), "tensor 'a' begins at 4, expected 0"),
    "left over": (raw_safetensors({"a": entry([1], 0, 4)}, bytes(8)), "the tensors end at byte 4 of the data section"),
}


@pytest.mark.parametrize("case", CORRUPT)
def test_corrupt_files_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    content, message = CORRUPT[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=message) as caught:
        SafetensorsFile(path)
    assert "\n" not in caught.value.message


def test_other_dtypes_are_named_when_asked_for(tmp_path: Path) -> None:
    """Old checkpoints carry boolean masks nobody reads; they must not keep the model from loading."""
    path = tmp_path / "model.safetensors"
    header = {"mask": entry([4], 0, 4, "BOOL"), "new": entry([2], 4, 5, "F4"), "none": entry([0, 3], 5, 5)}
    path.write_bytes(raw_safetensors(header, bytes(5)))
    file = SafetensorsFile(path)
    with pytest.raises(
        UnsupportedModelError, match="tensor 'mask' has dtype 'BOOL'; use a checkpoint in F32, F16, BF16"
    ):
        file.tensor("mask")
    with pytest.raises(UnsupportedModelError, match="tensor 'new' has dtype 'F4'"):
        file.tensor("new")
    with pytest.raises(ModelFormatError, match=r"tensor 'none' is empty \(shape \[0, 3\]\)"):
        file.tensor("none")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_refused_by_name(name: str, tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / name)
    (tmp_path / "config.json").write_text("{}")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(UnsupportedModelError, match=f"{name} is a pickle.*save the model as safetensors"):
            open_checkpoint(path)


def test_other_paths_say_what_to_give(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    with pytest.raises(ModelSourceError, match="is one file of a model: give its folder"):
        open_checkpoint(folder / "model.safetensors")
    with pytest.raises(ModelSourceError, match="does not exist"):
        open_checkpoint(tmp_path / "nothing")
    with pytest.raises(ModelSourceError, match="does not exist"):
        open_checkpoint(tmp_path / "nothing.bin")
    ggufs = tmp_path / "ggufs"
    ggufs.mkdir()
    (ggufs / "a.gguf").touch()
    with pytest.raises(ModelSourceError, match=r"is a folder of GGUF files: name one, such as .*a\.gguf"):
        open_checkpoint(ggufs)
    with pytest.raises(ModelSourceError, match=r"has no config\.json"):
        open_checkpoint(tmp_path)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = write_folder(tmp_path_factory.mktemp("fuzz") / "m")
    return folder, (folder / "model.safetensors").read_bytes()


@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_flipped_and_cut_files_are_survived(valid: tuple[Path, bytes], data: st.DataObject) -> None:
    folder, content = valid
    spoiled = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for position in data.draw(st.lists(st.integers(0, len(content) * 8 - 1), max_size=6)):
        if position // 8 < len(spoiled):
            spoiled[position // 8] ^= 1 << position % 8
    (folder / "model.safetensors").write_bytes(spoiled)
    message = ""
    try:
        checkpoint = open_checkpoint(folder)
        for name in checkpoint.tensor_names():
            checkpoint.tensor(name).dequantize()
    except (ModelFormatError, UnsupportedModelError) as error:
        message = error.message
    assert message.isprintable()
