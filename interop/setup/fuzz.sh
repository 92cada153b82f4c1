#!/usr/bin/env bash
# Runs each fuzz target of the packages below the current directory for the time given.
#
# When that time is over, Go 1.26's coordinator may take the end of its own context for a
# failure and print a bare "context deadline exceeded" (go.dev/issue/75804, mended in Go
# 1.27), the sooner the busier the machine is. A target that failed with these words alone,
# without an input that is to blame, is therefore run again, twice at most, and this says so;
# any other failure is one, and so is a third.
set -uo pipefail
go="${GO:-go}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() {
	"$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 200x "$1" 2>&1 | tee "$log"
	return "${PIPESTATUS[0]}"
}

# deadline_alone says whether the log holds one failure, whose only words are the deadline's.
deadline_alone() {
	[ "$(grep -A1 '^--- FAIL: ' "$log" | grep -v '^--- FAIL: ' | sed 's/^ *//')" = 'context deadline exceeded' ] &&
		! grep -qE '^panic:|Failing input written|fuzzing process (hung|terminated)' "$log"
}

packages=$("$go" list ./...) || exit 1
for package in $packages; do
	targets=$("$go" test -list '^Fuzz' "$package") || { echo "$targets"; exit 1; }
	for target in $(grep '^Fuzz' <<<"$targets"); do
		echo "$package $target"
		for left in 2 1 0; do
			fuzz "$package" "$target" "$1" && break
			deadline_alone && [ "$left" -gt 0 ] || exit 1
			echo "== the coordinator took its own deadline for a failure; once more: $package $target"
		done
	done
done
