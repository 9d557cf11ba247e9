# The commands of this repository. `make help` lists them; README.md shows the two that users need.
PYTHON ?= python3
VENV ?= .venv
REPEATS ?= 20
RUNS ?= 10000000
# Of compute-sanitizer; one alone takes up to ten minutes.
TOOLS ?= memcheck racecheck initcheck synccheck
# Set RANKS to choose; without it as many as there are GPUs, or 4 on the CPU.
RANKS ?=
# CPU ranks share the cores: one thread each keeps the self-test from measuring the scheduler.
export OMP_NUM_THREADS ?= 1

python := $(VENV)/bin/python
# What the compiled parts depend on. Folders of python/ are listed for their mtime: an editable install must see new files.
sources := CMakeLists.txt pyproject.toml $(shell find csrc -type f) $(shell find python -type d -not -name __pycache__)
# The parts of gpu-check, each to be run by itself where one command must not take longer than ten minutes.
gpu_parts := gpu-build gpu-jobs gpu-tests gpu-benchmarks gpu-sanitizer
gpu_jobs := tests/selftest/test_gpu.py
gpu_sanitizer := tests/package/test_every_kernel.py
gpu_test := $(python) -m pytest -m gpu --require=gpu,cuda-build,torch

.DEFAULT_GOAL := help
.PHONY: help selftest test builds soak fuzz gpu-check $(gpu_parts) lint format venv clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

selftest: $(VENV)/.built  ## set up, build, then test one rank a GPU, or 4 on the CPU (RANKS=n chooses)
	@ranks=$(RANKS); [ -n "$$ranks" ] || ranks=$$($(python) -c 'import torch; print(torch.cuda.device_count() or 4)'); \
	echo "$(python) -m torch.distributed.run --nproc-per-node $$ranks -m oddrank selftest"; \
	$(python) -m torch.distributed.run --nproc-per-node $$ranks -m oddrank selftest

test: $(VENV)/.built-test build/ctest/.configured  ## set up, build, then run the C++ and the Python tests
	cmake="$$($(python) .ci/find_cmake.py)"; "$$cmake" --build build/ctest -j "$$(nproc)" && cd build/ctest && "$$(dirname "$$cmake")/ctest" --output-on-failure -j 2
	$(python) -m pytest

builds: $(VENV)/.built-test  ## build wheel, sdist and editable install for real, each in a fresh environment
	$(python) -m pytest -m whole_build

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

# In a process of their own: to the self-test's jobs a context that other tests leave on the GPU is a stranger's.
gpu-jobs: $(VENV)/.built
	$(gpu_test) $(gpu_jobs)

gpu-tests: $(VENV)/.built
	@# Only the files with such tests: what the others import may not be on that machine.
	$(gpu_test) $$(grep -lr --include='test_*.py' 'mark.gpu' tests | grep -v -e $(gpu_jobs) -e $(gpu_sanitizer))

gpu-benchmarks: $(VENV)/.built
	for script in benchmarks/gpu/*.py; do $(python) $$script --json benchmarks/results/$$(basename $$script .py).json || exit 1; done

gpu-sanitizer: $(VENV)/.built
	for tool in $(TOOLS); do $(gpu_test),compute-sanitizer $(gpu_sanitizer) -k $$tool || exit 1; done

lint: $(VENV)/.built-test  ## ruff, mypy, clang-format, clang-tidy
	.ci/lint $(python)

format: $(VENV)/.built-test  ## rewrite the sources in the house style
	$(python) -m ruff check --fix . && $(python) -m ruff format . && find csrc tests benchmarks -name '*.[ch]pp' -o -name '*.cu' | xargs clang-format -i

venv: $(VENV)/.ready  ## only make the virtual environment, with torch in it

clean:  ## remove what was built (not the virtual environment)
	rm -rf build dist $(VENV)/.built $(VENV)/.built-test

$(VENV)/.ready: requirements-torch.txt .ci/setup
	.ci/setup "$(PYTHON)" "$(VENV)"
	@touch $@

$(VENV)/.built: $(VENV)/.ready $(sources)
	@echo "building oddrank for $$($(python) -V): a minute or two"
	$(python) -m pip install -q --no-build-isolation -e .
	@$(python) -c 'from oddrank import _native as n; print(*n.summary(), sep="\n")'
	@# Its first import would make folders, and so python/ newer than what was built.
	@$(python) -m compileall -q python
	@touch $@

$(VENV)/.built-test: $(VENV)/.built
	$(python) -m pip install -q 'oddrank[test]'
	@touch $@

build/ctest/.configured: $(VENV)/.built-test CMakeLists.txt tests/CMakeLists.txt
	.ci/configure-ctest $(python) build/ctest
	@touch $@
