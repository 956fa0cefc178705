# Everything a user or CI runs. `make demo` and `make test` assume Python >= 3.10 and a JDK >= 17, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VENV41 := .venv-spark41
BIN41 := $(VENV41)/bin
ARCHIVES := $(VENV)/class-archives
export SPARK_LOCAL_IP := 127.0.0.1

.DEFAULT_GOAL := help
.PHONY: help machine install demo test test-unit test-simulation test-kafka test-spark test-spark41 test-fault test-large lint format bench bench-source \
  bench-staging docs notebooks lock wheel archive FORCE simulate mutants fault ways soak scenarios clean

help: ## what can be made
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

machine:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "spark-eos needs Python 3.10 or newer; '$(PYTHON)' is missing or older. Try: make PYTHON=python3.11" >&2; exit 1; }
	@command -v java >/dev/null || { echo "spark-eos needs a JDK 17 or newer on the PATH; there is no 'java'." >&2; exit 1; }
	@java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | { read v; [ "$${v:-0}" -ge 17 ]; } || \
	  { echo "spark-eos needs a JDK 17 or newer; 'java -version' says: $$(java -version 2>&1 | head -1)" >&2; exit 1; }

# Bytecode is made on all cores, where pip takes one. Nothing else makes it where PYTHONDONTWRITEBYTECODE is set, and
# without it pandas, which each of Spark's Arrow workers imports, takes 1.6 s instead of 0.5 s (measured).
$(VENV)/.installed: requirements.lock pyproject.toml | machine
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes -r requirements.lock
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# The same pins but for Spark's own; delta-spark fits one version of Spark only.
$(VENV41)/.installed: requirements.lock requirements-spark41.lock pyproject.toml | machine
	$(PYTHON) -m venv $(VENV41)
	awk '/^[a-z]/ { other = !/^(pyspark|delta-spark)==/ } other' requirements.lock > $(VENV41)/other.lock
	$(BIN41)/pip install --quiet --no-compile --require-hashes -r $(VENV41)/other.lock
	$(BIN41)/pip install --quiet --no-compile --require-hashes --no-deps -r requirements-spark41.lock
	$(BIN41)/python -m compileall -q -j 0 $(VENV41)/lib
	$(BIN41)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

install: $(VENV)/.installed ## the package with pinned versions, in .venv

demo: install ## settlements to refunds under SIGKILL, with and without the connector (ARGS="--events 20000")
	$(BIN)/python jobs/demo.py $(ARGS)

$(ARCHIVES): tests/class_archives.py $(VENV)/.installed
	$(BIN)/python tests/class_archives.py $(ARCHIVES)
	@touch $(ARCHIVES)

# Two processes, each with a broker and a Spark of its own: most tests wait for one of them. The longest files first.
TIERS := $(addprefix tests/,fault spark contract kafka simulation unit)
test: install ## every test but those of test-large, in about 20 minutes on 2 cores
	$(MAKE) --jobs=2 lint $(ARCHIVES)
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(TIERS) -m 'not large' $(ARGS)

test-unit: install ## the pure protocol: no Spark, no Kafka
	$(BIN)/pytest tests/unit $(ARGS)

test-simulation: install ## SimulatedKafka: the same contract as a real broker's, without one
	$(BIN)/pytest tests/simulation tests/contract -k simulat $(ARGS)

test-kafka: install ## against a real broker
	$(BIN)/pytest tests/kafka tests/contract -k 'not simulated' $(ARGS)

test-spark: install ## against a real broker and Spark
	$(BIN)/pytest tests/spark $(ARGS)

# Spark 4.1 itself leaves sockets open after each collect(). The jobs are left out: they are written for the pinned Spark.
test-spark41: $(VENV41)/.installed ## the tests of the kafka and spark tiers with Spark 4.1
	$(BIN41)/pytest -n 2 --dist loadfile -W 'ignore:unclosed <socket.socket:ResourceWarning' tests/kafka tests/contract tests/spark \
	  --ignore tests/spark/test_job.py --ignore tests/spark/test_warehouse.py --ignore tests/spark/test_reconcile.py $(ARGS)

test-fault: install ## kills, rival drivers, the fault matrix in short
	$(BIN)/pytest tests/fault $(ARGS)

test-large: install $(ARCHIVES) archive ## what is too large for every day: take-over of 5,000 lanes, a standalone cluster, demo and soak, more of what `test` has
	SPARK_EOS_TEST_LANES=5000 $(BIN)/pytest tests/kafka/test_many_lanes.py $(ARGS)
	$(BIN)/pytest tests -m large $(ARGS)

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## added time per batch and rows/s, beside Spark's built-in sink
	$(BIN)/python benchmarks/sink.py $(ARGS)

bench-source: install ## reading, beside Spark's built-in source; 12 minutes (ARGS="--only stream --rows-scale 0.1")
	$(BIN)/python benchmarks/source.py $(ARGS)

bench-staging: install ## how long a slow lane holds readers back, with and without stage.rows (ARGS="--seconds 2")
	$(BIN)/python benchmarks/staging.py $(ARGS)

docs: install ## write the tables that are made from code into docs/
	$(BIN)/python docs/make.py

notebooks: install ## run the notebooks from top to bottom and save their outputs in place (ARGS=3_tail_latency)
	$(BIN)/python notebooks/execute.py $(ARGS)

lock: install ## resolve requirements.lock anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra jobs --extra schema-registry --extra metrics --extra notebooks --group dev --universal \
	  --python-version 3.10 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet -o requirements.lock

WHEEL := dist/spark_eos-$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)-py3-none-any.whl
wheel: $(WHEEL) ## the package as a wheel, in dist
$(WHEEL): $(VENV)/.installed $(shell find spark_eos -name '*.py') pyspark_kafka_eos.py
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

EXTRAS ?= jobs
dist/.extras: FORCE
	@mkdir -p dist; echo '$(EXTRAS)' | cmp -s - $@ || echo '$(EXTRAS)' > $@
FORCE:

ENV := dist/spark-eos-env.tar.gz
archive: $(ENV) dist/jobs.zip ## what a job takes to a cluster, in dist: ./spark-submit.sh, docs/deploy.md (EXTRAS="jobs schema-registry metrics")
$(ENV): $(WHEEL) deploy/archive.py requirements.lock dist/.extras
	$(BIN)/python deploy/archive.py $(WHEEL) $@ $(EXTRAS)

dist/jobs.zip: $(wildcard jobs/*.py) | $(VENV)/.installed
	mkdir -p dist
	rm -f $@
	cd jobs && ../$(BIN)/python -m zipfile --create ../$@ $(^F)

simulate: install ## the protocol on simulated brokers: searches to the end, and seeded runs (SEEDS=10000)
	$(BIN)/python reliability/simulate.py $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

mutants: install ## connectors with one mistake each: the simulation and a real broker must notice them (ARGS="--only random-id")
	$(BIN)/python reliability/mutants.py $(ARGS)
	$(BIN)/python reliability/mutants.py --real $(ARGS)

ways: install ## ways of use: pipelines, changes at a restart and faults, drawn from seeds (SEEDS=100, ARGS="--replay 17")
	$(BIN)/python reliability/ways.py $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

fault: install ## the fault matrix: kills, stops and broker failures, each run checked (RUNS=25 ARGS="--only kill-before-init")
	PYTHONPATH=jobs $(BIN)/python reliability/fault.py $(if $(RUNS),--runs $(RUNS)) $(ARGS)

soak: install ## hours of load with a kill a minute, measured over time and checked (HOURS=1); the picture goes to docs/soak.png
	PYTHONPATH=jobs $(BIN)/python reliability/soak.py --hours $(or $(HOURS),1) --picture docs/soak.png $(ARGS)

scenarios: install ## what docs/SCENARIOS.md tells, shown in dumps of Kafka's log and checked (ARGS="--only 3,11")
	PYTHONPATH=jobs:tests $(BIN)/python reliability/scenarios.py $(ARGS)

clean: ## remove what the build and the tests made
	rm -rf $(VENV) $(VENV41) dist .pytest_cache .mypy_cache .ruff_cache spark-warehouse
