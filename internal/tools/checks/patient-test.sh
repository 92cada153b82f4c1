#!/usr/bin/env bash
# Runs `go test`: patient-test.sh FLAGS -- PACKAGES
#
# Intel's OpenCL CPU driver now and then never ends a piece of work, on in-order queues
# too, and whoever waits for it waits for ever: seen once in a run of the whole tree under
# the address sanitizer, and not in 41 more runs of the test that it was in. A package that
# ran into its time limit while a goroutine stood in a wait inside the SYCL library is
# therefore run once more, and this says so; any other failure is one, and so is a second
# stall.
set -uo pipefail
flags=()
while [ "$1" != -- ]; do
	flags+=("$1")
	shift
done
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${GO:-go}" test "${flags[@]}" "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
[ "$status" -ne 0 ] || exit 0

failed=$(awk '$1 == "FAIL" && NF > 1 {print $2}' "$log" | sort -u)
stalls=$(grep -c '^panic: test timed out after' "$log")
waits=$(grep -c '_Cfunc_usmb_sycl_wait' "$log")
count=$(echo "$failed" | grep -c .)
if [ "$count" -eq 0 ] || [ "$stalls" -lt "$count" ] || [ "$waits" -lt "$count" ]; then
	exit "$status"
fi
echo "== the driver did not end a piece of work; once more: $failed"
# shellcheck disable=SC2086 # one argument a package
"${GO:-go}" test "${flags[@]}" $failed
