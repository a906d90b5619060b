# DGSF: one command each. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PORT ?= 8700
DATA_DIR ?= .dgsf

.PHONY: help setup demo up check format test test-fast traces opinfo bench clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# Stamps hold what was installed, so that a second run starts at once.
$(VENV)/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "DGSF needs Python 3.11 or later; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "this Python cannot make virtual environments: install python3-venv, or set PYTHON="; exit 1; }
	@echo "making $(VENV) and installing (about 2 minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --progress-bar on -q -c constraints.txt -e '.[torch]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "installing what the tests need"
	$(PIP) install --progress-bar on -q -c constraints.txt -e '.[torch,dev,sim]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing what the benchmarks compare with"
	$(PIP) install --progress-bar on -q -c constraints.txt -e '.[torch,dev,sim,bench]'
	@touch $@

setup: $(VENV)/.dev ## make .venv with everything for development

demo: $(VENV)/.base ## start all, deploy and call sample functions, show the bill, stop (on a free port, or PORT=)
	@$(BIN)/dgsf demo $(if $(filter-out file,$(origin PORT)),--port $(PORT))

up: $(VENV)/.base ## start the platform and stay (PORT=8700 DATA_DIR=.dgsf)
	@$(BIN)/dgsf up --port $(PORT) --data-dir $(DATA_DIR)

check: $(VENV)/.dev ## ruff, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(VENV)/.dev ## all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit tests/property tests/integration tests/security tests/e2e tests/chaos

test-fast: $(VENV)/.dev ## only the pure tests, in seconds
	$(BIN)/python -m pytest tests/unit tests/property

traces: $(VENV)/.dev ## keep-warm over the published traces, where you have them (2 minutes)
	$(BIN)/python -m pytest -n 2 tests/traces

opinfo: $(VENV)/.dev ## every operator and module case of torch on the remote device (from 3 minutes on; OPINFO='--over session')
	OMP_NUM_THREADS=1 $(BIN)/python tests/opinfo/run.py --known tests/opinfo/KNOWN.md $(OPINFO)
	OMP_NUM_THREADS=1 $(BIN)/python tests/opinfo/run.py --derivatives --known tests/opinfo/KNOWN.md $(OPINFO)
	OMP_NUM_THREADS=1 $(BIN)/python tests/opinfo/run.py --modules --known tests/opinfo/KNOWN.md $(OPINFO)

bench: $(VENV)/.bench ## the numbers, beside their peers (needs wrk, and a quiet machine)
	$(BIN)/python -m loadtests.bench $(BENCH)

clean: ## remove what was installed and cached (data in .dgsf stays)
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
