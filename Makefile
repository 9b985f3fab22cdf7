# Every target makes its own virtual environment if there is none. No CUDA toolkit, driver or GPU is
# needed: NVRTC and the disassemblers come as wheels.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where a GPU's own Python has the packages already: make gpu-test PY=python3
PY ?= $(BIN)/python

# cuBLAS, the ladder's peer, comes along where there is an NVIDIA driver; it is a large wheel.
comma := ,
EXTRAS := dev$(if $(wildcard /proc/driver/nvidia/version),$(comma)peers)

.DEFAULT_GOAL := help
.PHONY: help setup ladder test gpu-test verify check sass lab lab-pages tables format doctor wheel clean

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is newer than the project file only after a successful installation.
$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "lowgemm needs Python 3.11 or later; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	    { echo "cannot make a virtual environment: install Python's venv module" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

setup: $(VENV)/.installed  ## Make the virtual environment with all tools.

ladder: setup  ## Compile the ladder, run it if there is a GPU, print the table.
	@$(BIN)/lowgemm ladder

test: setup  ## Run the tests that need no GPU (those that do are skipped with a reason).
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

gpu-test:  ## Run the tests that need a GPU.
	@test '$(PY)' != '$(BIN)/python' || $(MAKE) --no-print-directory setup
	@PYTHONPATH=. $(PY) -m pytest -q -m gpu

verify: setup  ## Check every rung on many shapes on the GPU.
	@$(BIN)/lowgemm verify

doctor: setup  ## Say what of the toolchain is found where.
	@$(BIN)/lowgemm doctor

check: setup  ## Format, lint, types, layering, spelling, and the tests.
	@$(BIN)/ruff format --check --quiet . || { echo "run make format" >&2; exit 1; }
	@$(BIN)/clang-format --dry-run --Werror cu/*.cu cu/*.cuh
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/codespell
	@$(BIN)/python scripts/tables.py --check
	@$(BIN)/python scripts/sass_reports.py --check
	@$(BIN)/python scripts/lab_pages.py --check
	@$(MAKE) --no-print-directory test

sass: setup  ## Write sass_reports/: what the compiler made of every rung on six architectures.
	@$(BIN)/python scripts/sass_reports.py

lab: setup  ## Run the experiments: predictions, machine code, and on a GPU the measurements.
	@$(BIN)/lowgemm lab

lab-pages: setup  ## Write sass_reports/lab/ from the committed measurements and notes.
	@$(BIN)/python scripts/lab_pages.py

tables: setup  ## Write the measured tables and examples into the documents.
	@$(BIN)/python scripts/tables.py

format: setup  ## Format Python and CUDA sources.
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --fix --quiet .
	@$(BIN)/clang-format -i cu/*.cu cu/*.cuh

wheel: setup  ## Build the wheel into dist/.
	@$(BIN)/python -m build --wheel

clean:  ## Remove the virtual environment and what was built.
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
