"""Public names, the error tree, and what the documents say of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from forebay import errors
from tests.architecture.source import PACKAGE, REPOSITORY
from tests.support.doc_tables import TABLES, documents, error_classes, up_to_date

PUBLIC = {"LLM", "AsyncLLM", "Profile", "SamplingParams"}


def test_public_names_are_what_can_be_imported() -> None:
    assert set(forebay.__all__) >= PUBLIC
    for name in forebay.__all__:
        assert getattr(forebay, name) is not None
    assert set(forebay.__all__) <= set(dir(forebay))
    with pytest.raises(AttributeError):
        forebay.NoSuchName  # noqa: B018  # the lookup is the test


def test_import_forebay_loads_nothing_heavy() -> None:
    """Public names are lazy: the package alone brings neither numpy nor the server's libraries."""
    code = (
        "import sys, forebay; print(' '.join({'numpy', 'fastapi', 'zmq', 'tokenizers', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_error_has_a_code_of_its_own_and_comes_back_over_a_wire() -> None:
    classes = error_classes()
    codes = [cls.code for cls in classes]
    assert len(set(codes)) == len(codes)
    for cls in classes:
        back = errors.error_named(cls.code, "it broke", param="field", retry_after=2.5)
        assert type(back) is cls
        assert (back.message, back.param) == ("it broke", "field")
    assert isinstance(errors.error_named("no_such_code", "?"), errors.InternalError)


def test_the_error_tree_in_the_docstring_is_the_tree() -> None:
    drawn = set(re.findall(r"\b\w+Error\b", errors.__doc__ or ""))
    assert drawn == {name for name in vars(errors) if name.endswith("Error")}


def test_generated_tables_are_up_to_date() -> None:
    stale = [path.name for path in documents() if up_to_date(path.read_text("utf-8")) != path.read_text("utf-8")]
    assert stale == [], "run `make docs`"


def test_every_table_stands_in_a_document() -> None:
    """So every profile field, metric, error code and environment variable is documented."""
    text = "".join(path.read_text("utf-8") for path in documents())
    assert {name for name in TABLES if f"<!-- table: {name} -->" not in text} == set()


def test_where_is_names_only_what_exists() -> None:
    text = (REPOSITORY / "docs" / "where_is.md").read_text("utf-8")
    named = set(re.findall(r"`((?:src|csrc|tests|docs|\.ci)[\w./-]*)`", text))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (REPOSITORY / path).exists()] == []


def test_every_package_says_what_it_is() -> None:
    """Each package has a docstring and a line in where_is.md."""
    text = (REPOSITORY / "docs" / "where_is.md").read_text("utf-8")
    packages = sorted(p.parent for p in PACKAGE.rglob("__init__.py"))
    assert [str(p) for p in packages if not (p / "__init__.py").read_text("utf-8").lstrip().startswith('"""')] == []
    tops = [p.name for p in packages if p.parent == PACKAGE]
    assert [name for name in tops if f"src/forebay/{name}/" not in text] == []


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text("utf-8"))
    assert [t for t in targets if not (document.parent / t).exists()] == []
