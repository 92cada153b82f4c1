#!/usr/bin/env bash
# Runs every fuzz target and hunt for a given time, and tests that take hours.
#
#   long.sh [-l] [-j JOBS] [-o REGEXP] SECONDS
#
# -l lists the stages and their commands. -o selects the stages whose names match. Fuzz targets and
# hunts run JOBS at a time, other stages alone. Each stage writes its output to
# bin/long/STAGE.log and, if it passes, the commit and the duration to bin/long/STAGE.ok. A stage
# with that file is not run again, so an interrupted run continues with the next stage; remove
# bin/long to begin again. Inputs that fail are in testdata/fuzz of the package, examples of hunts in
# bin/long/hunts. The exit status is 0 if all selected stages have passed.
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 2
go="${GO:-go}" dir="$PWD/bin/long" jobs=2 only=. list=
while getopts lj:o: option; do
	case $option in
	l) list=1 ;;
	j) jobs=$OPTARG ;;
	o) only=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] && [ "$1" -gt 0 ] || { sed -n 's/^# \{0,1\}//; 4p' "$0" >&2; exit 2; }
seconds=$1
hunts=interop/pymodule/tests

# Each stage is a line: its name, a tab, its command, which runs in the root of the repository.
fuzz_targets() {
	internal/tools/checks/fuzz.sh -l | while read -r target; do
		printf 'fuzz %s\tGO=%q internal/tools/checks/fuzz.sh %ss "^%s$"\n' "$target" "$go" "$seconds" "$target"
	done
}

hunt_targets() {
	local target
	for target in $(sed -n '/^@target(/{n;s/^def test_\([a-z_0-9]*\)(.*/\1/p;}' "$hunts"/robust/test_*.py); do
		printf 'hunt %s\thunt usmpython plain %s\n' "$target" "$target"
		printf 'hunt %s sanitized\thunt usmpython-san sanitized %s\n' "$target" "$target"
	done
}

other_stages() {
	local python="cd $hunts && ../../../bin/usmpython -m pytest -q -s -p no:cacheprovider"
	cat <<-STAGES
		failing allocations and interrupts	(export USMBRIDGE_HUNT=1; $python -k 'allocations or interrupts' test_scarce.py)
		failing calls and allocations of C	USMBRIDGE_HUNT=1 $go test -count=1 -timeout 240m -v ./internal/tools/memcheck
		failing calls of the SYCL library	$go test -count=1 -v -run Sweep ./usmarray
		failing driver	USMBRIDGE_HUNT=$seconds $go test -count=1 -timeout 240m -v -run DriverFails ./memmgr ./interop/executor
		failing driver in Python	(export USMBRIDGE_HUNT=$seconds; $python test_driver_failures.py)
		failing disks and addresses	$go test -count=1 -v -run 'DiskFull|EveryAddressLimit' ./interop/npy ./interop/safetensors ./memmgr
		long soak from Go	USMBRIDGE_SOAK=10000000 $go test -count=1 -timeout 0 -v -run '^TestSoak$' ./interop/pymodule
		long soak from Python	(export USMBRIDGE_SOAK=10000000; $python -k test_soak test_soak.py)
		long stopped server	(cd interop/flight && USMBRIDGE_HUNT=1 $go test -count=1 -timeout 60m -v -run StoppedServer .)
		long killed peers	USMBRIDGE_HUNT=1000 $go test -count=1 -timeout 60m -v -run KilledAtRandom ./interop/share
		long killed Python processes	(export USMBRIDGE_HUNT=1; $python -k killed_at_random test_processes.py)
		long openings	USMBRIDGE_HUNT=1 $go test -count=1 -timeout 60m -v -run Flat ./interop/share
		dpctl before the first array	(export USMB_FIRST=dpctl; $python .)
		arrays before dpctl	(export USMB_FIRST=array; $python .)
		order of device work	(export USMB_ORDER_ROUNDS=50; $python test_order.py)
		tasks on the host and barriers	(export USMB_HOST_TASKS_SECONDS=$seconds; $python -k several test_host_tasks.py)
		forks and plain memory in children	(export USMB_FORK_ROUNDS=100000 USMB_FORK_ENDS=100; $python test_fork.py)
		forks of Go programs	USMB_FORK_ENDS=100 $go test -count=1 -timeout 30m -v -run AfterComputing ./interop/executor
		out-of-order queues of the driver	(export USMBRIDGE_CPU_QUEUES=driver; $python $(cd $hunts && ls test_*.py | grep -Ev 'threads|host_tasks|dask|soak|processes|fork|pairs|cuda|docs|package|cute|import_order' | tr '\n' ' '))
		threads and out-of-order queues	$go test -count=20 -timeout 30m -v -run Threads ./usmarray/kernel
		threads in Python	for i in {1..20}; do ($python -k 'export or after' test_many_threads.py) || exit 1; done
		long threads in Python	(export USMB_THREADS_SECONDS=$seconds; $python test_many_threads.py)
		long schedules of queues	USMBRIDGE_SCHEDULES=1000000 $go test -count=1 -timeout 2h -v -run 'TestFakeSchedules$' ./memmgr
		long load of a service	USMBRIDGE_HUNT=3600 $go test -count=1 -timeout 2h -v -run Endure ./memmgr
		long waits	USMBRIDGE_HUNT=$seconds $go test -count=1 -timeout 120m -v -run EveryWaiterIsServed ./memmgr
		tests address sanitizer	make sanitize-asan ALL=1
		tests cgocheck2	make sanitize-cgocheck ALL=1
		tests UBSan	make sanitize-ubsan
		tests GOGC=1 clobberfree	GOGC=1 GODEBUG=clobberfree=1 $go test -count=1 -timeout 120m ./...
		tests race five times	$go test -race -count=5 -timeout 240m ./...
	STAGES
}

# hunt PROGRAM NAME TARGET runs a hunt. The sanitizers need the C++ library from the start and OpenCL's
# loader on the library path; PYTHONMALLOC shows them Python's small blocks too.
hunt() {
	local environment=()
	[ "$2" = plain ] || environment=(PYTHONMALLOC=malloc UBSAN_OPTIONS=print_stacktrace=1
		ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1
		LD_PRELOAD="$(realpath "$(cc -print-file-name=libstdc++.so.6)")" LD_LIBRARY_PATH="$VIRTUAL_ENV/lib")
	(cd "$hunts" && env "${environment[@]}" "$dir/$1" -m robust --seconds "$seconds" --results "$dir/hunts/$2" "$3")
}

# run_stage NAME COMMAND runs a stage, unless it has passed before.
run_stage() {
	local file="$dir/${1//[^A-Za-z0-9_.-]/_}" start=$SECONDS
	[ ! -e "$file.ok" ] || return 0
	echo "run     $1"
	if bash -o pipefail -c "$2" >"$file.log" 2>&1 && ! grep -qE 'no tests to run|no tests ran|^[0-9]+ deselected in' "$file.log"; then
		echo "$(git rev-parse --short HEAD) $((SECONDS - start)) s" >"$file.ok"
		echo "passed  $1"
	else
		echo "FAILED  $1: $file.log"
		return 1
	fi
}

# cases prints how many cases the log of a stage counts.
cases() {
	grep -oE 'execs: [0-9]+|[0-9]+ (executions|processes killed|exchanges|openings|schedules|passed|calls and allocations failed|requests|faults|submissions|allocations failed|interrupts hit)' "$1" | tail -n 1
}

stages=$({ fuzz_targets; hunt_targets; other_stages; } | awk -F'\t' -v only="$only" '$1 ~ only')
[ -n "$stages" ] || { echo "no stage matches $only" >&2; exit 2; }
if [ -n "$list" ]; then
	awk -F'\t' '{print $1 ":\n    " $2}' <<<"$stages"
	exit 0
fi
mkdir -p "$dir/hunts/plain" "$dir/hunts/sanitized"
exec 9>"$dir/lock"
flock -n 9 || { echo "another run is under way in $dir" >&2; exit 2; }
if grep -q '^hunt ' <<<"$stages"; then
	"$go" build -o "$dir/" ./interop/cmd/usmpython || exit 1
	CGO_CFLAGS='-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined' CGO_LDFLAGS=-fsanitize=undefined \
		"$go" build -asan -o "$dir/usmpython-san" ./interop/cmd/usmpython || exit 1
fi
export -f hunt run_stage
export hunts dir seconds
status=0
# One NUL-terminated name and command after the other, for xargs.
grep -E '^(fuzz|hunt) ' <<<"$stages" | tr '\t\n' '\0\0' | xargs -0 -r -n2 -P"$jobs" bash -c 'run_stage "$@"' _ || status=1
while IFS=$'\t' read -r name line; do
	run_stage "$name" "$line" </dev/null || status=1
done < <(grep -vE '^(fuzz|hunt) ' <<<"$stages")

echo
printf '%-60s %-8s %-20s %s\n' stage result 'commit, duration' cases
cut -f1 <<<"$stages" | while read -r name; do
	file="$dir/${name//[^A-Za-z0-9_.-]/_}"
	result=passed
	[ -e "$file.ok" ] || result=FAILED
	printf '%-60s %-8s %-20s %s\n' "$name" "$result" "$(cat "$file.ok" 2>/dev/null)" "$(cases "$file.log" 2>/dev/null)"
done
exit $status
