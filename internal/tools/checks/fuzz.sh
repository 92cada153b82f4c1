#!/usr/bin/env bash
# Runs fuzz targets for the time given: fuzz.sh TIME [PACKAGE TARGET]. Without a target, each one of
# the packages below the current directory.
#
# When the time is over, the coordinator of Go 1.26 may take the end of its own context for a
# failure and print only "context deadline exceeded" (go.dev/issue/75804, fixed in Go 1.27). This
# happens more often on a busy machine. A target that fails with these words alone, without a
# failing input, is therefore run again, at most twice. Every other failure counts.
set -uo pipefail
go="${GO:-go}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() {
	"$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 200x "$1" 2>&1 | tee "$log"
	return "${PIPESTATUS[0]}"
}

# deadline_alone reports whether the log has one failure, and its only text is the deadline.
deadline_alone() {
	[ "$(grep -A1 '^--- FAIL: ' "$log" | grep -v '^--- FAIL: ' | sed 's/^ *//')" = 'context deadline exceeded' ] &&
		! grep -qE '^panic:|Failing input written|fuzzing process (hung|terminated)' "$log"
}

# patiently PACKAGE TARGET TIME fuzzes a target, again after a failure of the coordinator.
patiently() {
	echo "$1 $2"
	for left in 2 1 0; do
		fuzz "$@" && return
		deadline_alone && [ "$left" -gt 0 ] || return 1
		echo "== the coordinator failed at its own deadline; running again: $1 $2"
	done
}

if [ $# -eq 3 ]; then
	patiently "$2" "$3" "$1"
	exit
fi
packages=$("$go" list ./...) || exit 1
for package in $packages; do
	targets=$("$go" test -list '^Fuzz' "$package") || { echo "$targets"; exit 1; }
	for target in $(grep '^Fuzz' <<<"$targets"); do
		patiently "$package" "$target" "$1" || exit 1
	done
done
