# make demo and make test do all the set-up they need on Debian 12 as root; the second time it is already there.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PACKAGES := libmlir-22-dev mlir-22-tools llvm-22-dev libzstd-dev zlib1g-dev g++ cmake ninja-build python3-dev python3-venv

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

.PHONY: demo
demo: build  ## compile AG+GEMM for all targets, run it on 4 simulated ranks (and on GPUs if there are any)
	@$(BIN)/python examples/demo.py

.PHONY: test
test: build  ## lit and pytest
	@echo "== lit"; $(BIN)/lit -j$$(nproc) -q --timeout 120 test/lit
	@echo "== pytest"; $(BIN)/python -m pytest -q -n $$(nproc) --dist worksteal test/python

.PHONY: test-matrix
test-matrix: build  ## compile all examples for both vendors under the oldest and the newest Triton
	@test/matrix.sh 3.6.0 3.9.0

.PHONY: wheels
wheels: system  ## dist/: one wheel for CPython 3.11, one abi3 wheel for 3.12 and later (PYTHON312=python3.12)
	@$(PYTHON) -m pip wheel -q --no-deps -w dist .
	@if command -v $(PYTHON312) >/dev/null; then $(PYTHON312) -m pip wheel -q --no-deps -w dist .; else \
	  echo "no $(PYTHON312): abi3 wheel not built (set PYTHON312)"; fi
	@ls -lh dist/*.whl
PYTHON312 ?= python3.12

.PHONY: docs
docs: build  ## write the generated pages of docs/ anew
	@$(BIN)/python docs/generate_dialect.py

.PHONY: build
build: $(VENV)/.ready  ## set up Debian packages, the virtual environment, and build the native modules
	@build/dev.sh 2>/dev/null || true

.PHONY: clean
clean:  ## remove what was built (not the virtual environment)
	rm -rf build dist
