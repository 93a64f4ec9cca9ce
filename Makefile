# Two commands do all the set-up: `make demo` and `make test`.
# They need git, make, and uv or a Python; everything is kept in .venv/ and .tools/.

.PHONY: demo test test-slow nightly live live-fixtures lint types docs pictures release examples bench conformance fix clean
BIN := .venv/bin
# Where this is set, every one of the thousands of starts in the tests would compile all of upwell.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest

demo: .venv/.ready                      # the main job, no network and no keys
	@$(BIN)/upwell demo

test: .venv/.ready .tools/npm/.ready .tools/postgres/.ready    # everything but the long suites
	@$(PYTEST) -q -n 2 --dist worksteal -m "not slow and not live"

test-slow: .venv/.ready .tools/npm/.ready .tools/postgres/.ready .tools/chromium/.ready
	@$(PYTEST) -q -n 3 --dist worksteal --durations 40 --durations-min 15 -m "slow and not live and not nightly"

nightly: .venv/.ready .tools/npm/.ready .tools/postgres/.ready .tools/chromium/.ready
	@$(PYTEST) -q -n 2 --dist worksteal -m "nightly and not live"

live: .venv/.ready                      # real agents from npm with our hooks, before a model that plays a part
	@$(PYTEST) -q -n 0 -m live tests/live

live-fixtures: .venv/.ready             # the transcripts of the quick tests, written anew by those agents
	@UPWELL_RECORD=1 $(PYTEST) -q -n 0 -m live tests/live/test_drill.py

lint: .venv/.ready
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/ruff format --check .

types: .venv/.ready
	@$(BIN)/mypy

docs: .venv/.ready                      # the documentation site, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: .venv/.ready .tools/chromium/.ready    # of the docs: the animated demo, and the dashboard in a browser
	@$(BIN)/python dev/demo_picture.py
	@UPWELL_PICTURES=1 $(PYTEST) -q -n 0 tests/browser/test_pictures.py

release: .venv/.ready                   # all that is published, in dist/, checked, tried and summed
	@dev/release

examples: .venv/.ready                  # those of docs/compression.md, as the code makes them
	@$(BIN)/python dev/examples.py

bench: .venv/.ready .tools/npm/.ready   # gateway figures, beside other gateways
	@$(BIN)/python benchmarks/gateway

conformance: .venv/.ready .tools/npm/.ready   # the official suite, directly and through upwell
	@$(BIN)/python tests/doors/conformance/run.py

fix: .venv/.ready
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --output-format concise .
	@$(BIN)/ruff format .

clean:
	rm -rf .venv .tools dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/.ready: uv.lock pyproject.toml dev/setup
	@dev/setup

.tools/postgres/.ready: dev/postgres .venv/.ready
	@dev/postgres

.tools/chromium/.ready: dev/chromium
	@dev/chromium

.tools/npm/.ready: tests/doors/npm/package-lock.json .venv/.ready
	@$(BIN)/python tests/doors/npm/install.py
