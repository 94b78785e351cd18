# The words of the project; `make help` lists them. Every word but `setup` runs inside $(VENV).
VENV ?= .venv
PYTHON ?= python3
ARGS ?=

BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/.installed
CODE := $(wildcard src tests benchmarks examples notebooks docs/tools)
PROSE := $(wildcard docs *.md Makefile .ci pyproject.toml mkdocs.yml)

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: setup demo lint type test test-slow test-gpu test-browser bench docs site clean help

setup: $(STAMP) ## create the virtual environment and install the package with its development tools

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -e ".[dev,docs]"
	touch $@

demo: $(STAMP) ## make a small data set, train on it, evaluate, draw predictions (CPU, minutes)
	PATH="$(BIN):$$PATH" bash examples/demo.sh

lint: type ## formatting, style, import direction, types, spelling
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports
	$(BIN)/codespell $(CODE) $(PROSE)

type: $(STAMP) ## types only
	$(BIN)/mypy

test: $(STAMP) ## the CPU suite: neither slow nor on a GPU nor in a browser
	$(BIN)/pytest -n auto $(ARGS)

# pytest answers 5 when it collects nothing: an error as soon as a test carries the mark.
test-slow: $(STAMP) ## the CPU tests that take minutes
	$(BIN)/pytest -n auto -m "slow and not gpu and not browser" $(ARGS) || { [ $$? -eq 5 ] && ! grep -rqE "mark\.slow\b" tests; }

test-gpu: $(STAMP) ## the tests that need a CUDA device
	$(BIN)/pytest -m gpu $(ARGS)

# The pages of `lucid-export --format web` run on this npm package; without npm their tests are skipped and say so.
WEB_RUNTIME := build/web/node_modules/onnxruntime-web
$(WEB_RUNTIME):
	-npm install --prefix build/web --no-audit --no-fund --ignore-scripts onnxruntime-web@1.30.0

test-browser: $(STAMP) $(WEB_RUNTIME) ## the tests that open pages in headless Chromium
	$(BIN)/pytest -m browser $(ARGS)

bench: $(STAMP) ## time the training step: loader, computation, end to end; ARGS="..." adds flags
	$(BIN)/lucid-bench step $(ARGS)

docs: $(STAMP) ## run every example in a docstring, follow every link, parse every command on a page
	$(BIN)/pytest --doctest-modules tests/test_frame.py tests/test_docs.py tests/test_python_api.py src

site: $(STAMP) ## build the documentation into build/site, which opens from the disk
	PATH="$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 mkdocs build --strict

clean: ## remove caches and build products; keeps runs, data and the environment
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
