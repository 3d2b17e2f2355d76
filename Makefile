# Every target makes the virtual environment it needs. A fresh Debian system needs Python 3.11 or
# newer with its venv module (the package python3-venv); `make` says so if it is missing.
PYTHON ?= $(firstword $(foreach v,python3.13 python3.12 python3.11 python3,$(shell $(v) -c 'import sys; sys.version_info >= (3, 11) and print("$(v)")' 2>/dev/null)))
VENV ?= .venv
BIN := $(VENV)/bin
SEED ?= 0

.PHONY: demo test test-full fuzz bench lint docs install clean

demo: $(VENV)/demo.stamp
	$(BIN)/python -P examples/demo.py

# Two workers, a file at a time, random trials a chunk at a time (tests/conftest.py).
test: $(VENV)/test.stamp
	$(BIN)/pytest -n 2 --dist loadfile

test-full: $(VENV)/test.stamp
	DIPTYCH_TEST=full $(BIN)/pytest -n 2 --dist loadfile

fuzz: $(VENV)/test.stamp
	DIPTYCH_TEST=fuzz $(BIN)/pytest tests/properties --timeout=0

bench: $(VENV)/test.stamp
	$(BIN)/python -P benchmarks/run.py --write

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	# mypy sees packages that lie under their own name, so it checks an installed copy.
	rm -rf build/lint && $(BIN)/pip install -q --no-deps --target build/lint .
	MYPYPATH=build/lint $(BIN)/mypy -p diptych

install: $(VENV)/base.stamp

$(VENV)/base.stamp: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Diptych needs Python 3.11 or newer on PATH (or make PYTHON=...)"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "python -m venv failed: install the venv module (Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/pip install -q -e .
	@touch $@

$(VENV)/demo.stamp: $(VENV)/base.stamp
	$(BIN)/pip install -q -e '.[demo]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/base.stamp
	$(BIN)/pip install -q -e '.[test,lint,demo,ptxas]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info

docs: $(VENV)/test.stamp
	$(BIN)/python -P docs/errors.py
	$(BIN)/python -P docs/printed.py
	$(BIN)/python -P docs/operators.py
