"""Imports point down; deciding needs neither torch nor numpy; the environment is read in one file."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.architecture.source import REPOSITORY, functions, modules

PLAIN = ("core", "profile", "observe", "kvcache", "scheduler", "tokenizer", "server")  # no torch, triton, ray
PLAINEST = ("core", "profile", "observe", "kvcache", "scheduler")  # no numpy either
HEAVY = {"torch", "triton", "ray", "transformers", "jax", "tensorflow"}

# Walks a package and prints which of the named modules came in with it.
_PROBE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(found.name)
print(" ".join(sorted(set(sys.argv[2:]) & set(sys.modules))))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_import_contracts_hold() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    done = run("-c", code)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PLAIN)
def test_no_heavy_import(package: str) -> None:
    forbidden = HEAVY | ({"numpy"} if package in PLAINEST else set())
    done = run("-c", _PROBE, f"forebay.{package}", *sorted(forbidden))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_no_module_of_the_default_install_needs_torch() -> None:
    """Whatever is imported, torch and transformers stay out: they are not installed by default."""
    done = run("-c", _PROBE, "forebay", *sorted(HEAVY))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_the_environment_is_read_in_env_only() -> None:
    readers = {"environ", "getenv", "putenv", "environb"}
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path != "env.py"
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in readers)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and readers & {a.name for a in node.names})
    ]
    assert found == []


def may_import_late(path: str) -> bool:
    return path.startswith("cli/") or path.endswith("registry.py") or path == "__init__.py"


def test_no_first_party_import_inside_a_function() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if not may_import_late(path)
        for function in functions(tree)
        for node in ast.walk(function)
        if (isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("forebay")))
        or (isinstance(node, ast.Import) and any(a.name.startswith("forebay") for a in node.names))
    ]
    assert found == []
