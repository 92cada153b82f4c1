#!/usr/bin/env bash
# Runs Go's tests of the loader and of both protocols, and all Python tests, with each release of dpctl and NumPy in
# internal/tools/setup/versions.txt. Each has its own environment, without dpnp, Dask and pyarrow; their tests
# skip. Prints the table of docs/compatibility.md at the end.
#
#	test-versions.sh DIRECTORY [NAME OF ENVIRONMENT...]
#
# The environments stay in DIRECTORY (1.5 GB each). The script needs bin/usmpython.
set -uo pipefail
mkdir -p "$1"
dir=$(realpath "$1")
shift
root=$(realpath "$(dirname "$0")/../../..")
cd "$root" || exit 2
# The packages of every environment: pytest, and the peers that do not need SYCL.
common="pytest==9.2.0 pluggy==1.7.0 iniconfig==2.3.1 packaging==26.3 Pygments==2.21.0 hypothesis==6.170.15 sortedcontainers==2.4.0
	ml_dtypes==0.6.0 apache-tvm-ffi==0.1.15.post2 typing_extensions==4.16.0 numba==0.68.1 llvmlite==0.50.0"
go=${GO:-go}

. internal/tools/checks/find_python.sh

# entries PACKAGE... prints the entries of the requirements files, which have the hashes.
entries() {
	local package
	for package in "$@"; do
		awk -v package="$package" '/^[^ ]/ { keep = $1 == package } keep { print; found = 1 } END { exit !found }' \
			internal/tools/setup/requirements-{run,test,versions}.txt ||
			{ echo "test-versions: no hashes of $package: add it to requirements-versions.txt, and run pin.py" >&2 && return 1; }
	done
}

# install NAME PYTHON PACKAGE... creates the environment if it does not exist or if the packages or their hashes have
# changed.
install() {
	local env=$dir/$1 exe=$2 list
	shift 2
	# shellcheck disable=SC2086 # a list
	list=$(entries "$@" $common) || return
	[ "$(cat "$env/requirements.txt" 2>/dev/null)" != "$list" ] || return 0
	rm -rf "$env"
	"$exe" -m venv "$env" || return
	echo "$list" >"$env/installing.txt"
	"$env/bin/python" -m pip install --require-hashes --quiet --no-deps --only-binary=:all: --no-input --disable-pip-version-check \
		--requirement "$env/installing.txt" || return
	mv "$env/installing.txt" "$env/requirements.txt"
}

# within NAME COMMAND runs a command in an environment. LD_LIBRARY_PATH is for the extension module of dpctl 0.17,
# which does not find its libraries; the loader of this project does.
within() {
	local env=$dir/$1
	shift
	env -u PYTHONHOME -u PYTHONPATH -u USMBRIDGE_SYCL -u USMBRIDGE_PYTHON -u USMBRIDGE_REQUIRE_PEERS VIRTUAL_ENV="$env" PATH="$env/bin:$PATH" \
		LD_LIBRARY_PATH="$env/lib" PYTHONDONTWRITEBYTECODE=1 USMBRIDGE_REQUIRE_PYTHON=1 USMBRIDGE_REQUIRE_SYCL=1 "$@"
}

failed=0
table=$dir/table.md
{
	echo "| dpctl | SYCL runtime | NumPy | Python | Go's tests | Python suite |"
	echo "| --- | --- | --- | --- | --- | --- |"
} >"$table"
while read -r name minor packages; do
	case $name in '' | \#*) continue ;; esac
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	exe=$(find_python "$minor" "venv, ensurepip")
	version() { grep -oE "(^| )$1==[^ ]+" <<<"$packages" | sed 's/.*==//'; }
	row="| $(version dpctl) | $(version intel-sycl-rt) | $(version numpy) | 3.$minor |"
	if [ -z "$exe" ]; then
		echo "$row no python3.$minor | |" >>"$table"
		continue
	fi
	echo "== $name: $exe"
	# shellcheck disable=SC2086 # a list
	if ! install "$name" "$exe" $packages; then
		echo "$row cannot be installed | |" >>"$table"
		failed=1
		continue
	fi
	log=$dir/$name.log
	within "$name" "$go" test -count=1 ./syclobj/... ./memmgr/segment ./usmarray/... ./dlpack/... ./interop/python 2>&1 | tee "$log"
	status=${PIPESTATUS[0]}
	result="$(grep -c '^ok' "$log") packages pass"
	[ "$status" -eq 0 ] || { failed=1 && result="$(grep -c '^FAIL.*/' "$log") packages FAIL"; }
	within "$name" bin/usmpython -m pytest -q -rs -p no:cacheprovider interop/pymodule/tests 2>&1 | tee -a "$log"
	status=${PIPESTATUS[0]}
	[ "$status" -eq 0 ] || failed=1
	counts=$(grep -E '^[0-9]+ (passed|failed|error).* in [0-9.]+s' "$log" | tail -n 1 | sed -E 's/ in [0-9.]+s.*//; s/, [0-9]+ warnings?//')
	echo "$row $result | ${counts:-no result} |" >>"$table"
done <internal/tools/setup/versions.txt
echo
cat "$table"
exit "$failed"
