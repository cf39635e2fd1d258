# The front door: `make help` lists the targets. CMake builds; the scripts in tools/ do the rest.

FUZZ_SECONDS ?= 600
PREFIX ?= /usr/local
CPP_FILES = git ls-files '*.cpp' '*.h'

.NOTPARALLEL:
.PHONY: help run test test-all oracles rtl mpi install pictures bench format format-check fuzz clean setup configure configure-python build all python wheel

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

run: build ## Build the command line and run the built-in ResNet-50
	build/bin/tessera run

test: oracles rtl mpi all python ## Build everything and run every test
	@tools/setup.sh check || echo "Without shellcheck, the test of the scripts is skipped."
	@tools/setup.sh browser || echo "Without a browser, the tests of the pages are skipped."
	@tools/test.sh

test-all: oracles rtl mpi all python ## The same, with every test program under the sanitizers, and those of threads under ThreadSanitizer
	@tools/setup.sh browser || echo "Without a browser, the tests of the pages are skipped."
	@tools/test.sh --all

install: build ## Install the command line, the C++ and the C library and their headers under PREFIX (/usr/local)
	@cmake --install build --component cpp --prefix $(PREFIX)

pictures: build ## Draw the README's pictures again: docs/pictures/*.svg
	@python3 tools/pictures.py

bench: all ## Run the benchmarks, and put the models' speed into docs/benchmarks.md
	@for b in build/bin/*_bench; do [ ! -x $$b ] || $$b || exit 1; done
	@bench/speed.sh --markdown

fuzz: ## Fuzz each target for FUZZ_SECONDS (600)
	@tools/fuzz.sh $(FUZZ_SECONDS)

format: ## Format every C++ file
	@tools/setup.sh format
	$(CPP_FILES) | xargs -r clang-format-14 -i

format-check: ## Fail when a C++ file is not formatted
	@tools/setup.sh format
	$(CPP_FILES) | xargs -r clang-format-14 --dry-run --Werror

clean: ## Remove what was built (.venv stays)
	rm -rf build build-* dist

setup:
	@tools/setup.sh build

oracles:
	@tools/setup.sh oracles || echo "Without Z3 and isl, the tests that ask them are skipped."

rtl:
	@tools/setup.sh rtl || echo "Without Verilator, the tests of the accelerator's RTL are skipped."

configure: setup
	@cmake --preset release >/dev/null

mpi:
	@tools/setup.sh mpi || echo "Without Open MPI, the tests of ranks as processes are skipped."

build: configure ## Build the command line
	@cmake --build --preset release --target tessera-cli

all: configure-python ## Build everything
	@cmake --build --preset release

configure-python: setup
	@tools/setup.sh python
	@tools/venv.sh
	@cmake --preset release -DTESSERA_PYTHON=ON -DTESSERA_WHEEL=OFF -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python >/dev/null

# Installs the package into .venv out of the same build folder, so that nothing is compiled twice.
python: .venv/.tessera ## Install the Python package into .venv
.venv/.tessera: pyproject.toml $(shell find python -type f -not -name '*.pyc' 2>/dev/null) build/lib/libtessera.a
	@.venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
	    --config-settings=build-dir=build .
	@touch $@
build/lib/libtessera.a: configure-python
	@cmake --build --preset release --target tessera

wheel: configure-python ## Make a self-contained wheel in dist/, and try it in a bare environment
	@tools/setup.sh wheel
	@tools/wheel.sh
