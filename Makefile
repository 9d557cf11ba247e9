# The commands of this repository. `make help` lists them; users need the two in README.md.
PYTHON ?= python3
VENV ?= .venv
REPEATS ?= 20
RUNS ?= 10000000
# Tests that run at a time: two for each core, since most of them wait for something.
WORKERS ?= $(shell n=$$(.ci/cores); echo $$((n < 8 ? 2 * n : 16)))
# gpu-check: some of its parts, the seconds of one call (the next one goes on; 0: no limit), 1 for a run without a GPU,
# the folder of results, and the folder of packages that `make gpu-wheels` has fetched.
PARTS ?=
LIMIT ?= 540
DRY ?=
RESULTS ?= build/gpu-check
WHEELS ?= build/gpu-wheels
# Python of the machine that gpu-wheels fetches packages for.
TARGET_PYTHON ?= 3.12
# Pythons to build wheels for; by default each CPython of this machine.
PYTHONS ?=
# Pythons of this one's version with other torches, for `make torches`.
TORCHES ?=
# Breaks of each subject to try, and the subjects, for `make mutants`.
MUTANTS ?= 50
SUBJECTS ?= triage run control csrc/trace/read
# Ranks of the self-test; by default one per GPU, or 4 on the CPU.
RANKS ?=
# CPU ranks share the cores: with more than one thread each, the self-test would measure the scheduler.
export OMP_NUM_THREADS ?= 1
# pytest keeps what it has made of the tests: else each worker of each run makes it again, which takes 10 s.
unexport PYTHONDONTWRITEBYTECODE

python := $(VENV)/bin/python
pytest := $(python) -m pytest -n $(WORKERS) --dist loadgroup --max-worker-restart 0
# Inputs of the compiled parts. Folders of python/ are in it for their mtime: an editable install must see new files.
sources := CMakeLists.txt pyproject.toml $(shell find csrc -type f) $(shell find python -type d -not -name __pycache__)
# Of the GPUs that are here: seven architectures would take minutes of a lease.
gpu_architectures = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | grep -x '[0-9][0-9]*' | sort -u | sed 's/$$/-real/' | paste -sd ';')
began := $(shell date +%s)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help selftest test golden jobs check repeat test-needs lint-needs builds wheel soak mutants pythons torches frameworks fuzz gpu-check gpu-wheels lint format docs venv clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

selftest: $(VENV)/.built  ## set up, build, then test one rank a GPU, or 4 on the CPU (RANKS=n chooses)
	@ranks=$(RANKS); [ -n "$$ranks" ] || ranks=$$($(python) -c 'import torch; print(torch.cuda.device_count() or 4)'); \
	echo "$(python) -m torch.distributed.run --nproc-per-node $$ranks -m oddrank selftest"; \
	$(python) -m torch.distributed.run --nproc-per-node $$ranks -m oddrank selftest

test: test-needs $(VENV)/.built-test  ## set up, build, then test all but jobs (a few of them too): minutes
	.ci/ctest $(python)
	$(pytest) -m "not job or smoke"

golden: $(VENV)/.built-test  ## rewrite the golden files of texts for users; read them with git diff
	$(pytest) -m "" --golden

check: lint test docs jobs selftest builds  ## what CI checks, but for sanitizers and other Pythons

jobs: $(VENV)/.built-test  ## start all the jobs: healthy, and with every fault
	$(pytest) -m "job and not smoke"

builds: $(VENV)/.built-test  ## what compiles: wheel, sdist and editable install, each in a fresh environment; the fake GPU
	$(python) -m pytest -n 2 --dist loadgroup -m "whole_build and not soak"

wheel:  ## build a manylinux wheel for each CPython here into dist/ (PYTHONS=... chooses)
	.ci/wheel $(PYTHONS)

soak: $(VENV)/.built-test  ## repeat the fault matrices and the printing test REPEATS times, and build in all ways
	$(python) -m pytest -m soak --repeats $(REPEATS)

repeat: $(VENV)/.built-test  ## run the Python tests of make test REPEATS times, then as often beside processes that burn all cores
	.ci/repeat $(REPEATS) $(pytest) -q -m "not job or smoke"

mutants: $(VENV)/.built-test  ## break the product in MUTANTS random places a subject (SUBJECTS=...), and show what no test finds
	@git diff --quiet -- python csrc || { echo "commit what changed in python/ and csrc/ first: files are changed and restored"; exit 2; }
	$(python) tests/mutants.py --count $(MUTANTS) --jobs $(SUBJECTS)

pythons: $(VENV)/.ready  ## build and test _core on every CPython of this machine
	.ci/every-python build build/pythons $(python)
	.ci/every-python test build/pythons

torches: $(VENV)/.built-test  ## test the recorder of collectives with the torches of other Pythons (TORCHES=...)
	@[ -n "$(TORCHES)" ] || { echo "type: make torches TORCHES=/path/to/python"; exit 2; }
	@for other in $(TORCHES); do \
	ODDRANK_TEST_OTHER_TORCH=$$other $(python) -m pytest --require=other-torch,torch-build \
		tests/doctor/test_other_torch.py tests/trace/test_torch_hooks.py || exit 1; done

frameworks: $(VENV)/.built-test build/frameworks/.ready  ## watch trainings with frameworks, with each fault and without, then their speed; write benchmarks/results
	build/frameworks/bin/python benchmarks/run/frameworks.py --json benchmarks/results/frameworks.json
	build/frameworks/bin/python benchmarks/run/frameworks.py --speed --repetitions 5 --json benchmarks/results/frameworks_speed.json

fuzz: $(VENV)/.ready  ## feed RUNS changed inputs to each parser of files under sanitizers (clang), write benchmarks/results
	.ci/build-fuzzer $(python) build/fuzz fuzzer
	.ci/build-fuzzer $(python) build/fuzz-coverage coverage
	$(python) benchmarks/trace/fuzz.py build/fuzz --coverage build/fuzz-coverage --runs $(RUNS) --json benchmarks/results/trace_fuzz.json
	$(python) benchmarks/triage/fuzz.py build/fuzz --runs $(RUNS) --json benchmarks/results/triage_fuzz.json

gpu-check: export PIP_NO_INDEX = $(if $(DRY),,1)
gpu-check: export PIP_FIND_LINKS = $(if $(DRY),,$(wildcard $(WHEELS)))
gpu-check: export CMAKE_ARGS ?= $(if $(gpu_architectures),-DODDRANK_CUDA_ARCHITECTURES=$(gpu_architectures))
gpu-check: $(VENV)/.built-gpu  ## on a machine with a GPU, offline: tests, figures, sanitizers (PARTS, LIMIT; DRY=1: without a GPU)
	$(python) .ci/gpu_check.py $(RESULTS) --parts "$(PARTS)" --limit $(LIMIT) --began $(began) $(if $(DRY),--dry)

gpu-wheels:  ## fetch into WHEELS what gpu-check may lack on a machine offline (TARGET_PYTHON=3.12)
	.ci/gpu-wheels "$(PYTHON)" $(WHEELS) $(TARGET_PYTHON)

lint: lint-needs $(VENV)/.lint-tools  ## ruff, mypy, clang-format, clang-tidy
	.ci/lint $(python)

format: lint-needs $(VENV)/.lint-tools  ## rewrite the sources in the house style
	$(python) -m ruff check --fix . && $(python) -m ruff format . && find csrc tests benchmarks -name '*.[ch]pp' -o -name '*.cu' | xargs clang-format -i

documents := README.md SKILL.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples
docs: $(VENV)/.doc-tools  ## build documents and API reference as a site, build/site; a link that leads nowhere fails
	rm -rf build/documents && mkdir -p build/documents && ln -s $(addprefix $(CURDIR)/,$(documents)) build/documents
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

venv: $(VENV)/.ready  ## only make the virtual environment, with torch in it

clean:  ## remove what was built (not the virtual environment)
	rm -rf build dist $(VENV)/.built $(VENV)/.built-test $(VENV)/.built-gpu $(VENV)/.lint-tools $(VENV)/.doc-tools

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
	@# pip reads dependency groups since then.
	@$(python) -m pip install -q "pip>=25.1"
	@$(python) .ci/progress.py build/test-extra.log $(python) -m pip install --group test
	@touch $@

# Not the whole extra: a machine offline may lack packages that only other tests need.
$(VENV)/.built-gpu: $(VENV)/.built requirements-gpu-check.txt
	@echo "installing what gpu-check needs"
	@$(python) .ci/progress.py build/gpu-extra.log $(python) -m pip install -r requirements-gpu-check.txt
	@touch $@

build/frameworks/.ready: | $(VENV)/.built-test
	@echo "installing the frameworks"
	.ci/setup $(python) build/frameworks
	build/frameworks/bin/python -m pip install -q transformers accelerate lightning "ray[train]"
	@# Its own build imports torch, and may fail where there is no compiler for it.
	DS_BUILD_OPS=0 build/frameworks/bin/python -m pip install -q --no-build-isolation deepspeed || echo "left out: DeepSpeed"
	@touch $@

$(VENV)/.lint-tools: $(VENV)/.built-test
	@echo "installing the linters"
	@$(python) .ci/progress.py build/lint-extra.log $(python) -m pip install --group lint
	@touch $@

$(VENV)/.doc-tools: $(VENV)/.lint-tools
	@echo "installing what the site is made with"
	@$(python) .ci/progress.py build/doc-tools.log $(python) -m pip install --group docs
	@touch $@
