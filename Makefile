# Every target makes what it needs, from nothing but Python 3.11: .venv, its packages, the library.
# The files in .venv/stamps say what is done already, so that a second call is quick.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/stamps
INTEROP := .venv-interop
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
FUZZ_COUNT ?= 1000000
FUZZ_SEED ?= $(shell date +%s)
ZIG_SOURCES := build.zig $(shell find zig -name '*.zig' 2>/dev/null)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test zig-test lint types fmt bench table interop fuzz wheel clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | \
		awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo: $(STAMPS)/examples $(STAMPS)/native ## train a small GPT on Python source and let it write some
	$(PY) examples/nano_gpt.py

test: $(STAMPS)/dev zig-test ## run every test, Zig's and Python's
	$(PY) -m pytest -n 2

zig-test: $(STAMPS)/native ## run the tests of the Zig files, and the fuzzer for a moment
	$(PY) hatch_build.py test --summary new
	$(PY) hatch_build.py fuzz -- --count 20000 --seed $(FUZZ_SEED)

lint: $(STAMPS)/dev ## ruff, types, import layers, zig fmt
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m basedpyright
	$(VENV)/bin/lint-imports --no-cache
	$(PY) -m ziglang fmt --check build.zig zig

types: $(STAMPS)/dev ## the type checker alone
	$(PY) -m basedpyright

fmt: $(STAMPS)/dev ## format Python and Zig, and mend what ruff can
	$(PY) -m ruff check --fix --exit-zero --quiet
	$(PY) -m ruff format
	$(PY) -m ziglang fmt build.zig zig

bench: $(STAMPS)/dev $(STAMPS)/native ## run each benchmark
	@set -e; for file in bench/*.py; do echo "== $$file"; $(PY) "$$file"; done

table: $(STAMPS)/dev $(STAMPS)/native ## run every op, measure each function: docs/ops.md, docs/ulp.md
	$(PY) tools/op_table.py
	$(PY) tools/ulp_table.py

interop: $(INTEROP)/stamp $(STAMPS)/native ## compare with JAX and PyTorch: random numbers, DLPack, einops
	$(INTEROP)/bin/python tools/golden_jax.py --check
	$(INTEROP)/bin/python tools/golden_jax_control.py --check
	$(INTEROP)/bin/python tools/golden_examples.py --check
	$(INTEROP)/bin/python -m pytest tests/interop tests/test_libraries.py

fuzz: $(STAMPS)/dev ## feed FUZZ_COUNT (a million) mutated programs, damaged files, random stacks of transforms
	$(PY) hatch_build.py fuzz -- --count $(FUZZ_COUNT) --seed $(FUZZ_SEED)
	$(PY) tools/fuzz_safetensors.py --seed $(FUZZ_SEED)
	$(PY) -m tools.fuzz_compositions --seed $(FUZZ_SEED)

wheel: $(STAMPS)/base ## build this machine's wheel into dist/
	$(PY) -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .

clean: ## remove everything that was built, and .venv
	rm -rf $(VENV) $(INTEROP) .zig-cache zig-out build dist
	rm -rf pyeffect_torch/include pyeffect_torch/runtime/native/lib

# The environment, with what builds the package: PEP 517 isolation would unpack Zig once more.
$(STAMPS)/base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'make: $(PYTHON) is older than Python 3.11; call make PYTHON=python3.11'; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) $$($(PY) -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/examples: $(STAMPS)/base
	$(PIP) --no-build-isolation --editable '.[examples]'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/base
	$(PIP) --no-build-isolation --editable '.[dev,examples]'
	@touch $@

# JAX and PyTorch, in an environment of their own: they are large, and nothing else needs them.
$(INTEROP)/stamp: pyproject.toml | $(STAMPS)/base
	test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check $$($(PY) -c 'import \
		tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*p["dependencies"], *p["optional-dependencies"]["interop"])')
	@touch $@

$(STAMPS)/native: $(ZIG_SOURCES) hatch_build.py | $(STAMPS)/base
	$(PY) hatch_build.py
	@touch $@
