"""Small by habit: the loop is a few lines, files and functions are mostly short, exceptions to the checkers say why."""

from __future__ import annotations

import io
import re
import tokenize

import pytest

from tests.architecture.source import PACKAGE, REPOSITORY, functions, length, modules

FILE_LINES = 400  # mostly
FILE_LINES_EVER = 600
FUNCTION_LINES = 35  # mostly
FUNCTION_LINES_EVER = 60
MOSTLY = 0.97


def share(short: int, of: int) -> float:
    return short / max(1, of)


def test_files_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {str(p.relative_to(PACKAGE)): len(p.read_text("utf-8").splitlines()) for p in PACKAGE.rglob("*.py")}
    longest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    with capsys.disabled():
        print(f"\n{sum(sizes.values())} lines in {len(sizes)} files; longest: {longest}")
    assert {path: n for path, n in sizes.items() if n > FILE_LINES_EVER} == {}
    assert share(sum(n <= FILE_LINES for n in sizes.values()), len(sizes)) >= MOSTLY


def test_functions_are_short() -> None:
    sizes = {f"{path}:{f.name}": length(f) for path, tree in modules().items() for f in functions(tree)}
    long = {name: n for name, n in sizes.items() if n > FUNCTION_LINES}
    assert {name: n for name, n in sizes.items() if n > FUNCTION_LINES_EVER} == {}
    assert 1 - share(len(long), len(sizes)) >= MOSTLY, long


def test_the_step_is_five_verbs() -> None:
    """A new feature never adds a line to EngineCore.step."""
    steps = [f for f in functions(modules()["engine/core.py"]) if f.name == "step"]
    assert len(steps) == 1
    assert length(steps[0]) <= 20


def test_no_module_has_mutable_globals_by_statement() -> None:
    """State has one owner: nobody rebinds a module's name from inside a function."""
    found = [path for path in modules() if re.search(r"^\s+global ", (PACKAGE / path).read_text("utf-8"), re.MULTILINE)]
    assert found == []


def test_exceptions_to_the_type_checker_say_why() -> None:
    found = []
    for folder in ("src", "tests"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
                if token.type != tokenize.COMMENT or "type: ignore" not in token.string:
                    continue
                if not re.search(r"type: ignore\[[\w, -]+\]\s*(#|--)\s*\w+", token.string):
                    found.append(f"{path.relative_to(REPOSITORY)}:{token.start[0]}")
    assert found == []


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    sources = [p for f in ("src", "csrc") for p in (REPOSITORY / f).rglob("*") if p.suffix in (".py", ".h", ".cpp")]
    assert [str(p.relative_to(REPOSITORY)) for p in sources if marks.search(p.read_text("utf-8"))] == []
