# What a newcomer, a contributor and the CI run. Every target prepares what it needs in a virtual environment
# of its own and installs again only when pyproject.toml has changed.

new_enough = $(shell $(1) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(1))
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(call new_enough,$(name))) python3)
PIP_INSTALL := -m pip --disable-pip-version-check install -qq --editable
ARGS ?=

.PHONY: help demo test lint format docs oracle silicon browser refit clean
.NOTPARALLEL:

help:
	@echo "make demo     the best speculative settings for a mixture-of-experts model on an H100, with the reasons"
	@echo "make test     every test and doctest; ARGS='tests/test_house.py -x' narrows it"
	@echo "make lint     ruff (rules and format) and mypy --strict"
	@echo "make format   let ruff rewrite what it can"
	@echo "make docs     the documentation, into docs/_build/html"
	@echo "make oracle   tests against torch and transformers, in an environment of their own (.venv-oracle)"
	@echo "make silicon  tests against measured kernel tables, in an environment of their own (.venv-silicon)"
	@echo "make browser  tests of the explorer in Chromium, in an environment of their own (.venv-browser)"
	@echo "make refit    fit the measured constants of hardware_profiles/ and docs/silicon.md again"
	@echo "make clean    remove environments, caches and build products"
	@echo "PYTHON=...    the interpreter the environments start from, 3.11 or newer"

demo: .venv/installed
	.venv/bin/latency-model optimize -m Qwen3-30B-A3B -H h100-sxm --draft eagle3 \
		--acceptance .70,.62,.60,.58 -b 1,4,16,64,256 -c 4096

test: .venv/installed-test
	.venv/bin/python -m pytest $(ARGS)

lint: .venv/installed-test
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: .venv/installed-test
	.venv/bin/ruff check --fix-only .
	.venv/bin/ruff format .

docs: .venv/installed-docs
	.venv/bin/python -m sphinx -q -W --keep-going -j auto -b html docs docs/_build/html

oracle: .venv-oracle/installed
	.venv-oracle/bin/python -m pytest -m oracle $(ARGS)

silicon: .venv-silicon/installed
	.venv-silicon/bin/python -m pytest -m silicon $(ARGS)

browser: .venv-browser/installed
	.venv-browser/bin/python -m pytest -m browser $(ARGS)

refit: .venv-silicon/installed
	.venv-silicon/bin/python -m latency_model.evidence.refit

clean:
	rm -rf .venv .venv-oracle .venv-silicon .venv-browser build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed: pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing latency-model into .venv ..."
	@.venv/bin/python $(PIP_INSTALL) .
	@touch $@

.venv/installed-%: pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing latency-model and its '$*' extra into .venv ..."
	@.venv/bin/python $(PIP_INSTALL) '.[$*]'
	@touch $@

.venv-oracle/installed: pyproject.toml | .venv-oracle/pyvenv.cfg
	@echo "Installing latency-model, torch (CPU) and transformers into .venv-oracle ..."
	@.venv-oracle/bin/python $(PIP_INSTALL) '.[test,oracle]' || { \
		echo "If pip found no torch +cpu build: tell it where yours is, see 'Oracle tests' in CONTRIBUTING.md." >&2; exit 1; }
	@touch $@

.venv-silicon/installed: pyproject.toml | .venv-silicon/pyvenv.cfg
	@echo "Installing latency-model and the measured kernel tables into .venv-silicon ..."
	@.venv-silicon/bin/python $(PIP_INSTALL) '.[test,silicon]'
	@touch $@

.venv-browser/installed: pyproject.toml | .venv-browser/pyvenv.cfg
	@echo "Installing latency-model, Dash and Selenium into .venv-browser ..."
	@.venv-browser/bin/python $(PIP_INSTALL) '.[test,browser]'
	@touch $@

%/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "latency-model needs Python 3.11 or newer, and '$(PYTHON)' is not: name another, as in 'make $(MAKECMDGOALS) PYTHON=/path/to/python3.12'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot create virtual environments: install its venv module (on Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	@$(PYTHON) -m venv $*
