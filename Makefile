# The commands of this repository. `make help` lists them; users need the two in README.md.
PYTHON ?= python3
VENV ?= .venv
REPEATS ?= 20
RUNS ?= 10000000
# Tests that run at a time. Jobs mostly wait: two of them on two cores do not disturb each other.
WORKERS ?= 2
# Tools of compute-sanitizer; each takes up to ten minutes.
TOOLS ?= memcheck racecheck initcheck synccheck
# Pythons to build wheels for; by default each CPython of this machine.
PYTHONS ?=
# Ranks of the self-test; by default one per GPU, or 4 on the CPU.
RANKS ?=
# CPU ranks share the cores: with more than one thread each, the self-test would measure the scheduler.
export OMP_NUM_THREADS ?= 1

python := $(VENV)/bin/python
pytest := $(python) -m pytest -n $(WORKERS) --dist loadgroup --max-worker-restart 0
# Inputs of the compiled parts. Folders of python/ are in it for their mtime: an editable install must see new files.
sources := CMakeLists.txt pyproject.toml $(shell find csrc -type f) $(shell find python -type d -not -name __pycache__)
# The parts of gpu-check; run them one by one if a command may take only ten minutes.
gpu_parts := gpu-build gpu-jobs gpu-tests gpu-benchmarks gpu-sanitizer
gpu_jobs := tests/selftest/test_gpu.py
gpu_sanitizer := tests/package/test_every_kernel.py
gpu_test := $(python) -m pytest -m gpu --require=gpu,cuda-build,torch

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help selftest test jobs check test-needs lint-needs builds wheel soak fuzz gpu-check $(gpu_parts) lint format venv clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

selftest: $(VENV)/.built  ## set up, build, then test one rank a GPU, or 4 on the CPU (RANKS=n chooses)
	@ranks=$(RANKS); [ -n "$$ranks" ] || ranks=$$($(python) -c 'import torch; print(torch.cuda.device_count() or 4)'); \
	echo "$(python) -m torch.distributed.run --nproc-per-node $$ranks -m oddrank selftest"; \
	$(python) -m torch.distributed.run --nproc-per-node $$ranks -m oddrank selftest

test: test-needs $(VENV)/.built-test build/ctest/.configured  ## set up, build, then test all but jobs (a few of them too): minutes
	cmake="$$($(python) .ci/find_cmake.py)"; "$$cmake" --build build/ctest -j "$$(nproc)" && cd build/ctest && "$$(dirname "$$cmake")/ctest" --output-on-failure -j 2
	$(pytest) -m "not job or smoke"

check: lint test jobs builds  ## all that CI checks, but for soak, sanitizers and other Pythons

jobs: $(VENV)/.built-test  ## start all the jobs: healthy, and with every fault
	$(pytest) -m "job and not smoke"

builds: $(VENV)/.built-test  ## build wheel, sdist and editable install for real, each in a fresh environment
	$(python) -m pytest -m whole_build

wheel:  ## build a manylinux wheel for each CPython here into dist/ (PYTHONS=... chooses)
	.ci/wheel $(PYTHONS)

soak: $(VENV)/.built-test  ## repeat the fault matrix and the printing test REPEATS times, write benchmarks/results
	$(python) -m pytest -m soak --repeats $(REPEATS)

fuzz: $(VENV)/.ready  ## feed RUNS changed records to the trace reader under sanitizers (clang), write benchmarks/results
	.ci/build-fuzzer $(python) build/fuzz fuzzer
	.ci/build-fuzzer $(python) build/fuzz-coverage coverage
	$(python) benchmarks/trace/fuzz.py build/fuzz --coverage build/fuzz-coverage --runs $(RUNS) --json benchmarks/results/trace_fuzz.json

gpu-check $(gpu_parts): export PIP_NO_INDEX = 1
gpu-check:  ## on a machine with a GPU, offline: gpu-build, gpu-jobs, gpu-tests, gpu-benchmarks and gpu-sanitizer
	for part in $(gpu_parts); do $(MAKE) $$part || exit 1; done

gpu-build: $(VENV)/.built
	$(python) -m oddrank doctor

# In a separate pytest process: a CUDA context left by other tests would look like a foreign process to the self-test.
gpu-jobs: $(VENV)/.built
	$(gpu_test) $(gpu_jobs)

gpu-tests: $(VENV)/.built
	@# Only files with GPU tests: the machine may lack packages that other files import.
	$(gpu_test) $$(grep -lr --include='test_*.py' 'mark.gpu' tests | grep -v -e $(gpu_jobs) -e $(gpu_sanitizer))

gpu-benchmarks: $(VENV)/.built
	for script in benchmarks/gpu/*.py; do $(python) $$script --json benchmarks/results/$$(basename $$script .py).json || exit 1; done

gpu-sanitizer: $(VENV)/.built
	for tool in $(TOOLS); do $(gpu_test),compute-sanitizer $(gpu_sanitizer) -k $$tool || exit 1; done

lint: lint-needs $(VENV)/.lint-tools  ## ruff, mypy, clang-format, clang-tidy
	.ci/lint $(python)

format: lint-needs $(VENV)/.lint-tools  ## rewrite the sources in the house style
	$(python) -m ruff check --fix . && $(python) -m ruff format . && find csrc tests benchmarks -name '*.[ch]pp' -o -name '*.cu' | xargs clang-format -i

venv: $(VENV)/.ready  ## only make the virtual environment, with torch in it

clean:  ## remove what was built (not the virtual environment)
	rm -rf build dist $(VENV)/.built $(VENV)/.built-test $(VENV)/.lint-tools

# Runs before anything is downloaded.
test-needs lint-needs: %-needs:
	@.ci/needs "$(PYTHON)" $*

$(VENV)/.ready: requirements-torch.txt
	@.ci/needs "$(PYTHON)" build
	.ci/setup "$(PYTHON)" "$(VENV)"
	@touch $@

$(VENV)/.built: $(VENV)/.ready $(sources)
	@echo "building oddrank for $$($(python) -V): a minute or two"
	@$(python) .ci/progress.py build/build.log $(python) -m pip install -v --no-build-isolation -e .
	@$(python) -c 'from oddrank import _native as n; print(*n.summary(), sep="\n")'
	@# The first import would make __pycache__ folders, which make python/ newer than the build.
	@$(python) -m compileall -q python
	@touch $@

$(VENV)/.built-test: $(VENV)/.built
	@echo "installing what the tests need"
	@$(python) .ci/progress.py build/test-extra.log $(python) -m pip install 'oddrank[test]'
	@touch $@

$(VENV)/.lint-tools: $(VENV)/.built-test
	@echo "installing the linters"
	@$(python) .ci/progress.py build/lint-extra.log $(python) -m pip install 'oddrank[lint]'
	@touch $@

build/ctest/.configured: $(VENV)/.built-test CMakeLists.txt tests/CMakeLists.txt
	.ci/configure-ctest $(python) build/ctest
	@touch $@
