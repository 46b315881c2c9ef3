# Every target creates .venv when it is missing; nothing is installed outside it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What the demo needs, which is installed much sooner than what tests need.
SHOWN  := $(VENV)/.shown
# Tests that run side by side. Those marked `timing` get a second try on a busy machine, and are told as rerun.
# Four times as many as two cores: tests over HTTP wait more than they work.
JOBS   ?= 8

# Tests start many processes: without bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo trace test nightly check site conformance bench lint clean lock

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,sandbox]'
	touch $(STAMP)

$(SHOWN): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || { echo "Making an environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@test -e $(STAMP) || { echo "Installing the tool and what it needs there, once: about a minute"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[sandbox]'; }
	@touch $(SHOWN)

demo: $(SHOWN)
	@$(BIN)/rebalancer demo

# One daemon's cycles on the embedded cluster, each with its trace as a tree.
trace: $(SHOWN)
	@$(BIN)/rebalancer demo --trace

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS)

# What takes too long for every commit and is like tests that each run has.
nightly: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m nightly
	$(BIN)/python -m tests.golden

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
# Beside it the tests are compiled, once: their workers would each do it anew.
	$(BIN)/python -m pytest --collect-only -qq > /dev/null & $(BIN)/mypy; found=$$?; wait; exit $$found
	$(BIN)/lint-imports

# The pages of docs/ with a search, in dist/site; a link that leads nowhere fails.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint test site

# Every recorded verdict of a real kube-scheduler beside the engine's: the table of docs/scheduler.md.
conformance: $(STAMP)
	$(BIN)/python -m tests.conformance.agreement

bench: $(STAMP)
	$(BIN)/python -m tests.perf

# Packages that only the asynchronous half of the Kubernetes client (kubernetes.aio) needs; the image goes without.
ASYNC := aiohttp aiohttp-retry aiohappyeyeballs aiosignal attrs frozenlist multidict propcache yarl
COMPILE := PIP_FIND_LINKS= $(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# constraints.txt for people and CI, requirements.lock (with hashes) for the image: the same versions.
lock: $(STAMP)
	$(COMPILE) --extra dev --extra sandbox --output-file constraints.txt pyproject.toml
	$(COMPILE) --generate-hashes --constraint constraints.txt $(ASYNC:%=--unsafe-package %) --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
