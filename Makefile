# Everything runs in a virtual environment that this file makes itself.
# PYTHON=python3.12 make test    chooses the interpreter for it.
# FRAMES=100000 SEED=7 make soak  chooses how much of it, and where chance begins.
# ARGS="-k frames -x" make test-fast    passes options to pytest, and to the others.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
FRAMES ?= 1000000
SEED ?= 1

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTO := proto/pulsar_api.proto
GENERATED := pulsar_spark/wire/pulsar_api_pb2.py pulsar_spark/wire/pulsar_api_pb2.pyi
CODE := pulsar_spark pyspark_pulsar.py setup.py tests examples
PINNED := --constraint constraints.txt --build-constraint constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install proto check-proto lint format types test test-fast soak mutants check \
	bench bench-peer readme demo broker clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' \
		$(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with everything that development needs

# The kernel is among these: what is installed in place must be what the source says.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard pulsar_spark/wire/messages.p*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet $(PINNED) --editable '.[dev]'
	@touch $@

# $(1): the root below which the generated files go. proto/ is mapped to the folder of the
# package: that name is registered in the process, so it must be nobody else's.
generate = $(BIN)/python -m grpc_tools.protoc --proto_path=pulsar_spark/wire=proto \
	--plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	--python_out=$(1) --mypy_out=quiet:$(1) pulsar_spark/wire/pulsar_api.proto

proto: $(STAMP) ## Generate the protocol's classes from proto/pulsar_api.proto
	$(call generate,.)

check-proto: $(STAMP) ## Compare the committed classes with what proto/ generates
	@rm -rf build/proto && mkdir -p build/proto
	@$(call generate,build/proto)
	@for file in $(GENERATED); do \
		cmp "$$file" "build/proto/$$file" || \
		{ echo "$$file is not what $(PROTO) generates: make proto"; exit 1; }; \
	done

lint: $(STAMP) ## Style and formatting
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

format: $(STAMP) ## Repair style and formatting where that is automatic
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

test: lint types check-proto ## Everything that must pass, with a real broker and Spark
	$(BIN)/python -m pytest $(ARGS)

test-fast: $(STAMP) ## The tests that need no broker
	$(BIN)/python -m pytest -m 'not broker' $(ARGS)

soak: $(STAMP) ## A million frames of a hostile broker (FRAMES=, SEED=)
	PULSAR_SPARK_FUZZ_FRAMES=$(FRAMES) PULSAR_SPARK_FUZZ_SEED=$(SEED) \
		$(BIN)/python -m pytest -s tests/client/test_fuzz_client.py $(ARGS)

check: test ## make test, and the wheel can be built
	$(BIN)/python -m build --dependency-constraints-txt constraints.txt --outdir build/dist .

mutants: $(STAMP) ## Mistakes that no test notices (ARGS="--module plan --budget 10m")
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(STAMP) ## Measure each hop beside its limit (ARGS=--save: into docs/)
	$(BIN)/python -m tests.bench $(ARGS)

bench-peer: $(STAMP) ## Measure beside the Scala connector: PEER_JAR=its jar
	PEER_JAR="$(PEER_JAR)" $(BIN)/python -m tests.bench.bench_peer $(ARGS)

readme: $(STAMP) ## Put the options and the figures in docs/ into README.md
	$(BIN)/python -m tests.support.readme

demo: $(STAMP) ## Start a broker, fill a topic, read it with Spark
	$(BIN)/python -m examples.demo $(ARGS)

broker: $(STAMP) ## Run a broker in the foreground, to play with
	$(BIN)/python -m tests.support.embedded_broker $(ARGS)

clean: ## Remove what the other targets made, .venv included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache \
		.hypothesis spark-warehouse metastore_db derby.log
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
