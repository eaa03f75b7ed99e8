# The tasks of a developer. `make` alone lists them.

PYTHON ?= python3
STAGE ?= dev
# How many processes share the tests out; by default one for each core, and with 0 none.
JOBS ?= auto
VENV := .venv
BIN := $(VENV)/bin
# Newer than pyproject.toml and constraints.txt once they are installed: what a host needs, and everything. The CDK alone
# is half a gigabyte.
HOST := $(VENV)/.installed-host
INSTALLED := $(VENV)/.installed
# The local emulator of AWS, in an environment of its own: nothing of ours is in it, so a fault of the bundle shows.
EMULATOR := .venv-emulator
EMULATED := $(EMULATOR)/.installed
CDK := node_modules/.installed

.DEFAULT_GOAL := help
.PHONY: help demo dev test e2e check bundle synth clean

help: ## List these tasks
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(HOST) ## Watch the order pipeline at work; ends by itself
	@$(BIN)/python scripts/demo.py

dev: $(HOST) ## Run the order pipeline on this machine until Ctrl-C; its data stays in ./data
	$(BIN)/iii-runtime dev functions

# Many tests start Python, which takes half as long with what it has compiled before.
test: $(INSTALLED) ## Run all tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS)

e2e: $(INSTALLED) $(EMULATED) $(CDK) ## Deploy to a local emulator of AWS with the CDK, and drive what came of it
	$(BIN)/python -m pytest tests/e2e --timeout 600 -p no:randomly

check: $(INSTALLED) ## Check format, lint, types, layers and house rules
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	MYPYPATH=scripts $(BIN)/mypy scripts/*.py
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house

bundle: $(INSTALLED) ## Build what the Lambdas run, into build/lambda
	$(BIN)/iii-runtime bundle

synth: bundle ## Synthesise the stacks of a stage into cdk.out: make synth STAGE=prod
	@rm -rf cdk.out
	CDK_CONTEXT_JSON='{"stage": "$(STAGE)"}' $(BIN)/python app.py

clean: ## Remove everything that was made here, except ./data
	rm -rf $(VENV) $(EMULATOR) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build cdk.out node_modules dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(HOST): pyproject.toml constraints.txt
	$(call install,embedded,about half a minute)

$(INSTALLED): pyproject.toml constraints.txt
	$(call install,dev,one to three minutes)
	@touch $(HOST)

$(EMULATED): tests/e2e/emulator-requirements.txt
	@echo "installing the emulator into $(EMULATOR) (half a minute the first time)"
	@test -x $(EMULATOR)/bin/python || $(PYTHON) -m venv $(EMULATOR)
	@$(EMULATOR)/bin/python -m pip install -qq --disable-pip-version-check --requirement $<
	@touch $@

$(CDK): package.json package-lock.json
	@npm ci --no-audit --no-fund --loglevel error
	@touch $@

# Installs an extra into the environment: $(call install,EXTRA,HOW LONG).
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is too old or missing: Python 3.11 or newer is needed, as in make PYTHON=python3.11" >&2; exit 1; }
	@echo "installing into $(VENV) ($(2) the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[$(1)]'
	@touch $@
endef
