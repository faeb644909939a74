# make demo and make test do all the set-up they need on Debian 12 as root; the second time it is already there.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON    ?= python3
PYTHON312 ?= python3.12
VENV      := .venv
BIN       := $(VENV)/bin
PACKAGES  := libmlir-22-dev mlir-22-tools llvm-22-dev libzstd-dev zlib1g-dev g++ cmake ninja-build python3-dev python3-venv

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.PHONY: demo
demo: build  ## compile AG+GEMM for all targets, run it on 4 simulated ranks (and on GPUs where there are any)
	@$(BIN)/python examples/demo.py

.PHONY: test
test: build  ## lit, then pytest (DITRON_SIM_CPU=x86-64-v3: the simulator's kernels compiled for that CPU)
	@echo "== lit" && $(BIN)/lit -sv -j$$(nproc) test/lit
	@echo "== pytest" && $(BIN)/python -m pytest -q -n $$(nproc) --dist worksteal test/python --ignore test/python/ditron/sim/fake_cuda

.PHONY: test-fake-cuda
test-fake-cuda: build  ## CPU tensors that report to be CUDA tensors (ditron/sim/fake_cuda, optional)
	@$(BIN)/python -m pytest -q -n $$(nproc) test/python/ditron/sim/fake_cuda

CXX_FILES = $(shell git ls-files 'dialect/*.cpp' 'dialect/*.h' 'runtime/*.cpp' 'runtime/*.h')

.PHONY: lint
lint: build $(VENV)/.lint  ## formatters, linters, types of the public API: all of them, whichever fails
	@failed=; \
	$(BIN)/ruff check -q . || failed=1; \
	$(BIN)/ruff format --check -q . || { echo "make format mends this"; failed=1; }; \
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES) || { echo "make format mends this"; failed=1; }; \
	$(BIN)/mypy || failed=1; \
	test -z "$$failed" && echo "== lint: clean"

.PHONY: format
format: $(VENV)/.lint  ## ruff format, what ruff can fix, clang-format; prints what is left to mend by hand
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix --exit-zero . && $(BIN)/ruff format -q .
	@$(BIN)/clang-format -i $(CXX_FILES)

$(VENV)/.lint: $(VENV)/.ready
	@$(BIN)/pip install -qq $$($(BIN)/python cmake/develop.py requirements lint) && touch $@

.PHONY: test-matrix
test-matrix: build  ## compile all examples for both vendors under the oldest and the newest Triton
	@test/matrix.sh 3.6.0 3.9.0

.PHONY: test-liger
test-liger: build  ## every operator of liger-kernel on the simulator (installed beside the environment)
	@test -d .venv-matrix/liger/liger_kernel || $(BIN)/pip install -q --no-deps --target .venv-matrix/liger liger-kernel
	@$(BIN)/python -m pytest -q -n $$(nproc) --dist worksteal test/python/ditron/sim/plain/test_liger.py

KERNEL_PACKAGES := fla-core==0.6.0 flag-gems==5.0.2 conch-triton-kernels==1.3 flash-attention-triton==0.1.1 \
  jvp-flash-attention==0.14.0 late-interaction-kernels==0.4.5 lanczos-triton==0.1.0 torchao==0.18.0 \
  bitsandbytes==0.50.2 mase-triton==0.0.7 adasplash==0.2.2 entmax einops PyYAML sqlalchemy colorlog \
  cut-cross-entropy==25.1.1 mlstm-kernels==2.0.6 stanford-stk==0.7.1 gemlite==0.6.0.post2 tqdm

.PHONY: test-packages
test-packages: build  ## kernels of other packages on the simulator (installed beside the environment), as a table
	@test -d .venv-matrix/packages/gemlite || $(BIN)/pip install -q --no-deps --target .venv-matrix/packages $(KERNEL_PACKAGES)
	@$(BIN)/python -W ignore test/packages/compare.py

.PHONY: mutation
mutation: build  ## how many mistakes the protocol checker finds: mutants of every kernel and program, against the simulator
	@$(BIN)/python test/mutation --jobs $$(nproc) --publish

.PHONY: routing-corpus
routing-corpus: build  ## every kind of routing through the MoE operators on 1, 2, 4 and 8 ranks, 100 seeds: a quarter of an hour
	@$(BIN)/python test/routing_corpus.py --ranks 1 2 4 8 --seeds 100

.PHONY: fuzz
fuzz: build  ## 500 mutants of scripts and host programs, given to ditron check: none may crash it
	@$(BIN)/python test/fuzz --count 500 --jobs $$(nproc)

.PHONY: wheels
wheels: system  ## dist/: a wheel for CPython 3.11 and an abi3 wheel for 3.12 and later (PYTHON312=...)
	@$(PYTHON) -m pip wheel -q --no-deps -w dist .
	@if command -v $(PYTHON312) >/dev/null; then $(PYTHON312) -m pip wheel -q --no-deps -w dist .; \
	 else echo "no $(PYTHON312) here: abi3 wheel not built (name one by PYTHON312=)"; fi
	@ls -lh dist/*.whl

.PHONY: docs
docs: build  ## write the generated pages of docs/ anew and build the site in build/site
	@$(BIN)/python docs/generate_dialect.py && $(BIN)/python docs/generate_api.py && $(BIN)/python docs/generate_passes.py && $(BIN)/python docs/results/publish.py
	@$(BIN)/python -c 'import mkdocs' 2>/dev/null || $(BIN)/pip install -q 'mkdocs>=1.6,<2'
	@$(BIN)/python -m mkdocs build --strict --quiet && echo "build/site/guide/index.html"

.PHONY: build
build: $(VENV)/.ready build/dev/build.ninja  ## Debian packages, virtual environment, native modules
	@ninja -C build/dev --quiet | sed '/^ninja: no work to do\.$$/d'

build/dev/build.ninja: $(VENV)/.ready
	@echo "== configuring" && cmake -G Ninja -S . -B build/dev -DDITRON_IN_PLACE=ON \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python > build/configure.log || { cat build/configure.log; exit 1; }
	@echo "== native modules (minutes the first time)"

$(VENV)/.ready: pyproject.toml constraints.txt cmake/develop.py | system
	@echo "== virtual environment $(VENV)" && mkdir -p build
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python cmake/develop.py requirements > build/requirements.txt
	@$(BIN)/pip install -qq -c constraints.txt -r build/requirements.txt
	@$(BIN)/python cmake/develop.py link
	@touch $@

.PHONY: system
system:  ## Debian packages that are missing (needs root if there are any)
	@missing=$$(for package in $(PACKAGES); do dpkg -s $$package >/dev/null 2>&1 || echo $$package; done); \
	if [ -n "$$missing" ]; then \
	  echo "== installing Debian packages:" $$missing; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

.PHONY: clean
clean:  ## remove what was built, but not the virtual environment
	rm -rf build dist
	git clean -fdXq ditron ditron_compiler
