# Everything Steno needs from a clean clone, with nothing but Python 3.11, pip, make and git.
#   make demo        the tour: no account, no network after set-up
#   make test        every gate, and most claims tested once (some 12 minutes on two cores)
#   make test-ci     what CI runs beside it: dear claims, longer stories, other versions and pages (some 8 minutes)
#   make near        the quick tests of what you changed, without servers (some two minutes)
#   make check       every gate and the quick tests (some five minutes)
#   make test-long   what takes longer than that
#   make bench       every target beside what it is compared with; BENCH="replay --full": one, at its largest
#   make bench-docs  the same, into docs/performance.md and its picture
#   make reasons-docs  the tables of causes and remedies, into docs/reasons.md
#   make dist        wheel, sdist and their bill of materials (CycloneDX) into dist/
#   make setup       .venv with .venv/bin/steno; EXTRAS="questions otlp": and these extras of pyproject.toml

PYTHON ?= python3
UV := .tools/bin/uv
BIN := .venv/bin
export UV_PYTHON_DOWNLOADS := never
# `python3` is the system's: the one of .venv, which README puts on the PATH, has no pip.
export PATH := $(subst $(CURDIR)/$(BIN):,,$(PATH))
# Where it is set, every process compiles whatever it imports once more.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo setup near check test test-ci test-long lab gates bytecode lock bench bench-docs reasons-docs dist clean

demo: setup
	@$(BIN)/steno demo

setup: .venv/.run
ifdef EXTRAS
	@for extra in $(EXTRAS); do sed -n '/^\[project.opt/,/^$$/p' pyproject.toml | grep -q "^$$extra = " || { echo "there is no extra $$extra"; exit 2; }; done
	@$(UV) pip install --quiet --python .venv --constraint requirements-dev.lock --editable ".[$$(echo $(EXTRAS) | tr ' ' ,)]"
endif

$(UV): requirements-setup.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Steno needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …")'
	@echo "Installing uv into .tools"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --require-hashes --upgrade --target .tools -r requirements-setup.lock
	@touch $(UV)

.venv/pyvenv.cfg: | $(UV)
	@rm -rf .venv # a set-up that was interrupted may have left a part of it
	@$(UV) venv --quiet --python $(PYTHON) .venv

.venv/.run: requirements.lock pyproject.toml | .venv/pyvenv.cfg $(UV)
	@echo "Installing Steno and its dependencies into .venv: up to some minutes, once"
	@$(UV) pip install --quiet --python .venv --compile-bytecode --require-hashes -r requirements.lock
	@$(UV) pip install --quiet --python .venv --no-deps --editable .
	@$(BIN)/python -m compileall -q cli engine events projections
	@touch $@

.venv/.dev: requirements-dev.lock pyproject.toml | .venv/pyvenv.cfg $(UV)
	@$(UV) pip sync --quiet --python .venv --require-hashes requirements-dev.lock
	@$(UV) pip install --quiet --python .venv --no-deps --editable .
	@touch .venv/.run $@

lab: .venv/.dev
	@$(BIN)/python tests/lab/setup.py

gates: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=tests/support $(BIN)/python -m stenotest.words
	$(UV) pip check --quiet --python .venv

near: .venv/.dev
	@PYTHONPATH=tests/support $(BIN)/python -m stenotest.near -n 2

check: gates
	$(BIN)/pytest -q -n 2 -m "not slow and not lab and not ci and not long"

# The gates, the lab's set-up and the compiling keep one core each busy.
test: .venv/.dev
	@$(MAKE) --no-print-directory -j 2 gates lab bytecode
	$(BIN)/pytest -n 6 --dist loadgroup -m "not ci and not long"

test-ci: .venv/.dev lab
	$(BIN)/pytest -n 6 --dist loadgroup -m "ci and not long"

test-long: .venv/.dev lab
	STENO_TEST_FORK=0 STENO_TEST_EXAMPLES=400 $(BIN)/pytest -n 2 --dist loadgroup -m "long or hypothesis"
	STENO_TEST_FORK=1 STENO_TEST_STORE=postgres $(BIN)/pytest -n 2 --dist loadgroup -m "not long" tests/cli
	STENO_TEST_FORK=1 STENO_TEST_SEGMENTS=small $(BIN)/pytest -n 2 --dist loadgroup -m "not long" tests/engine/control tests/api tests/cli

# Once, not by each of pytest's processes; what changes later, each of them compiles.
bytecode: .venv/.bytecode
.venv/.bytecode: .venv/.dev
	@$(BIN)/pytest -q --collect-only >/dev/null
	@touch $@

lock: .venv/.dev
	$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --extra dstack pyproject.toml -o requirements.lock
	$(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --extra dstack --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock

bench: .venv/.dev
	@$(BIN)/steno bench $(BENCH)

bench-docs: .venv/.dev
	@$(BIN)/steno bench $(BENCH) --output docs/performance.json
	@$(BIN)/python benchmarks/page.py

reasons-docs: .venv/.dev
	@PYTHONPATH=tests/support $(BIN)/python -m stenotest.reasons_page

DIST ?= dist
dist: $(UV)
	@$(UV) build --quiet --clear --out-dir $(DIST)
	@$(PYTHON) .ci/sbom.py requirements.lock > $(DIST)/steno-gpu.cdx.json

clean:
	rm -rf .venv .tools .lab dist build
