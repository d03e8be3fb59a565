# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup gl nginx systemd chromium demo demo-tabular test test-docs test-network test-slow regression lint type format bench bench-full rejax performance docs dist clean

help:
	@echo "demo       DQNAvg on CartPoles beside Baseline and E = inf, with its figures (a minute)"
	@echo "demo-tabular  Table 2 of the paper at 300 seeds, with its figures (half a minute)"
	@echo "test       all tests but the slow ones (minutes)"
	@echo "test-network  federations and hosts as real processes, with nginx (minutes)"
	@echo "test-docs  every code block of the documentation (minutes)"
	@echo "test-slow  the slow ones: both tables at 16,000 seeds, runs on one core and on all"
	@echo "regression three small kernels against what they are recorded to cost (a minute)"
	@echo "lint type  ruff and import-linter; mypy"
	@echo "format     rewrite the code in the project's style"
	@echo "bench      ours against NumPy loops, Stable-Baselines3, PyTorch and JAX (15 minutes)"
	@echo "bench-full the same with more repeats, and both tables at 16,000 seeds (an hour or more)"
	@echo "performance  docs/performance.md from what was measured"
	@echo "docs       the documentation as a site in site/"
	@echo "dist       a wheel in dist/, tried in an empty environment"

.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "fedrl needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,mujoco,flower,privacy,export,trackers]'
	@touch $@

setup: .venv/ready

demo: setup
	$(BIN)/fedrl run cartpoles-dqnavg --baseline

demo-tabular: setup
	$(BIN)/fedrl reproduce table2 --quick --out results/demo

test: setup gl nginx systemd chromium
	$(BIN)/pytest

# Robots are drawn without a screen by a system library; tests of pictures are skipped without it.
gl:
	@scripts/install-gl

# It stands before the server of a federation; tests with real processes are skipped without it.
nginx:
	@scripts/install-nginx

# It verifies the units of a federation; that test is skipped without it.
systemd:
	@scripts/install-systemd

# It looks at reports; tests of what a reader sees are skipped without it.
chromium:
	@scripts/install-chromium

test-network: setup nginx
	$(BIN)/pytest -m network tests/network tests/engine/test_hosts.py

test-docs: setup
	$(BIN)/pytest -m docs --dist load tests/test_documentation.py

test-slow: setup
	$(BIN)/pytest -m slow -n 0

regression: setup
	$(BIN)/python -m benchmarks.regression

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

type: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What is known is kept in results/, and an interrupted one goes on; with FLAGS=--fresh from the
# beginning.
bench: setup .venv-peers/ready rejax
	$(BIN)/python -m benchmarks $(FLAGS)

bench-full: setup .venv-peers/ready rejax
	$(BIN)/python -m benchmarks --full --json results/bench-full.json $(FLAGS)
	$(BIN)/python -m benchmarks.full_tables --piece 512 --json results/full_tables.json

performance: setup
	$(BIN)/python -m benchmarks.page

# PyTorch lives apart from us; torch first, so that nothing pulls in another build of it.
.venv-peers/ready:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet torch==2.13.0
	.venv-peers/bin/python -m pip install --quiet 'stable-baselines3>=2.6,<3' 'mujoco>=3.17,<3.18' imageio packaging
	@touch $@

# A row of the benchmark; where it does not install, the row is left out.
rejax:
	@test -e .venv-jaxpeers/ready || $(MAKE) .venv-jaxpeers/ready || rm -rf .venv-jaxpeers

# It wants an older Gymnasium than we do, and the gymnax before 1.0, whose steps gave five things.
.venv-jaxpeers/ready:
	$(PYTHON) -m venv .venv-jaxpeers
	.venv-jaxpeers/bin/python -m pip install --quiet 'rejax==0.1.3' 'gymnax<1' 'jax<0.12'
	@touch $@

docs: setup
	$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

dist: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist . >/dev/null
	$(BIN)/pytest -m dist -n 0 tests/test_wheel.py
	@ls dist/*

clean:
	rm -rf .venv .venv-peers .venv-jaxpeers site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
