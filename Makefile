# usmbridge. `make help` lists the targets. They need Go, a C compiler and make. Targets that need Python
# first make the environment .venv with the pinned packages.

GO   ?= go
VENV := $(CURDIR)/.venv

# Options of targets, from the command line only: environments often have variables of these names. make
# exports those of the command line, so scripts and recipes read them from the environment.
$(foreach option,IN OUT ADDR GRPC ADMIN MODELS LIMIT WORKERS SHM ONLY ALL ARGS,$(eval $(option) :=))
FUZZTIME     ?= 3s
HUNT         ?= 1200
JOBS         ?= 2
BENCH        ?= .
SERVICEBENCH ?=
PYTHONS      ?=
VERSIONS     ?=
GPUPYTHON    ?= python3
RUNS         ?=

# Go builds these once and keeps them in its cache.
GOTESTSUM := $(GO) run gotest.tools/gotestsum@v1.13.0
LINT      := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# Modules with a go.mod of their own. go.work includes them.
NESTED := $(patsubst %,./%/...,interop/embedpython interop/metrics interop/pressure interop/flight interop/inference examples/embedded)

CHECKS  := internal/tools/checks
# PROGRESS runs a command that may print nothing for minutes.
PROGRESS := $(CHECKS)/progress.sh
# -v prints each package that Go compiles, and nothing if all are in its cache.
SETUP    = $(GO) run -v ./internal/tools/setup -dir
PIP     := $(VENV)/bin/python -m pip --no-input --disable-pip-version-check
BUILD    = mkdir -p bin && $(GO) build -v -o bin/
# ACTIVE runs a command in the environment. TEST also declares that the machine has what tests need, so that
# they fail without it instead of skipping. The SYCL packages exist for x86-64 only.
ACTIVE  := env -u PYTHONHOME -u PYTHONPATH -u USMBRIDGE_PYTHON VIRTUAL_ENV="$(VENV)" PATH="$(VENV)/bin:$$PATH"
TEST    := env -u USMBRIDGE_SYCL $(ACTIVE) GO="$(GO)" USMBRIDGE_REQUIRE_PYTHON=1 \
	$(if $(filter x86_64,$(shell uname -m)),USMBRIDGE_REQUIRE_SYCL=1 USMBRIDGE_REQUIRE_PEERS=1)

.DEFAULT_GOAL := help
.PHONY: help run serve flight build python python-run wheel clean test test-nested test-pythons test-versions test-peers test-devices test-gpu \
	check check-long fuzz format fmt lint analyse portable bench bench-service bench-wheel docs

help: ## list the targets; times are of two cores with warm caches, and "first" of an empty cache with downloads
	@echo "usmbridge: SYCL unified shared memory for Go, seen from Python without a copy"; echo
	@sed -n 's/^\([a-z][a-zA-Z%-]*\):.*## /\1 /p' $(firstword $(MAKEFILE_LIST)) | \
	  awk '{name = $$1; sub(/^[^ ]* /, ""); printf "  make %-14s %s\n", name, $$0}'

run: python-run ## the main job: one picture through Go, dpctl and Numba [IN=picture.png|.jpg] [OUT=edges.png]; 5 s, first 80 s and 600 MB
	@test -x bin/picture || echo "building (about a minute the first time)"
	@$(BUILD) ./examples/picture
	@$(ACTIVE) ./bin/picture -in "$$IN" -out "$${OUT:-edges.png}"

serve: python-run ## the inference server [ADDR=127.0.0.1:8000] [GRPC=127.0.0.1:8001] [ADMIN=127.0.0.1:8002] [MODELS=dir] [LIMIT=bytes] [WORKERS=n] [SHM=prefix]; starts in 5 s, first 2 min
	@test -x bin/usmserve || echo "building (about a minute the first time)"
	@$(BUILD) ./interop/inference/cmd/usmserve
	@exec $(ACTIVE) ./bin/usmserve -addr "$$ADDR" -grpc "$$GRPC" -admin "$$ADMIN" -models "$$MODELS" -limit "$$LIMIT" \
	  -workers "$${WORKERS:-0}" -shm-prefix "$$SHM"

flight: ## bin/usmflight, the Arrow Flight server for tensors; 2 s, first 2 min
	$(BUILD) ./interop/flight/cmd/usmflight

build: ## bin/usminfo and bin/usmpython; 2 s, first 1 min
	$(BUILD) ./interop/cmd/...

python: ## .venv with the pinned packages, including those of the tests; 1 s, first 1 to 3 min and 1.0 GB
	@$(SETUP) "$(VENV)" test

python-run:
	@$(SETUP) "$(VENV)" run

# The packages of one requirements file, in a directory of their own.
bin/%/requirements.txt: internal/tools/setup/requirements-%.txt | python
	@echo "installing the packages of $< into $(@D) (once)"
	@rm -rf $(@D) && $(PIP) install --no-deps --require-hashes --only-binary=:all: --target $(@D) --requirement $<
	@cp $< $@

# The package that takes longest is first, so that no processor waits for it at the end.
test: python portable ## everything that CI asserts about the root module; 6 min, first 10 min
	@$(TEST) $(PROGRESS) $(GOTESTSUM) --format=pkgname --format-icons=text --format-hide-empty-pkg --junitfile=bin/tests.xml \
	  --post-run-command='sh -c "test $$TESTS_TOTAL -gt $$TESTS_SKIPPED"' -- -vet=all -count=1 -timeout 20m ./interop/pymodule ./...

test-nested: python bin/tritonclient/requirements.txt ## the nested modules with their real clients, and all modules from outside; 3 min, first 6 min
	@$(TEST) $(PROGRESS) $(GO) test -vet=all -count=1 -timeout 20m $(NESTED)
	@$(TEST) USMBRIDGE_RELEASE=1 $(PROGRESS) $(GO) test -vet=off -count=1 -timeout 20m ./internal/tools/release

test-pythons: wheel ## the Python tests with the wheel, on each Python 3.11 to 3.14 that is installed [PYTHONS="13 14" ARGS=pytest's]; 5 min for each
	@USMBRIDGE_WHEEL_PYTHON="$(CURDIR)/bin/wheel/bin/python" $(GO) test -count=1 -run FindsFaults ./internal/tools/wheel
	@GO="$(GO)" PYTHONS="$(PYTHONS)" $(PROGRESS) $(CHECKS)/test-pythons.sh dist/*.whl bin/pythons $(ARGS)

test-versions: build ## both protocols with each dpctl from 0.17 to 0.22 and NumPy from 1.26: the table of docs/compatibility.md [VERSIONS="dpctl-0.18 ..."]; 5 min for each
	@GO="$(GO)" $(PROGRESS) $(CHECKS)/test-versions.sh bin/versions $(VERSIONS)

test-peers: python build bin/jax/requirements.txt bin/consumers/requirements.txt ## the peers' own tests with usmbridge; JAX, and libraries that take arrays; 2 min
	@$(TEST) $(PROGRESS) $(CHECKS)/test-peers.sh

test-devices: python ## the tests on PoCL, sub-devices and simulated CUDA devices [RUNS="parts pocl platforms cuda cudas" USMBRIDGE_UR_ADAPTERS=dir]; 20 min
	@GOTESTSUM="$(GOTESTSUM)" $(TEST) $(PROGRESS) $(CHECKS)/test-devices.sh bin/devices $(RUNS)

test-gpu: python ## checks and figures on this machine's NVIDIA GPU; bin/gpu/run.sh repeats them on another one [USMBRIDGE_UR_ADAPTERS=dir]; 5 min
	@rm -rf bin/gpu-wheel && $(PIP) wheel --no-deps --no-index --no-build-isolation --wheel-dir bin/gpu-wheel internal/pypackage
	@$(TEST) internal/gpu/pack.sh bin/gpu bin/gpu-wheel/*.whl
	@PYTHON="$(GPUPYTHON)" bin/gpu/run.sh

portable:
	@GO="$(GO)" $(CHECKS)/portable.sh

check: format lint analyse sanitize-states sanitize-race sanitize-asan sanitize-cgocheck sanitize-clobber fuzz ## formats, linters, analysis of C, sanitizers, each fuzz target for FUZZTIME; 20 min

sanitize-%: python ## the tests with one tool, states|race|asan|ubsan|cgocheck|clobber [ALL=1: all packages]; 2 to 6 min
	@$(TEST) $(PROGRESS) $(CHECKS)/sanitize.sh $*

fuzz: ## each fuzz target for [FUZZTIME=3s], or those that match [ONLY=regexp]; 3 min
	@GO="$(GO)" $(PROGRESS) $(CHECKS)/fuzz.sh $(FUZZTIME) "$$ONLY"

check-long: python build ## fuzzing, hunts, sanitizers and soaks; continues an interrupted run [HUNT=1200 seconds each, JOBS=2, ONLY=regexp, ARGS=-l]; hours
	@exec $(TEST) $(CHECKS)/long.sh -j $(JOBS) -o "$${ONLY:-.}" $(ARGS) $(HUNT)

GO_FILES = $$(git ls-files --cached --others --exclude-standard '*.go')
C_FILES  = $$(git ls-files --cached --others --exclude-standard '*.c' '*.h')

format: python
	@bad="$$(gofmt -l $(GO_FILES))"; test -z "$$bad" || { echo "not formatted (run make fmt): $$bad"; exit 1; }
	@$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES)

fmt: python ## formats Go with gofmt and C with clang-format; 10 s
	@gofmt -w $(GO_FILES) && $(VENV)/bin/clang-format -i $(C_FILES)

lint:
	@echo "golangci-lint (some minutes the first time, which builds it)"
	@$(PROGRESS) $(LINT) run ./... $(NESTED)

analyse: ## all C, including that of Go files, with every warning and gcc's static analyser; 1 min
	@CC="$$($(GO) env CC)" $(PROGRESS) $(CHECKS)/analyse.sh

bench: python build ## usmbridge and its peers in one run, as tables; also JSON in bin/ [BENCH=regexp of Go benchmarks]; 30 min
	@$(TEST) BENCH='$(BENCH)' $(PROGRESS) internal/bench/bench.sh

bench-wheel: python wheel ## the Python benchmarks with the wheel in a plain python; 4 min
	@rm -rf bin/bench-wheel && $(PIP) install --quiet --no-deps --no-index --target bin/bench-wheel dist/*.whl
	@$(TEST) PYTHONPATH="$(CURDIR)/bin/bench-wheel" $(PROGRESS) internal/bench/bench.sh wheel

bench-service: python bin/tritonclient/requirements.txt ## the inference server against aiohttp and plain processes [SERVICEBENCH=flags]; 2 min
	@$(BUILD) ./interop/inference/cmd/usmserve && $(GO) build -o bin/servicebench ./interop/inference/internal/bench
	@$(TEST) ./bin/servicebench $(SERVICEBENCH)

wheel: ## the Python package as a wheel in dist/: for old systems, built twice and audited; 2 min, first 3 min and 110 MB
	@$(SETUP) "$(CURDIR)/bin/wheel" wheel
	@GO="$(GO)" $(PROGRESS) internal/tools/wheel/wheel.sh bin/wheel/bin/python dist

docs: bin/mkdocs/requirements.txt ## the documentation site in bin/site, from README.md, docs and the stubs; 10 s, first 1 min
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH="$(CURDIR)/bin/mkdocs" $(VENV)/bin/python -m mkdocs build --quiet -f internal/tools/site/mkdocs.yml
	@echo "bin/site/index.html"

clean: ## removes all that was built, including .venv
	rm -rf bin dist .venv edges.png
