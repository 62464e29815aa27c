# SPDX-License-Identifier: Apache-2.0
# Everything runs in a virtual environment that this file makes itself.
# PYTHON=python3.12 make test    chooses the interpreter for it.
# MINUTES=60 FRAMES=100000 SEED=7 make soak  chooses how much of it, and where chance begins.
# PROCESSES=4 make test  chooses how many share the tests; each has its own broker and Spark.
# PYTHONS=python3.13 make test-matrix   names the other interpreters.
# ARGS="-k frames -x" make test-fast    passes options to pytest, and to the others.
# ARGS=--until=$(($(date +%s) + 1200)) make soak    begins no test after 20 minutes.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
MINUTES ?= 10
FRAMES ?= 1000000
SEED ?= 1
PROCESSES ?= 3
PYTHONS ?=
VERSION ?= $(error VERSION=0.2.0 names the release)

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
TUBEMQ := siblings/tubemq
YDB := siblings/ydb_topic
GENERATED := pulsar_spark/wire/pulsar_api_pb2.py pulsar_spark/wire/pulsar_api_pb2.pyi
GENERATED_TUBEMQ := tubemq_spark/wire/tubemq_pb2.py tubemq_spark/wire/tubemq_pb2.pyi
CODE := pulsar_spark spark_topics siblings pyspark_pulsar.py pyspark_pulsar_py.py \
	setup.py kernel_build.py conftest.py tests examples docs/conf.py
LONG := soak or matrix
# In one process: each starts a master and a broker.
TUBEMQ_TESTS := $(TUBEMQ)/tests/real
# More of them than cores: they wait often. Who is done takes over what others have left.
PYTEST := $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal
# But a file of the real broker's may start one of its own: no two processes shall.
BY_FILE := --dist=loadfile --no-loadscope-reorder
COVERAGE := $(BIN)/python -m coverage run -m pytest --numprocesses=$(PROCESSES) \
	--dist=worksteal -m 'not (broker or tubemq or slow or $(LONG))'
PINNED := --constraint constraints.txt --build-constraint constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install proto check-proto lint format types test test-fast test-matrix test-ydb \
	soak soak-cluster soak-scalable soak-faults coverage mutants check wheels bench bench-tubemq \
	bench-peer bench-rivals bench-pinned docs generate-docs changelog demo demo-tubemq broker clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' \
		$(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with everything that development needs

# The kernel is among these: what is installed in place must be what the source says.
$(STAMP): pyproject.toml constraints.txt setup.py kernel_build.py \
		$(TUBEMQ)/pyproject.toml $(TUBEMQ)/setup.py $(YDB)/pyproject.toml \
		$(wildcard */loops/*.p* $(TUBEMQ)/*/loops/*.p*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet $(PINNED) --editable '.[dev]' \
		--editable '$(TUBEMQ)[fast]' --editable $(YDB)
	@touch $@

# $(1): the root below which the generated files go, $(2): the package, $(3): the protocol,
# $(4): the folder of the distribution.
# proto/ is mapped to the folder of the package: that name is registered in the process, so
# it must be nobody else's.
generate_one = $(BIN)/python -m grpc_tools.protoc --proto_path=$(2)=$(4)proto \
	--plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	--python_out=$(1) --mypy_out=quiet:$(1) $(2)/$(3).proto
generate = $(call generate_one,$(1),pulsar_spark/wire,pulsar_api,) && \
	$(call generate_one,$(2),tubemq_spark/wire,tubemq,$(TUBEMQ)/)

proto: $(STAMP) ## Generate the protocols' classes from proto/
	$(call generate,.,$(TUBEMQ))

check-proto: $(STAMP) ## Compare the committed classes with what proto/ generates
	@rm -rf build/proto && mkdir -p build/proto
	@$(call generate,build/proto,build/proto)
	@for file in $(GENERATED) $(addprefix $(TUBEMQ)/,$(GENERATED_TUBEMQ)); do \
		cmp "$$file" "build/proto/$${file#$(TUBEMQ)/}" || \
		{ echo "$$file is not what proto/ generates: make proto"; exit 1; }; \
	done

lint: $(STAMP) ## Style, formatting, and how plain the language is
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/python -m tests.support.english

format: $(STAMP) ## Repair style and formatting where that is automatic
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)
	$(BIN)/python -m tests.support.licence_lines

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

test: lint types check-proto ## Everything that must pass, with a real broker and Spark
	$(PYTEST) $(BY_FILE) -m 'not ($(LONG))' $(ARGS)

test-fast: $(STAMP) ## The tests that need no broker
	$(PYTEST) -m 'not (broker or tubemq or $(LONG))' $(ARGS)

test-matrix: $(STAMP) ## Every combination, and other Pulsars, Sparks, Pythons (ARGS=--save)
	$(PYTEST) -m matrix $(filter-out --save,$(ARGS))
	PYTHONS="$(PYTHONS)" $(BIN)/python -m tests.matrix $(ARGS)
	$(if $(findstring --save,$(ARGS)),$(BIN)/python -m tests.support.docs)
	@for python in $$(PYTHONS="$(PYTHONS)" $(BIN)/python -m tests.support.pythons $(ARGS)); do \
		venv=build/venv-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		$(MAKE) test-fast PYTHON=$$python VENV=$$venv \
			ARGS='$(filter-out --save,$(ARGS))' || exit 1; \
	done

test-ydb: $(STAMP) ## The tests of YDB that a server can pass: YDB_ENDPOINT=grpc://host:2136/db
	$(BIN)/python -m pytest $(YDB)/tests/server $(ARGS)

soak: $(STAMP) ## All that takes long by nature: the two below, one after the other
	@failed=0; $(MAKE) soak-cluster || failed=1; $(MAKE) soak-faults || failed=1; exit $$failed

# It has the machine for itself.
soak-cluster: $(STAMP) ## A stream on a cluster under kills (MINUTES=, SEED=, ARGS=--save)
	PULSAR_SPARK_SOAK_MINUTES=$(MINUTES) PULSAR_SPARK_SOAK_SEED=$(SEED) \
		$(BIN)/python -m pytest -m soak --capture=no --durations=0 \
		-o faulthandler_timeout=$$((60 * $(MINUTES) + 4800)) tests/soak $(ARGS)

soak-scalable: $(STAMP) ## Copies of a topic that is split and merged all the time (MINUTES=)
	PULSAR_SPARK_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest -m soak --capture=no \
		-o faulthandler_timeout=$$((60 * $(MINUTES) + 4800)) \
		tests/broker/test_scalable_soak.py $(ARGS)

soak-faults: $(STAMP) ## Long faults, and the frames of a hostile broker (FRAMES=, SEED=)
	@failed=0; \
	$(BIN)/python -m pytest -m soak --durations=0 $(TUBEMQ_TESTS) $(ARGS) || failed=1; \
	PULSAR_SPARK_FUZZ_FRAMES=$(FRAMES) PULSAR_SPARK_FUZZ_SEED=$(SEED) \
		$(PYTEST) -m soak --durations=0 --ignore=tests/soak --ignore=$(TUBEMQ_TESTS) \
		$(ARGS) || failed=1; \
	exit $$failed

# Coverage cannot look into the compiled kernel, and the other one makes all the rest slow:
# it runs in its own tests, and where others are about both.
coverage: $(STAMP) ## How much of each package runs without a broker (ARGS=--save: into docs/)
	rm -rf build/coverage
	$(COVERAGE) --ignore=tests/bench --ignore=tests/loops \
		--ignore=$(TUBEMQ)/tests/loops
	$(COVERAGE) -p tests.support.python_kernel -k 'not (compiled or checked)' tests/loops \
		$(TUBEMQ)/tests/loops
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o build/coverage/report.json
	$(BIN)/python -m tests.support.rooms build/coverage/report.json $(ARGS)

check: test docs ## make test, the site, and sdist and wheel on newest and oldest dependencies
	$(BIN)/python -m pytest tests/packaging/check_distributions.py

wheels: $(STAMP) ## A wheel for each Python at hand, in dist/ (PYTHONS=)
	PYTHONS="$(PYTHONS)" $(BIN)/python -m tests.packaging.wheels

mutants: $(STAMP) ## Mistakes that no test notices (ARGS="--module plan --budget 10m")
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(STAMP) ## Measure each hop beside its limit (ARGS=--save: into docs/)
	$(BIN)/python -m tests.bench $(ARGS)

bench-tubemq: $(STAMP) ## Measure the hops of TubeMQ beside their limits
	$(BIN)/python -m siblings.tubemq.tests.bench $(ARGS)

bench-peer: $(STAMP) ## Measure beside the Scala connector: PEER_JAR=its jar
	PEER_JAR="$(PEER_JAR)" $(BIN)/python -m tests.bench.bench_peer $(ARGS)

bench-rivals: $(STAMP) ## Other readers of Pulsar, and Spark's of Kafka, beside ours
	$(BIN)/python -m tests.bench.rivals $(ARGS)

bench-pinned: $(STAMP) ## What a row costs them and us, brokers on a core of their own
	$(BIN)/python -m tests.bench.rivals.pinned $(ARGS)

# The site needs nothing of development, and no compiled kernel.
$(DOCS_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt pip
	PULSAR_SPARK_KERNEL=python $(DOCS_VENV)/bin/python -m pip install --quiet $(PINNED) \
		--group docs --editable .
	@touch $@

docs: $(DOCS_STAMP) ## Build the site in build/site; a dead link is an error
	$(DOCS_VENV)/bin/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky \
		--doctree-dir build/doctrees --builder html docs build/site
	@echo "build/site/index.html"

generate-docs: $(STAMP) ## Renew the generated parts of docs/
	$(BIN)/python -m tests.support.docs

changelog: $(STAMP) ## Move what changes/ has into CHANGELOG.md (VERSION=)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group release
	$(BIN)/python -m towncrier build --yes --version "$(VERSION)"

demo: $(STAMP) ## Start a broker, fill a topic, read it with Spark
	$(BIN)/python -m examples.demo $(ARGS)

demo-tubemq: $(STAMP) ## The same with TubeMQ: write a topic with Spark, and read it
	$(BIN)/python -m siblings.tubemq.examples.demo $(ARGS)

broker: $(STAMP) ## Run a broker in the foreground, to play with
	$(BIN)/pulsar-spark broker --port 0 --admin-port 0 $(ARGS)

clean: ## Remove what the other targets made, .venv included
	rm -rf $(VENV) $(DOCS_VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache \
		.hypothesis spark-warehouse metastore_db derby.log
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
