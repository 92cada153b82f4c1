#!/usr/bin/env bash
# Runs the tests with one tool: sanitize.sh TOOL
#
#   states    checks of block states and of the lock order in memmgr. They synchronize goroutines, which
#             hides data races, so race is another run.
#   race      Go's race detector. The owner cells are Go memory in such builds, so that it sees them
#             (internal/owner/reserve_other.go). It does not see what C code accesses.
#   asan      the address sanitizer, for C
#   ubsan     the undefined behaviour sanitizer, for C
#   cgocheck  cgocheck2, which checks each Go pointer that Go code stores
#   clobber   a garbage collector that runs all the time and overwrites the memory that it frees
#
# asan leaves out Python tests that run mostly code of peers, and cgocheck has those that enter Go most. race has those
# with several threads or processes: it finds nothing in calls from one thread, and no access of C code. With ALL=1,
# asan and cgocheck run all packages, not only those with C code, and all three run all Python tests.
#
# Intel's OpenCL driver for the CPU rarely loses an operation, and waiting for it then never ends. If each
# package that fails has reached its time limit in a wait of the SYCL library, these packages run again,
# once. All other failures count.
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 2
go=${GO:-go}
all=$("$go" list ./... | grep -v '/internal/tools/')
# Packages with C code, or that pass memory to C. go test starts them in this order; the one that takes longest is
# first, so that no processor waits for it at the end.
with_c='./interop/pymodule ./memmgr/... ./usmarray/... ./syclobj/... ./interop/python/... ./interop/share ./dlpack ./dlpack/internal/... ./internal/bench/...'
python= flags=(-vet=off -timeout 25m)
# A sanitizer needs each path once, so tests that repeat work do so less often.
if [ -z "${ALL:-}" ]; then
	export USMB_ORDER_ROUNDS=1
else
	with_c=$all
fi
case ${1:-} in
states)
	packages=./memmgr/...
	flags+=(-tags usmb_checks)
	;;
race)
	packages="./interop/pymodule $all"
	python=$(printf 'test_%s.py ' array_api cute defaults exchange hostile interprocess lifetime many_threads \
		processes queues release released_meanwhile scarce share)
	python+=$(printf ' robust/test_%s.py' lives changes threads)
	flags+=(-race)
	;;
asan)
	packages=$with_c
	python=$(printf '!test_%s.py ' numba package dask_cluster dask_frames)
	# Python, SYCL and OpenCL keep memory until the process ends, so leaks are not checked here; the tests
	# count the objects of this module. The sanitizer's dlopen hides the caller, so OpenCL's loader must be
	# on the library path, and the sanitizer needs the C++ library from the start. Requests for too much memory
	# return NULL, as elsewhere, for the tests of them.
	# shellcheck disable=SC2086 # CC may have arguments
	cpp=$(realpath "$($("$go" env CC) -print-file-name=libstdc++.so.6)")
	flags+=(-asan -exec "env ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1 LD_LIBRARY_PATH=$VIRTUAL_ENV/lib LD_PRELOAD=$cpp")
	;;
ubsan)
	packages=$all
	# Undefined behaviour, including signed overflow and pointer arithmetic, ends the program.
	sanitizer='-fsanitize=undefined -fno-sanitize-recover=undefined'
	export CGO_CFLAGS="-g -O1 $sanitizer" CGO_LDFLAGS="$sanitizer" UBSAN_OPTIONS=print_stacktrace=1
	;;
cgocheck)
	packages=$with_c
	python=$(printf 'test_%s.py ' array lifetime share suai_in suai_out queues interprocess cute)
	export GOEXPERIMENT=cgocheck2
	;;
clobber)
	packages='./dlpack ./internal/owner ./syclobj ./usmarray/kernel ./interop/python'
	export GOGC=1 GODEBUG=clobberfree=1
	flags+=(-count=1)
	;;
*)
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
[ -n "${ALL:-}" ] || export USMBRIDGE_PYTESTS=$python
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086 # a list of packages
"$go" test "${flags[@]}" $packages 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
[ "$status" -ne 0 ] || exit 0
failed=$(awk '$1 == "FAIL" && NF > 1 {print $2}' "$log" | sort -u)
count=$(grep -c . <<<"$failed")
if [ "$count" -eq 0 ] || [ "$(grep -c '^panic: test timed out after' "$log")" -lt "$count" ] ||
	[ "$(grep -c '_Cfunc_usmb_sycl_wait' "$log")" -lt "$count" ]; then
	exit "$status"
fi
echo "== a wait for the driver did not end; running again:" $failed
# shellcheck disable=SC2086 # a list of packages
"$go" test "${flags[@]}" $failed
