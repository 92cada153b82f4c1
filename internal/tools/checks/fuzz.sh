#!/usr/bin/env bash
# Runs Go's fuzz targets.
#
#   fuzz.sh -l              lists them: the directory of the package and the name
#   fuzz.sh TIME [REGEXP]   runs those whose line of this list matches, for the given time each
#
# A single target uses all processors. Several run side by side with one worker each, because building them takes as
# long as a run of some seconds. The output of each follows its end.
#
# At the end of the time, the coordinator of Go 1.26 may take the end of its own context for a failure and
# print only "context deadline exceeded" (go.dev/issue/75804, fixed in Go 1.27). This happens more often on a
# busy machine. A target that fails with only these words and without a failing input runs again, at
# most twice. All other failures count.
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 2

targets() {
	git grep -oE '^func Fuzz\w+\(\w+ \*testing' -- '*_test.go' | sed 's|^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9_]*\)(.*|\1 \2|' | sort
}

fuzz() {
	"${GO:-go}" test -vet=off -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 200x -parallel "$workers" "./$1" 2>&1 | tee "$log"
	return "${PIPESTATUS[0]}"
}

# deadline_only reports whether the log has one failure, and its only text is the deadline.
deadline_only() {
	[ "$(grep -A1 '^--- FAIL: ' "$log" | grep -v '^--- FAIL: ' | sed 's/^ *//')" = 'context deadline exceeded' ] &&
		! grep -qE '^panic:|Failing input written|fuzzing process (hung|terminated)' "$log"
}

# fuzz_again PACKAGE TARGET TIME runs a target, and again after a failure of the coordinator.
fuzz_again() {
	local left
	echo "$1 $2"
	for left in 2 1 0; do
		fuzz "$@" && return
		deadline_only && [ "$left" -gt 0 ] || return 1
		echo "== the coordinator failed at its own deadline; running again: $1 $2"
	done
}

if [ "${1:-}" = -l ]; then
	targets
	exit
fi
selected=$(targets | grep -E "${2:-.}") || { echo "fuzz: no target matches $2; fuzz.sh -l lists them" >&2 && exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
jobs=$(nproc)
if [ "$(wc -l <<<"$selected")" -eq 1 ]; then
	workers=$jobs log=$work/log
	read -r package target <<<"$selected"
	fuzz_again "$package" "$target" "$1" </dev/null
	exit
fi
workers=1
while read -r package target && [ ! -e "$work/failed" ]; do
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
	(
		log=$work/$BASHPID.log
		fuzz_again "$package" "$target" "$1" </dev/null >"$work/$BASHPID" 2>&1 || touch "$work/failed"
		cat "$work/$BASHPID"
	) &
done <<<"$selected"
wait
[ ! -e "$work/failed" ]
