# make serve   install, fetch the default model, serve it   (ARGS="--api-keys keys.toml" HOST=0.0.0.0 for others)
# make test    install with the test extras, run every test   (ARGS="tests/kvcache -k fork" for some)
# make check   lint, format, types, import contracts
# make docs    write the tables of docs/ from the code
# make wheel   build dist/*.whl
# make bench-peers   measure other engines beside this one (installs them; an hour, and nothing else may run)

HOST  ?= 127.0.0.1
PORT  ?= 8000
MODEL ?= smollm2-135m
ARGS  ?=
VENV  ?= .venv
BIN   := $(VENV)/bin
# the first Python here that is new enough
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# An editable install follows src/ by itself; only a change of these needs a new one.
BUILT_FROM := pyproject.toml $(wildcard CMakeLists.txt) $(shell find csrc -type f 2>/dev/null)
SERVE := $(VENV)/.installed
TEST  := $(VENV)/.installed-test

.PHONY: serve install test check docs wheel bench-peers clean

serve: $(SERVE)
	@$(BIN)/forebay pull $(MODEL)
	@exec $(BIN)/forebay serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

install: $(SERVE)

test: $(TEST)
	$(BIN)/python -m pytest $(ARGS)

check: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(TEST)
	$(BIN)/python -m tests.support.doc_tables

wheel: $(TEST)
	$(BIN)/python -m build --wheel --outdir dist .

bench-peers: $(TEST)
	$(BIN)/python benchmarks/peers/run.py $(ARGS)

clean:
	rm -rf $(VENV) build dist

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "forebay needs Python 3.11 or newer; install it, or run: make PYTHON=/path/to/python" >&2; exit 2; }
	@command -v $${CXX:-c++} >/dev/null || { echo "forebay needs a C++17 compiler; install g++ or clang++, or set CXX" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(SERVE): $(BUILT_FROM) | $(BIN)/python
	@echo 'Installing forebay into $(VENV) and compiling its kernels; this takes a minute or two.'
	@$(BIN)/python -m pip install -qq --editable .
	@touch $@

# torch first and alone: the CPU wheel is taken where one is at hand, and no later line reaches for another
$(TEST): $(BUILT_FROM) | $(BIN)/python
	$(BIN)/python -m pip install -qq 'torch==2.13.*'
	$(BIN)/python -m pip install -qq --editable '.[test]'
	@touch $@ $(SERVE)
