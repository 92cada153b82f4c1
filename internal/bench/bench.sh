#!/usr/bin/env bash
# Compares usmbridge with its peers, and prints tables: bench.sh [wheel]
#
# Runs the memory benchmark, those of the Python package in bin/usmpython, and Go's benchmarks that match BENCH.
# With "wheel" it runs only those of the Python package, with the wheel in python3. Results are also in
# bin/bench-*.json and bin/bench-wheel-*.json.
set -euo pipefail
cd "$(dirname "$0")/../.."
go=${GO:-go}

# python_benchmarks PYTHON PREFIX NAME... runs files of interop/pymodule/bench.
python_benchmarks() {
	local name
	for name in "${@:3}"; do
		echo "== ${name%_bench}"
		"$1" "interop/pymodule/bench/$name.py" --json "bin/$2-${name%_bench}.json"
		echo
	done
}

if [ "${1:-}" = wheel ]; then
	python_benchmarks python3 bench-wheel exchange import_bench numba_bench share_bench cute_bench
	exit
fi
echo "== memory: the pool, UMF and raw allocation"
"$go" build -o bin/ ./internal/bench/membench
bin/membench -json bin/bench-memory.json
echo
python_benchmarks bin/usmpython bench exchange import_bench numba_bench dask_bench share_bench cute_bench
echo "== Go benchmarks"
packages=$(git grep -l '^func Benchmark' -- '*_test.go' ':!interop/flight' ':!interop/inference' ':!interop/metrics' | xargs -n1 dirname | sort -u | sed 's|^|./|')
# shellcheck disable=SC2086 # a list of packages
"$go" test -run '^$' -bench "${BENCH:-.}" -benchmem -timeout 60m $packages
