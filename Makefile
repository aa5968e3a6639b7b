# Two commands: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
WORKERS ?= 2
unexport PYTHONDONTWRITEBYTECODE # every process would compile the library anew

.PHONY: demo test nightly entries fuzz lint format docs wheel bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "torchlift needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q src papers
	touch $@

demo: $(STAMP)  ## compare plain training and lifts on embedded data; writes runs/demo/report.html
	$(BIN)/torchlift demo --out runs/demo --resume

test: $(STAMP)  ## all tests, docs examples included; the same in every run
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

nightly: $(STAMP)  ## the long tests of tests/nightly.txt: entries of papers, kills and processes for every recipe
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m nightly

entries: $(STAMP)  ## every reproduction at 200 images (fewer for the largest networks) and one epoch; goes on where it stopped
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/every_entry.py --limit 600

fuzz: $(STAMP)  ## the same properties on fresh random examples, and every odd model with every recipe
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m "hypothesis or fuzz" --hypothesis-profile=fuzz

lint: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## HTML documentation in docs/_build
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

wheel:  ## build the wheel, install it into an empty environment, run it from a table to a prediction
	rm -rf dist
	$(PYTHON) -m pip wheel --quiet --no-deps -w dist .
	$(PYTHON) -m venv dist/venv
	dist/venv/bin/python -m pip install --quiet -c constraints.txt "$$(ls dist/*.whl)[data,report]"
	dist/venv/bin/python tests/smoke.py

bench: $(STAMP)  ## the timing ratios; run it on a quiet machine
	$(BIN)/python benchmarks/loop_overhead.py
	$(BIN)/python benchmarks/optim_step.py
	$(BIN)/python benchmarks/lifted_solvers.py
	$(BIN)/python benchmarks/masked_step.py
	$(BIN)/python benchmarks/shrink_latency.py

clean:
	rm -rf $(VENV) dist docs/_build runs .pytest_cache .ruff_cache .hypothesis
