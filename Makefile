# Everything a fresh machine with python3 and make needs is bootstrapped here: uv into .venv-uv if
# it is not on PATH, dependencies from the lock file, and (for `make test`) the testbed's programs.

# Of several interpreters the distribution's: it is built with profiles, which those built by hand often are not, and takes a
# sixth less time for the same work. PYTHON=... chooses another.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13))
UV := $(shell command -v uv 2>/dev/null || echo $(CURDIR)/.cache/uv/bin/uv)
RUN := $(UV) run --frozen --quiet
export UV_LINK_MODE ?= copy
# What was compiled is kept out of the tree, but it is kept: a program that compiles everything anew begins a second later.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.cache/pycache

PIP_AUDIT := pip-audit==2.10.1

.PHONY: worlds beside checks docs coverage chart-test rendered decisions mutation help demo test lint words unit e2e testbed architecture crds charts wheel sbom image audit protobuf soak differential device-verdicts bench clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(CURDIR)/.cache/uv/bin/uv:
	python3 -m venv .cache/uv
	.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.10'

.cache/synced: pyproject.toml uv.lock | $(UV)
	$(UV) sync --frozen --quiet $(if $(PYTHON),--python $(PYTHON))
	@mkdir -p .cache && touch $@

demo: .cache/synced  ## a simulated research lab in the terminal
	@$(RUN) --no-sync fairlead demo $(ARGS)

# What is not built yet is built beside lint. End-to-end tests wait for other processes half of the time: the unit tests have
# what they leave of the cores.
test: .cache/synced  ## everything that main must always pass
	$(MAKE) --jobs 2 lint testbed
	$(MAKE) --jobs 2 beside e2e

beside: .cache/synced
	nice -n 10 $(MAKE) docs
	nice -n 10 $(MAKE) unit

checks: .cache/synced  ## what needs no control plane: lint, docs, unit, one after the other
	$(MAKE) lint
	$(MAKE) docs
	$(MAKE) unit

lint: .cache/synced  ## formatting, rules, types (of the tests: imported names), layers, words, generated files
	$(RUN) --no-sync ruff format --check .
	$(RUN) --no-sync ruff check .
	$(RUN) --no-sync mypy
	$(RUN) --no-sync lint-imports
	$(RUN) --no-sync python -m tests.words

docs: .cache/synced  ## the documentation as a site, .cache/docs/html; warnings are errors
	$(RUN) --no-sync sphinx-build --fail-on-warning --keep-going --nitpicky --quiet -d .cache/docs/doctrees docs .cache/docs/html

words: .cache/synced  ## lower the numbers of words in tests/words.toml that have become rarer
	$(RUN) --no-sync python -m tests.words --update

# Of tests that differ by their seeds alone so many are run; 0: all.
SEEDS ?= 10

unit: .cache/synced  ## unit, property and trace tests
	$(RUN) --no-sync pytest -n 2 --dist worksteal -m "not e2e and not slow" --sample $(SEEDS) tests

worlds: .cache/synced  ## the same with all seeds of random worlds (twice as long)
	$(MAKE) unit SEEDS=0

coverage: .cache/synced  ## branches that the fast tests run, against their floors (a quarter of an hour)
	$(RUN) --no-sync python -m testbed.floors

mutation: .cache/synced  ## plant bugs that schedulers had, and count those that the fast tests catch (up to an hour)
	$(RUN) --no-sync python -m testbed.mutation.run

testbed: .cache/synced  ## build the real control plane (minutes the first time)
	nice -n 10 $(RUN) --no-sync python -m testbed build

e2e: testbed  ## end to end on the real control plane
	$(RUN) --no-sync pytest -n 2 --dist loadgroup -m "e2e and not slow" tests

architecture: .cache/synced  ## draw docs/architecture.svg
	$(RUN) --no-sync python -m testbed.architecture

crds: .cache/synced  ## write the generated YAML
	$(RUN) --no-sync fairlead crds > crds/fairlead.yaml
	$(RUN) --no-sync fairlead crds --policies > crds/policies.yaml

charts: .cache/synced  ## write the files of charts/
	$(RUN) --no-sync python -m testbed.charts
	$(RUN) --no-sync python -m testbed.chart.files

rendered: .cache/synced  ## write charts/rendered/ with the real Helm (builds it the first time: minutes)
	$(RUN) --no-sync python -m testbed.chart.rendered

chart-test: testbed  ## the chart with the real Helm on the real control plane (builds Helm the first time: minutes)
	$(RUN) --no-sync pytest -m chart tests

wheel: .cache/synced  ## the wheel and its locked requirements: dist/, which the Containerfile reads
	$(RUN) --no-sync python -m testbed.wheel dist

image: wheel  ## the image as an OCI layout, dist/image, without a container runtime; root, Debian; ARGS=--fresh: with today's packages
	$(RUN) --no-sync python -m testbed.image dist $(ARGS)

sbom: .cache/synced  ## the bill of materials as CycloneDX: dist/fairlead.cdx.json
	@mkdir -p dist
	$(RUN) --no-sync python -m testbed.sbom dist/fairlead.cdx.json

audit: wheel  ## known vulnerabilities of the locked dependencies; asks PyPI
	$(UV) run --no-project --quiet --with $(PIP_AUDIT) pip-audit --strict --require-hashes --disable-pip --requirement dist/requirements.txt

protobuf: testbed  ## write the numbers of fields in Kubernetes' protobuf
	$(RUN) --no-sync python -m testbed protobuf > src/fairlead/cluster/simulated/protobuf.txt

soak: testbed worlds  ## long runs, not part of make test
	$(RUN) --no-sync pytest -n 2 --dist loadgroup -m "slow and not chart" tests

differential: testbed  ## 50,000 random clusters against kube-scheduler's real plugins, 50,000 device selectors against Kubernetes' evaluation and 50,000 with devices against its allocators (an hour)
	$(RUN) --no-sync fairlead bench differential --seeds 0-49999
	$(RUN) --no-sync fairlead bench cel --differential --seeds 0-4999
	$(RUN) --no-sync fairlead bench dra --differential --seeds 0-49999

device-verdicts: .cache/synced  ## record what upstream's allocators of devices say, for make test
	$(RUN) --no-sync python -m testbed.dra

DECISIONS = .cache/decisions/$(shell git rev-parse --verify --quiet '$(BASE)^{commit}')

decisions: .cache/synced  ## replay decisions that the code of commit BASE takes: BASE=<commit>, none may differ (minutes)
	@test -n "$(BASE)" && test "$(DECISIONS)" != .cache/decisions/ || { echo 'give BASE=<commit>: whose decisions are compared'; exit 2; }
	@test -f $(DECISIONS)/logs/summary.json || { rm -rf $(DECISIONS) && mkdir -p $(DECISIONS)/tree \
	  && git archive $(notdir $(DECISIONS)) src | tar -x -C $(DECISIONS)/tree \
	  && PYTHONPATH=$(DECISIONS)/tree/src $(RUN) --no-sync python -m fairlead bench decisions --record $(DECISIONS)/logs \
	  $(if $(FAIRLEAD_TRACES),--trace $(FAIRLEAD_TRACES)/philly/philly_oct_nov.csv.xz); }
	$(RUN) --no-sync fairlead bench decisions --replay $(DECISIONS)/logs $(ARGS)

bench: .cache/synced  ## run the commands of benchmarks/README.md and write their figures there (hours)
	nice -n 10 $(RUN) --no-sync python -m testbed build --optimized
	$(RUN) --no-sync python benchmarks/run.py

clean:  ## remove what make made here
	rm -rf .venv .cache dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
