# usmbridge. `make help` lists the targets. They need Go, a C compiler and make;
# Python and its packages are set up on demand in .venv.

GO    ?= go
VENV  := $(CURDIR)/.venv
# The picture of `make run`; without IN a photograph of the Go installation.
# From the command line alone: variables of these names are too common elsewhere.
IN    =
OUT   = edges.png
# What `make serve` serves, and where; empty ones are the service's own defaults.
ADDR    =
GRPC    =
ADMIN   =
MODELS  =
LIMIT   =
WORKERS =
SHM     =
ONLY    =
# How long each fuzz target runs in `make check`, and what `make bench` selects.
FUZZTIME ?= 3s
BENCH    ?= .
# The runner of `make test` and the linter of `make check`, built once into bin/. Go verifies
# them, and all they import, by its checksum database.
GOTESTSUM_VERSION := v1.13.0
LINT_VERSION := v2.15.0

SETUP     = test -f "$(VENV)/usmbridge.json" || echo "setup: building the set-up program"; \
	$(GO) run ./internal/tools/setup -dir "$(VENV)"
# What runs with the environment active. Dollar signs reach the shell.
ACTIVE    := env -u PYTHONHOME -u PYTHONPATH -u USMBRIDGE_PYTHON VIRTUAL_ENV="$(VENV)" PATH="$(VENV)/bin:$$PATH"
# Installs the packages of a requirements file; a file whose hash is not listed is refused.
PIP_INSTALL := $(VENV)/bin/python -m pip install --require-hashes --quiet --no-deps --only-binary=:all: --no-input --disable-pip-version-check
# With the pinned packages installed, a missing device, peer or interpreter is
# a failure, not a reason to skip. The SYCL packages exist for x86-64 alone.
REQUIRE   := USMBRIDGE_REQUIRE_PYTHON=1
ifeq ($(shell uname -m),x86_64)
REQUIRE   += USMBRIDGE_REQUIRE_SYCL=1 USMBRIDGE_REQUIRE_PEERS=1
endif
# Tests that listen to the environment get it from here alone.
QUIET_ENV := env -u USMBRIDGE_SYCL

.DEFAULT_GOAL := help
.PHONY: help run serve test test-nested test-pythons test-versions test-peers bench bench-wheel bench-service check check-long build python python-run wheel flight clean \
	vet portable format fmt lint analyse memcheck race asan ubsan cgocheck clobber fuzz

help: ## list the targets
	@echo "usmbridge: SYCL unified shared memory for Go, seen from Python without a copy"
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1 /p' $(firstword $(MAKEFILE_LIST)) | \
	  awk '{name = $$1; sub(/^[^ ]* /, ""); printf "  make %-12s %s\n", name, $$0}'
	@echo
	@echo "  make run IN=picture.png OUT=edges.png    names the pictures of the main job"

run: export PICTURE_IN = $(IN)
run: export PICTURE_OUT = $(OUT)
run: python-run ## the main job: one picture through Go, dpctl and Numba [IN=picture.png|.jpg] [OUT=edges.png]
	@mkdir -p bin
	@test -x bin/picture || echo "building (about a minute the first time)"
	@$(GO) build -o bin/picture ./examples/picture
	@$(ACTIVE) ./bin/picture -in "$$PICTURE_IN" -out "$$PICTURE_OUT"

# A line for each package, what failed and every skip with its reason at the end,
# and DONE with the counts last; that no test ran is a failure too.
GOTESTSUM = ./bin/gotestsum-$(GOTESTSUM_VERSION) --format=pkgname --format-icons=text --format-hide-empty-pkg \
	--junitfile=bin/tests.xml --post-run-command='sh -c "test $$TESTS_TOTAL -gt $$TESTS_SKIPPED"'

test: python vet portable bin/gotestsum-$(GOTESTSUM_VERSION) ## everything that CI asserts
	@$(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(GOTESTSUM) -- -count=1 -timeout 20m ./...

bin/gotestsum-$(GOTESTSUM_VERSION):
	@mkdir -p bin
	GOFLAGS= GOBIN="$(CURDIR)/bin" $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	mv bin/gotestsum $@

vet: ## go vet, all packages
	$(GO) vet ./...

# What must compile, and what must work, without cgo and on other systems. The host backend
# is for every architecture of Linux: 32-bit ones, big-endian ones and those with other
# numbers of system calls among them.
ARCHITECTURES := 386 arm riscv64 ppc64le s390x loong64 mips64le
LIBRARY := ./examples/quickstart ./interop/share ./memmgr/segment ./memmgr/arena ./usmarray/kernel ./dlpack/cute
portable: ## builds and tests without cgo, builds for other systems
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) test ./dlpack/... ./memmgr/... ./syclobj/... ./usmarray/... ./examples/quickstart ./interop/internal/usminfo
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build ./...
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build ./...
	@# Without optimization, which halves the time that the standard library takes.
	@for arch in $(ARCHITECTURES); do \
	  echo "CGO_ENABLED=0 GOARCH=$$arch $(GO) build, the library"; \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -gcflags='all=-N -l' $(LIBRARY) || exit 1; \
	done

# Modules with a go.mod of their own, for what would burden a library's user.
NESTED := interop/embedpython interop/metrics interop/flight interop/inference examples/embedded

test-nested: python bin/tritonclient/requirements.txt ## the nested modules with their real clients: vet, build, tests
	@for m in $(NESTED); do \
	  echo "== $$m"; (cd $$m && $(GO) vet ./... && $(GO) build -o /dev/null ./... && \
	  $(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(GO) test -count=1 -timeout 20m ./...) || exit 1; \
	done
	@echo "== the modules from outside"
	USMBRIDGE_RELEASE=1 $(GO) test -count=1 -timeout 20m ./internal/tools/release

# The clients in the tests of the inference server. They need another ml_dtypes than the other peers.
bin/tritonclient/requirements.txt: internal/tools/setup/requirements-tritonclient.txt | python
	@echo "fetching the clients of the inference server (35 MB, once)"
	@rm -rf bin/tritonclient
	$(PIP_INSTALL) --target bin/tritonclient --requirement $<
	cp $< $@

serve: export SERVE_ADDR = $(ADDR)
serve: export SERVE_GRPC = $(GRPC)
serve: export SERVE_ADMIN = $(ADMIN)
serve: export SERVE_MODELS = $(MODELS)
serve: export SERVE_LIMIT = $(LIMIT)
serve: export SERVE_WORKERS = $(WORKERS)
serve: export SERVE_SHM = $(SHM)
serve: python-run ## the inference server [ADDR=127.0.0.1:8000] [GRPC=127.0.0.1:8001] [ADMIN=addr] [MODELS=dir] [LIMIT=bytes] [WORKERS=n] [SHM=prefix]
	@mkdir -p bin
	@test -x bin/usmserve || echo "building (about a minute the first time)"
	@cd interop/inference && $(GO) build -o "$(CURDIR)/bin/usmserve" ./cmd/usmserve
	@exec $(ACTIVE) ./bin/usmserve -addr "$$SERVE_ADDR" -grpc "$$SERVE_GRPC" -admin "$$SERVE_ADMIN" \
	  -models "$$SERVE_MODELS" -limit "$$SERVE_LIMIT" -workers "$${SERVE_WORKERS:-0}" -shm-prefix "$$SERVE_SHM"

flight: ## builds bin/usmflight, the Arrow Flight server for tensors
	@mkdir -p bin
	cd interop/flight && $(GO) build -o "$(CURDIR)/bin/usmflight" ./cmd/usmflight

bench: python build ## ours against the peers in one run, as tables; also JSON in bin/ [BENCH=regexp of Go benchmarks]
	@echo "== memory: the pool, UMF and raw allocation"
	@$(GO) build -o bin/membench ./internal/bench/membench
	@$(QUIET_ENV) $(ACTIVE) ./bin/membench -json bin/bench-memory.json
	@echo; echo "== hand-overs: ours, dpnp, dpctl, NumPy, tvm-ffi"
	@$(QUIET_ENV) $(ACTIVE) ./bin/usmpython interop/pymodule/bench/exchange.py --json bin/bench-exchange.json
	@echo; echo "== import: time, and memory at rest"
	@$(QUIET_ENV) $(ACTIVE) ./bin/usmpython interop/pymodule/bench/import_bench.py --json bin/bench-import.json
	@echo; echo "== compiled functions: Arrays and NumPy's in calls of Numba"
	@$(QUIET_ENV) $(ACTIVE) ./bin/usmpython interop/pymodule/bench/numba_bench.py --json bin/bench-numba.json
	@echo; echo "== Dask: Arrays and NumPy's from worker to worker"
	@$(QUIET_ENV) $(ACTIVE) ./bin/usmpython interop/pymodule/bench/dask_bench.py --json bin/bench-dask.json
	@echo; echo "== another process: an array by handle, shared_memory, pickled NumPy"
	@$(QUIET_ENV) $(ACTIVE) ./bin/usmpython interop/pymodule/bench/share_bench.py --json bin/bench-share.json
	@echo; echo "== CuTe layouts"
	@$(QUIET_ENV) $(ACTIVE) ./bin/usmpython interop/pymodule/bench/cute_bench.py
	@echo; echo "== Go benchmarks"
	@$(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m \
	  $$(grep -rl '^func Benchmark' --include='*_test.go' dlpack examples internal interop memmgr syclobj usmarray | xargs -n1 dirname | sort -u | sed 's|^|./|')

# The inference service against aiohttp, MLServer and plain processes; the load in a process of
# its own. Further flags (go run ./bench -h) in SERVICEBENCH.
bench-service: python bin/tritonclient/requirements.txt bin/mlserver/requirements.txt ## the inference service against aiohttp and MLServer; also JSON in bin/
	@cd interop/inference && $(GO) build -o "$(CURDIR)/bin/usmserve" ./cmd/usmserve && $(GO) build -o "$(CURDIR)/bin/servicebench" ./internal/bench
	@$(QUIET_ENV) $(ACTIVE) ./bin/servicebench -json bin/bench-service.json $(SERVICEBENCH)

bin/mlserver/requirements.txt: internal/tools/setup/requirements-mlserver.txt | python
	@echo "fetching MLServer (100 MB, once)"
	@rm -rf bin/mlserver
	$(PIP_INSTALL) --target bin/mlserver --requirement $<
	cp $< $@

# The same through the wheel, in the environment's own python, apart from its packages.
WHEELED := $(QUIET_ENV) $(ACTIVE) PYTHONPATH="$(CURDIR)/bin/bench-wheel" $(VENV)/bin/python

bench-wheel: wheel ## the Python benchmarks with the wheel in a plain python
	@rm -rf bin/bench-wheel
	@$(VENV)/bin/python -m pip install --quiet --no-deps --no-index --no-input --disable-pip-version-check --target bin/bench-wheel dist/*.whl
	@echo "== hand-overs"
	@$(WHEELED) interop/pymodule/bench/exchange.py --json bin/bench-wheel-exchange.json
	@echo; echo "== import: time, and memory at rest"
	@$(WHEELED) interop/pymodule/bench/import_bench.py --json bin/bench-wheel-import.json
	@echo; echo "== compiled functions"
	@$(WHEELED) interop/pymodule/bench/numba_bench.py --json bin/bench-wheel-numba.json
	@echo; echo "== another process"
	@$(WHEELED) interop/pymodule/bench/share_bench.py --json bin/bench-wheel-share.json
	@echo; echo "== CuTe layouts"
	@$(WHEELED) interop/pymodule/bench/cute_bench.py

check: format vet lint analyse memcheck states race asan cgocheck clobber fuzz ## format, vet, lint, analysis of C, valgrind, block states, race, asan, cgocheck2, clobberfree, fuzz smoke

# The same means for hours instead of minutes (docs/fuzzing.md).
HUNT ?= 1200
JOBS ?= 2
check-long: export LONG_ONLY = $(ONLY)
check-long: python build ## hours: fuzzing, hunts, sanitizers, soaks; continues an interrupted run [HUNT=1200 seconds each, JOBS=2, ONLY=regexp, ARGS=-l]
	@exec $(QUIET_ENV) $(ACTIVE) $(REQUIRE) GO="$(GO)" internal/tools/checks/long.sh -j $(JOBS) -o "$${LONG_ONLY:-.}" $(ARGS) $(HUNT)

# C files that git knows or would know: what is built or installed is not ours.
C_FILES = $$(git ls-files --cached --others --exclude-standard '*.c' '*.h')

format: python
	@bad="$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...) $(NESTED))"; \
	if [ -n "$$bad" ]; then echo "not formatted (run make fmt):"; echo "$$bad"; exit 1; fi
	@$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES)

fmt: python ## formats Go with gofmt and C with clang-format
	@gofmt -w $$($(GO) list -f '{{.Dir}}' ./...) $(NESTED)
	@$(VENV)/bin/clang-format -i $(C_FILES)

lint: bin/golangci-lint-$(LINT_VERSION)
	./bin/golangci-lint-$(LINT_VERSION) run ./...
	@for m in $(NESTED); do \
	  echo "== $$m"; (cd $$m && $(CURDIR)/bin/golangci-lint-$(LINT_VERSION) run --config $(CURDIR)/.golangci.yml ./...) || exit 1; \
	done

bin/golangci-lint-$(LINT_VERSION):
	@mkdir -p bin
	@echo "building golangci-lint $(LINT_VERSION) (some minutes, once)"
	GOFLAGS= GOBIN="$(CURDIR)/bin" $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv bin/golangci-lint $@

analyse: ## all C, that of Go files too, with every warning and gcc's static analyser
	@CC="$$($(GO) env CC)" internal/tools/checks/analyse.sh

memcheck: ## the C parts without Go and Python, by a C program: under valgrind, and the sanitizers of leaks and undefined behaviour
	$(GO) test -count=1 -timeout 20m ./internal/tools/memcheck

# What race, asan and cgocheck run: the wheel's tests try libraries built as users get them,
# those of memcheck build with sanitizers of their own, and those of set-up, of the surface
# and of the floors run nothing of ours.
INSTRUMENTED = $$($(GO) list ./... | grep -v '/internal/tools/')

# Those with C of their own, or that hand memory to C: what is above them the address sanitizer
# and cgocheck2 go through for the same C once more, which ALL=1 does, and check-long with it.
ifdef ALL
WITH_C = $(INSTRUMENTED)
else
WITH_C = ./dlpack ./dlpack/internal/... ./memmgr/... ./internal/bench/... ./syclobj/... ./usmarray/... ./interop/python/... ./interop/pymodule ./interop/share
# Most of what these files run is the peer's own.
WITHOUT_PEERS = USMBRIDGE_PYTESTS="$(addprefix --ignore=tests/,test_numba.py test_package.py test_dask_array.py test_dask_cluster.py test_dask_everywhere.py test_dask_frames.py)"
endif

# The checks synchronize goroutines, so that the race detector would miss races: two runs.
states: python ## the tests of memmgr with checks of the states of blocks and of the lock order
	$(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(GO) test -tags usmb_checks -timeout 20m ./memmgr/...

race: python
	$(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(WITHOUT_PEERS) GO="$(GO)" internal/tools/checks/patient-test.sh -race -timeout 20m -- $(INSTRUMENTED)

# Python, SYCL and OpenCL keep memory until the process ends; ours is counted
# by the tests themselves, so the sanitizer looks for bad accesses alone. Its
# dlopen hides who asks, so OpenCL's loader must be on the library path, and it
# wants the C++ library to be there from the start.
ASAN_ENV = env ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 LD_LIBRARY_PATH=$(VENV)/lib \
	LD_PRELOAD=$$(realpath $$($(shell $(GO) env CC) -print-file-name=libstdc++.so.6))

asan: python
	$(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(WITHOUT_PEERS) GO="$(GO)" internal/tools/checks/patient-test.sh -asan -exec "$(ASAN_ENV)" -timeout 25m -- $(WITH_C)

# Undefined behaviour of C, overflow of signed numbers and pointer arithmetic included, ends
# the program that does it. The driver of memcheck brings sanitizers of its own.
UBSAN := -fsanitize=undefined -fno-sanitize-recover=undefined

ubsan: python ## the tests with all C under the undefined behaviour sanitizer; part of check-long
	$(QUIET_ENV) $(ACTIVE) $(REQUIRE) UBSAN_OPTIONS=print_stacktrace=1 CGO_CFLAGS="-g -O1 $(UBSAN)" CGO_LDFLAGS="$(UBSAN)" GO="$(GO)" \
	  internal/tools/checks/patient-test.sh -count=1 -timeout 30m -- $$($(GO) list ./dlpack/... ./memmgr/... ./syclobj/... ./usmarray/... ./interop/... | grep -v '/internal/memcheck$$')

# It looks at what Go code stores: of the Python suite those files do that enter Go most.
ifndef ALL
CGOCHECK_PYTHON = USMBRIDGE_PYTESTS="test_array.py test_lifetime.py test_share.py test_suai_in.py test_suai_out.py test_queues.py test_interprocess.py test_cute_life.py"
endif

cgocheck: python
	$(QUIET_ENV) $(ACTIVE) $(REQUIRE) $(CGOCHECK_PYTHON) GOEXPERIMENT=cgocheck2 GO="$(GO)" internal/tools/checks/patient-test.sh -timeout 20m -- $(WITH_C)

# A selection with a restless collector that fills what it frees, quickly; check-long has all.
clobber: python ## GOGC=1 with clobberfree: what keeps memory of Go's alive, and what does not
	$(QUIET_ENV) $(ACTIVE) $(REQUIRE) GOGC=1 GODEBUG=clobberfree=1 GO="$(GO)" internal/tools/checks/patient-test.sh -count=1 -timeout 20m -- \
	  ./dlpack ./internal/owner ./syclobj ./usmarray/kernel ./interop/python

fuzz: ## each fuzz target for FUZZTIME
	@for m in . $(NESTED); do \
	  (cd "$(CURDIR)/$$m" && GO="$(GO)" "$(CURDIR)/internal/tools/checks/fuzz.sh" $(FUZZTIME)) || exit 1; \
	done

build: ## binaries into bin/
	@mkdir -p bin
	$(GO) build -o bin/ ./interop/cmd/usminfo ./interop/cmd/usmpython

# What compiles and audits the wheel, in a directory of its own: 400 MB, once. On
# another machine than x86-64 or arm64 zig is not known and Go's C compiler serves.
WHEEL_TOOLS := $(CURDIR)/bin/wheel-tools

wheel: bin/wheel-tools/requirements.txt ## the Python package as a wheel in dist/: built for old systems, twice, and audited
	@rm -rf dist
	PYTHONPATH=$(WHEEL_TOOLS) $(GO) run ./internal/tools/wheel -out dist -zig "$(VENV)/bin/python" -reproduce
	PYTHONPATH=$(WHEEL_TOOLS) $(VENV)/bin/python -m auditwheel show dist/*.whl
	PYTHONPATH=$(WHEEL_TOOLS) $(VENV)/bin/python -m abi3audit --strict --summary dist/*.whl

bin/wheel-tools/requirements.txt: internal/tools/setup/requirements-wheel.txt | python
	@echo "fetching the wheel's tools (100 MB, once)"
	@rm -rf $(WHEEL_TOOLS)
	$(PIP_INSTALL) --target $(WHEEL_TOOLS) --requirement $<
	cp $< $@

test-pythons: wheel ## the whole Python suite, with the wheel, on each Python 3.11 to 3.14 that there is [PYTHONS="13 14" ARGS=pytest's]
	@GO="$(GO)" PYTHONS="$(PYTHONS)" internal/tools/checks/test-pythons.sh dist/*.whl bin/pythons $(ARGS)

test-versions: build ## both protocols with each dpctl from 0.17 to 0.22 and NumPy from 1.26: the README's table [VERSIONS="dpctl-0.18 ..."]
	@GO="$(GO)" internal/tools/checks/test-versions.sh bin/versions $(VERSIONS)

# The peers' own tests of exchanging arrays, as their wheels bring them: as they are, with
# usmbridge in the process, and again with their from_dlpack going through ours.
# JAX brings none: ours with it, and it lies in a directory of its own.
PEER_TESTS := numpy._core.tests.test_dlpack pyarrow.tests.test_dlpack dpnp.tests.test_dlpack dpnp.tests.tensor.test_usm_ndarray_dlpack \
	array_api_strict.tests.test_creation_functions array_api_strict.tests.test_array_object
PEERS_DIR := $(CURDIR)/interop/pymodule/peers
PEERS := $(QUIET_ENV) $(ACTIVE) PYTHONPATH="$(PEERS_DIR)" $(CURDIR)/bin/usmpython -m pytest -q -rsxX -W ignore \
	-p no:cacheprovider -p usmbridge_peers
JAX := $(CURDIR)/bin/jax

CONSUMERS := $(CURDIR)/bin/consumers

test-peers: python build bin/jax/requirements.txt bin/consumers/requirements.txt ## NumPy's, pyarrow's, dpctl's, dpnp's and array-api-strict's own tests with usmbridge loaded, and through it; JAX, and libraries that take arrays
	@echo "== the peers' tests with usmbridge loaded"
	@cd bin && $(PEERS) --pyargs $(PEER_TESTS) dpctl.tests.test_sycl_usm dpnp.tests.tensor.test_usm_ndarray_ctor
	@echo "== the same with from_dlpack through usmbridge"
	@cd bin && $(PEERS) --route --pyargs $(PEER_TESTS)
	@echo "== JAX"
	@cd bin && $(QUIET_ENV) $(ACTIVE) PYTHONPATH="$(JAX)" $(CURDIR)/bin/usmpython -m pytest -q -rsxX -p no:cacheprovider "$(PEERS_DIR)/test_jax.py"
	@echo "== libraries that take arrays"
	@cd bin && $(QUIET_ENV) $(ACTIVE) PYTHONPATH="$(CONSUMERS)" SCIPY_ARRAY_API=1 $(CURDIR)/bin/usmpython -m pytest -q -rsxX -p no:cacheprovider "$(PEERS_DIR)/test_consumers.py"

bin/consumers/requirements.txt: internal/tools/setup/requirements-consumers.txt | python
	@echo "fetching pandas, scikit-learn, matplotlib and others (200 MB, once)"
	@rm -rf $(CONSUMERS)
	$(PIP_INSTALL) --target $(CONSUMERS) --requirement $<
	cp $< $@

bin/jax/requirements.txt: internal/tools/setup/requirements-jax.txt | python
	@echo "fetching JAX (120 MB, once)"
	@rm -rf $(JAX)
	$(PIP_INSTALL) --target $(JAX) --requirement $<
	cp $< $@

python: ## sets up .venv with the pinned packages, those of the tests included
	@$(SETUP) test

python-run:
	@$(SETUP) run

clean: ## removes what was built, .venv included
	rm -rf bin dist .venv edges.png
