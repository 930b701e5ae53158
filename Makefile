# Every target does its own set-up on a machine that has only python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

.PHONY: setup demo up test test-kube fuzz mutants faults check format bench bench-arena lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trimtab needs Python 3.11 or newer; set PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing the locked packages into $(VENV) (once, half a minute) ..." >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)
	@$(BIN)/trimtab demo $(ARGS)

up: $(STAMP)
	@$(BIN)/trimtab up $(ARGS)

# Two processes, since most tests of services wait for each other; what measures the machine then has it alone. With ARGS:
# just those.
test: $(STAMP)
ifeq ($(strip $(ARGS)),)
	@$(BIN)/python -m pytest -m "not kube" -n 2 tests/unit tests/property tests/fuzz
	@$(BIN)/python -m pytest -m "not kube" -n 2 --dist loadfile tests/integration tests/faults
	@$(BIN)/python -m pytest -m "not kube" tests/kernel
else
	@$(BIN)/python -m pytest -m "not kube" $(ARGS)
endif

# Against the cluster that KUBECONFIG names, in a namespace of its own (tests/kube); skips what the cluster does not have.
test-kube: $(STAMP)
	@$(BIN)/python -m pytest -m kube $(ARGS)

fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz $(ARGS)

faults: $(STAMP)
	@$(BIN)/python -m tests.faults $(ARGS)

mutants: $(STAMP)
	@$(BIN)/python -m tests.mutants $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(STAMP)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

bench: $(STAMP)
	@$(BIN)/python -m lab.bench $(ARGS)

# Four scenarios on the simulator, ours against the requests' weights and the best static ones: a page to look at.
bench-arena: $(STAMP)
	@mkdir -p runs
	@$(BIN)/trimtab bench --scenarios steady,swap,flood,mislabelled --queue bounded --policies request-derived,step,trimtab \
	  --seeds 1-3 --cycles 200 --json runs/arena.json --html runs/arena.html $(ARGS)

# Needs uv on PATH (pip install uv). The lock has hashes for every platform and no index addresses.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra collector --extra decider --extra demo --extra lab --extra export --extra vw --group dev --group build -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
