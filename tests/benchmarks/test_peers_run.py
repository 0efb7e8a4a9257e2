"""One stage from start to document, with a toy in the place of engines: who fails is left behind with a reason, what
was not measured stays, and memory, start and cells are what they say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import document
import pytest
from cells import GROUPS, LARGER, LONG, MAIN, Cell, Group, cell_named, groups_for, measure_driver, stage_of
from floors import Floors
from peer import Peer, Setting
from processes import PeakPss, PeerError
from run import Run, Stage, Transport, stages

from forebay.bench.result import read_result

TOY = Path(__file__).parent / "toy_driver.py"
SHORT = Group(
    "main",
    in_process=(Cell("1 stream", 1, 2, prompt=16, output=4), Cell("8 streams", 8, 8, prompt=16, output=4, memory=True)),
    warmup=Cell("warm-up", 1, 1, prompt=16, output=2),
    max_len=32,
    scored_chunks=1,
)


class Toys(Peer):
    name = "toys"
    driver = str(TOY)
    settings = (
        Setting("whole", "Q4_1", "f16"),
        Setting("broken", "Q4_1", "f16", {"fails_after": 4}),
        Setting("left-out", "Q4_1", "f16"),
        Setting("other", "Q4_1", "f16", groups=("long",)),
    )

    def __init__(self, file: Path) -> None:
        self._file = file

    def install(self) -> None:
        pass

    def installed(self) -> bool:
        return True

    def model(self, setting: Setting) -> Path:
        return self._file

    def python(self) -> Path:
        return Path(sys.executable)


@pytest.fixture(scope="module")
def toys(smollm2_path: Path) -> Toys:
    return Toys(smollm2_path)


def stage_of_toys(group: Group = SHORT) -> Stage:
    transport = Transport(
        "in_process",
        lambda peer, setting, limits: peer.start_driver(setting, limits),
        measure_driver,
        lambda peer: True,
    )
    return Stage(transport, group)


@pytest.fixture(scope="module")
def measured(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREBAY_PEERS_DIR", str(tmp_path_factory.mktemp("peers")))
        run = Run("smollm2-135m", set(), 2, "toys left-.*")
        run.measure(stage_of_toys(), [toys])
    return run


def test_every_cell_is_measured_in_every_round(measured: Run) -> None:
    whole = [row for row in measured.found.rows if row["setting"] == "whole"]
    assert [(row["round"], row["cell"]) for row in whole] == [
        (0, "1 stream"), (0, "8 streams"), (1, "1 stream"), (1, "8 streams")
    ]  # fmt: skip
    assert {row["tokens_missing"] for row in whole} == {0}
    assert ["pss_mb" in row for row in whole] == [False, True, False, True]
    assert all(1 < row["pss_mb"] < 100 for row in whole if "pss_mb" in row)


def test_an_engine_that_fails_keeps_its_rows_and_says_why(measured: Run) -> None:
    """First request, warm-up and two of the first cell are the four that it takes."""
    broken = [row for row in measured.found.rows if row["setting"] == "broken"]
    assert [(row["round"], row["cell"]) for row in broken] == [(0, "1 stream")]
    assert measured.found.unavailable == {"in_process/toys broken": "RuntimeError: the toy is broken"}


def test_settings_of_other_groups_and_skipped_ones_are_left_out(measured: Run) -> None:
    assert set(measured.found.facts) == {"in_process/toys whole", "in_process/toys broken"}


def test_the_facts_say_how_long_it_took_to_start_and_what_room_there_is(measured: Run) -> None:
    facts = measured.found.facts["in_process/toys whole"]
    assert facts["start_s"] > facts["load_s"]  # the interpreter starts before it loads anything
    assert facts["first_token_s"] > 0
    assert facts["kv_tokens"] == facts["facts"]["given"]["kv_tokens"] == 8 * 32
    assert facts["version"] == "toy 1"


def test_an_engine_that_does_not_start_is_left_behind(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FOREBAY_PEERS_DIR", str(tmp_path))
    run = Run("smollm2-135m", set(), 1, "toys (whole|broken)")
    monkeypatch.setattr(Toys, "driver", str(TOY.with_name("missing.py")))
    run.measure(stage_of_toys(), [toys])
    assert run.found.rows == []
    assert "the driver ended" in run.found.unavailable["in_process/toys left-out"]


def test_what_is_not_measured_again_stays(measured: Run, tmp_path: Path) -> None:
    def rows(cell: str, **more: Any) -> dict[str, Any]:
        return {**measured.found.rows[0], "cell": cell, **more}

    def found(name: str, *made: dict[str, Any]) -> document.Findings:
        return document.Findings(rows=list(made), facts={name: {}}, unavailable={f"{name}x": "no", "engine": "no"})

    path = tmp_path / "peers.json"
    first, long = rows("1 stream", engine="old"), rows(LONG.in_process[0].name, engine="old")
    web = rows("1 stream", engine="old", transport="http")
    document.write("smollm2-135m", found("in_process/old q", first), ["in_process"], tmp_path)
    document.write("smollm2-135m", found("in_process, long/old q", long), ["in_process, long"], tmp_path)
    document.write("smollm2-135m", found("http/old q", web), ["http"], tmp_path)
    assert [row["engine"] for row in read_result(path).rows] == ["old"] * 3
    document.write("smollm2-135m", found("in_process/new q", rows("1 stream", engine="new")), ["in_process"], tmp_path)
    result = read_result(path)
    assert [(row["engine"], stage_of(row)) for row in result.rows] == [
        ("old", "in_process, long"), ("old", "http"), ("new", "in_process")
    ]  # fmt: skip
    assert set(result.target["facts"]) == {"in_process, long/old q", "http/old q", "in_process/new q"}
    assert "in_process/old qx" not in result.target["unavailable"]
    assert "http/old qx" in result.target["unavailable"]
    assert len(result.target["commands"]) == 4
    assert (tmp_path / "peers.md").read_text().startswith("### Engines")
    assert document.file_name("qwen2.5-coder-0.5b") == "peers-qwen2.5-coder-0.5b"


def test_groups_are_chosen_by_name() -> None:
    assert groups_for(False, None) == [MAIN]
    assert groups_for(False, "long") == [LONG]
    assert groups_for(False, "long,main") == [MAIN, LONG]
    assert groups_for(True, None) == [LARGER]
    with pytest.raises(ValueError, match=r"--cells 'lang' is not known; choose from main, long"):
        groups_for(False, "lang")
    with pytest.raises(ValueError, match="a larger model has cells of its own"):
        groups_for(True, "long")


def test_a_stage_is_a_group_that_has_cells_over_a_transport(measured: Run) -> None:
    found = stages(measured, [MAIN, LONG], ["http", "in_process"])
    assert [stage.name for stage in found] == ["in_process", "in_process, long", "http"]
    assert found[1].limits.concurrency == 1


def test_cells_of_one_name_have_one_prompt_and_fit_their_room() -> None:
    for group in GROUPS.values():
        for cell in (*group.in_process, *group.http):
            known = cell_named(cell.name)
            assert (known.prompt, known.streams, known.ranked_by) == (cell.prompt, cell.streams, cell.ranked_by)
            assert cell.prompt + cell.output <= group.max_len
    assert LONG.max_len <= 8192  # positions of the model


def test_every_engine_names_groups_that_exist() -> None:
    from catalog import PEERS

    for peer in PEERS:
        assert {name for setting in peer.settings for name in setting.groups} <= set(GROUPS)
        assert len({setting.name for setting in peer.settings}) == len(peer.settings)
        assert not any(" " in word for word in (peer.name, *(setting.name for setting in peer.settings)))


def test_a_larger_model_that_cannot_be_made_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import model_files

    monkeypatch.setenv("FOREBAY_PEERS_DIR", str(tmp_path))
    monkeypatch.setattr(model_files, "ASSEMBLER", tmp_path / "get_models.py")
    with pytest.raises(PeerError, match=r"0.5b-instruct-q4_k_m.gguf is missing, and so is .*get_models.py"):
        Run("qwen2.5-coder-0.5b", set(), 1, None)
    with pytest.raises(PeerError, match="in Q4_K_M only, not in Q8_0"):
        model_files.larger_gguf("qwen2.5-coder-0.5b", "Q8_0")


def test_floors_are_of_cells_of_one_stream(smollm2_path: Path) -> None:
    floors = Floors(1)
    floors.add(smollm2_path, "f16", (*MAIN.in_process, *LONG.in_process))
    floors.sample()
    short, long = (floors.of(smollm2_path, "f16", group.in_process[0]) for group in (MAIN, LONG))
    assert 0 < short["decode_floor_s"] < long["decode_floor_s"]  # more keys and values to read
    assert 0 < 10 * short["prompt_floor_s"] < long["prompt_floor_s"]
    assert floors.of(smollm2_path, "f16", replace(MAIN.in_process[0], streams=8)) == {}
    assert {row["kind"] for row in floors.rows()} == {"read", "dot_u4", "dot_u8", "fma_f32"}


HOLDER = """
import os, sys
held = bytearray(os.urandom(1)) * (64 << 20)
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_page_that_two_processes_share_counts_once() -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        with PeakPss(lambda: [holder.pid, *map(int, children)], every_s=0.01) as both:
            assert len(children) == 1
        assert 64 * 1.048 < both.mb < 1.5 * 64
        holder.communicate()
